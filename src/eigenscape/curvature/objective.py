"""What is measured: a loss as a function of the chosen parameters, the mean over all samples of the data."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from ..core import CurvatureError, DataError, Layout, resolve_generator
from .batches import Batches
from .criteria import output_loss
from .hazards import check_finite_parameters, check_mode, differentiable_twice
from .nested import picked, size_of, tensors, tree_map
from .selection import Choice, select_parameters


class Piece(NamedTuple):
    """One micro-batch and its share of the whole-set mean."""

    inputs: Any
    targets: Any
    share: float
    order: int = 0


class _Network(nn.Module):
    """Calls a model on inputs of any nesting; holds it as a submodule so that parameters can be substituted."""

    def __init__(self, model: nn.Module, forward: Callable[[nn.Module, Any], Any] | None):
        super().__init__()
        self.model, self._forward = model, forward
        self.training = model.training

    def forward(self, inputs: Any) -> Any:
        if self._forward is not None:
            return self._forward(self.model, inputs)
        if isinstance(inputs, dict):
            outputs = self.model(**inputs)
        elif isinstance(inputs, tuple | list):
            outputs = self.model(*inputs)
        else:
            outputs = self.model(inputs)
        logits = getattr(outputs, "logits", None)
        return outputs if isinstance(outputs, Tensor) or logits is None else logits


class Objective:
    """The loss of a model on data, as a function of its parameters.

    `criterion(outputs, targets)` is a scalar mean over a batch; the objective is the mean over *all* samples: batches weigh
    by the samples (tokens, class weights) that their own means divide by, so uneven batches and ignored targets are exact.

    - data: one `(inputs, targets)` pair, or any re-iterable of pairs (list, DataLoader). Inputs may be a tensor, a tuple
      (`model(*inputs)`) or a dictionary (`model(**inputs)`, as Hugging Face models take).
    - params: names, glob patterns or a predicate on (name, tensor); default: every parameter that requires grad.
    - forward: `(model, inputs) -> outputs`; default: call the model, take `.logits` where the output has it.
    - micro_batch: cut batches into pieces of at most this many samples, to bound memory.
    - weight: `targets -> samples in the batch`, for criteria whose mean divides by something of their own.
    - check: refuse training-mode dropout and batch norm, and test operators once before their first product.

    The model is never changed: not its mode, gradients, buffers or `requires_grad`. Parameters are read afresh at each use.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> obj = Objective(model, nn.MSELoss(), (torch.eye(2), torch.zeros(2, 1)))
    >>> obj.loss(), obj.gradient()
    (tensor(1.), tensor([1., 1.]))
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Callable[[Any, Any], Tensor],
        data: Any,
        *,
        params: Choice = None,
        forward: Callable[[nn.Module, Any], Any] | None = None,
        micro_batch: int | None = None,
        weight: Callable[[Any], float] | None = None,
        check: bool = True,
    ):
        if not isinstance(model, nn.Module):
            raise CurvatureError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
        self.model: nn.Module = getattr(model, "_orig_mod", model)
        self.criterion = criterion
        self.forward = forward
        self.check = check
        self.output_loss = output_loss(criterion)
        self._weight = weight
        self._network = _Network(self.model, forward)
        self._names = select_parameters(self.model, params)
        self.layout = Layout.of(self.parameters)
        self.batch_source = Batches(data, micro_batch)
        self._total: float | None = None
        self._check_model()

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The chosen parameters as they are now, detached, by name."""
        every = dict(self.model.named_parameters())
        return {name: every[name].detach() for name in self._names}

    @property
    def dtype(self) -> torch.dtype:
        """The parameters' dtype."""
        return next(iter(self.parameters.values())).dtype

    @property
    def device(self) -> torch.device:
        """The parameters' device."""
        return next(iter(self.parameters.values())).device

    @property
    def num_samples(self) -> float:
        """What the mean divides by: samples, tokens, or the sum of the weights."""
        if self._total is None:
            self._total = math.fsum(self.batch_weight(inputs, targets) for inputs, targets in self._raw())
            if self._total <= 0:
                raise DataError(
                    "the data holds no sample with a weight; expected at least one (inputs, targets) pair with a target."
                )
        return self._total

    def _check_model(self) -> None:
        if self.check:
            check_mode(self.model)

    def _raw(self) -> Iterator[tuple[Any, Any]]:
        for inputs, targets in self.batch_source:
            yield self._place(inputs), self._place(targets)

    def _place(self, tree: Any) -> Any:
        """Tensors on the parameters' device: data comes to the model."""
        return tree_map(lambda t: t.to(self.device, non_blocking=True), tree)

    def batch_weight(self, inputs: Any, targets: Any) -> float:
        """What a batch's own mean divides by."""
        if self._weight is not None:
            return float(self._weight(targets))
        found = self.output_loss.weight(targets, inputs)
        if found is None:
            raise DataError(
                "the targets hold negative indices, so some may be ignored, and the criterion does not say which; expected "
                "weight= (targets -> samples that count), such as weight=lambda t: (t != -100).sum()."
            )
        return found

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """One pass over the `(inputs, targets)` micro-batches."""
        for piece in self.pieces():
            yield piece.inputs, piece.targets

    def pieces(self) -> Iterator[Piece]:
        """One pass over the micro-batches that weigh something, with their shares; the shares sum to 1."""
        self._check_model()
        total = self.num_samples
        for index, (inputs, targets) in enumerate(self._raw()):
            share = self.batch_weight(inputs, targets) / total
            if share > 0:
                yield Piece(inputs, targets, share, index)

    def outputs(self, parameters: dict[str, Tensor], inputs: Any) -> Any:
        """Outputs of the model with these parameters substituted; its own state is not touched."""
        if self.check and self.forward is None:
            self._check_dtype(inputs, next(iter(parameters.values())).dtype)
        state = {f"model.{name}": b.detach().clone() for name, b in self.model.named_buffers()}
        dtype = next(iter(parameters.values())).dtype
        if dtype != self.dtype:
            state |= {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
            state = {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}
        state |= {f"model.{name}": p for name, p in parameters.items()}
        try:
            return functional_call(self._network, state, (inputs,))
        except RuntimeError as error:
            shapes = ", ".join(str(tuple(t.shape)) for t in tensors(inputs))
            raise CurvatureError(f"the model failed on inputs of shape {shapes}: {_first_line(error)}") from error

    def _check_dtype(self, inputs: Any, dtype: torch.dtype) -> None:
        for t in tensors(inputs):
            if t.is_floating_point() and t.dtype != dtype:
                raise DataError(
                    f"the inputs are {t.dtype}, the parameters {dtype}; expected one dtype: inputs.to({dtype}) or "
                    f"model.to({t.dtype})."
                )

    def tensor_outputs(self, parameters: dict[str, Tensor], piece: Piece) -> Tensor:
        """Outputs that must be one tensor (for the GGN, Fisher and NTK), checked against the targets."""
        outputs = self.outputs(parameters, piece.inputs)
        if not isinstance(outputs, Tensor):
            raise CurvatureError(
                f"the model returned a {type(outputs).__name__}; expected one tensor of outputs: pass "
                "forward=lambda model, inputs: model(inputs)[0], or the like."
            )
        self.output_loss.check(outputs, piece.targets)
        return outputs

    def piece_loss(self, parameters: dict[str, Tensor], piece: Piece) -> Float[Tensor, ""]:
        """A micro-batch's contribution to the loss."""
        outputs = self.outputs(parameters, piece.inputs)
        if isinstance(outputs, Tensor):
            self.output_loss.check(outputs, piece.targets)
        return piece.share * self.mean_loss(outputs, piece.targets)

    def mean_loss(self, outputs: Any, targets: Any) -> Float[Tensor, ""]:
        """Evaluate the criterion on one micro-batch."""
        try:
            loss = self.criterion(outputs, targets)
        except (RuntimeError, ValueError, IndexError) as error:
            shapes = " and targets of shape ".join(
                ", ".join(str(tuple(t.shape)) for t in tensors(tree)) or "()" for tree in (outputs, targets)
            )
            raise DataError(f"the criterion failed on outputs of shape {shapes}: {_first_line(error)}") from error
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise CurvatureError(f"the criterion returned {got}; expected a scalar mean over the batch: reduction='mean'.")
        return loss.reshape(())

    def loss(self) -> Float[Tensor, ""]:
        """Loss at the present parameters, the mean over all samples."""
        parameters = self.parameters
        with differentiable_twice(self.model, self.device), torch.no_grad():
            parts = [self.piece_loss(parameters, piece) for piece in self.pieces()]
            total = torch.stack(parts).sum()
        return self._finite(total)

    def gradient(self) -> Float[Tensor, "n"]:
        """Gradient at the present parameters, flat in layout order."""
        total = torch.zeros(self.layout.size, dtype=self.dtype, device=self.device)
        with differentiable_twice(self.model, self.device):
            leaves = leaf_copies(self.parameters)
            for piece in self.pieces():
                loss = self.piece_loss(leaves, piece)
                self._finite(loss.detach())
                total += torch.cat([g.reshape(-1) for g in gradients(loss, leaves)])
        return total

    def _finite(self, loss: Tensor) -> Tensor:
        if self.check and not bool(torch.isfinite(loss)):
            check_finite_parameters(self.parameters)
            raise CurvatureError(f"the loss is {float(loss)}; expected a finite number: look at the data and the criterion.")
        return loss

    def with_data(self, pieces: list[Piece]) -> "Objective":
        """Return the same objective on other data, given as pieces, without checks."""
        other = object.__new__(Objective)
        other.__dict__.update(self.__dict__)
        other.check = False
        other.batch_source = Batches([(p.inputs, p.targets) for p in pieces])
        other._total = None
        return other

    def subsample(self, samples: float, generator: torch.Generator | None = None) -> "Objective":
        """Return the same loss on a random part of the data, drawn once: the same share of every batch, at least one row.

        `samples` is a number of rows, such as 500, or a share of them, such as 0.1. A row is what a batch has along its first
        axis: an image, a sequence. What is drawn is kept in memory, and not checked again.
        """
        share = self._share(samples)
        generator = resolve_generator(generator)
        pieces = []
        for inputs, targets in self.batches():
            size = size_of(inputs, targets)
            kept = torch.randperm(size, generator=generator)[: max(1, math.ceil(share * size - 1e-9))].sort().values
            pieces.append(Piece(picked(inputs, size, kept), picked(targets, size, kept), 1.0))
        return self.with_data(pieces)

    def _share(self, samples: float) -> float:
        whole = isinstance(samples, int) and not isinstance(samples, bool)
        if whole and samples >= 1:
            return min(1.0, samples / max(sum(size_of(x, y) for x, y in self.batches()), 1))
        if isinstance(samples, float) and 0 < samples <= 1:
            return samples
        raise DataError(f"samples is {samples!r}; expected a number of rows, such as 500, or a share of them, such as 0.1.")

    def __repr__(self) -> str:
        criterion = getattr(self.criterion, "__name__", type(self.criterion).__name__)
        return (
            f"<Objective {type(self.model).__name__}, {criterion}, {self.layout.size} parameters, {self.dtype}, {self.device}>"
        )


def leaf_copies(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fresh leaves that share the parameters' storage."""
    return {name: p.detach().requires_grad_() for name, p in parameters.items()}


def gradients(loss: Tensor, leaves: dict[str, Tensor], **options: Any) -> tuple[Tensor, ...]:
    """Gradient of the loss by each leaf; zero for leaves that it does not depend on."""
    if not loss.requires_grad:
        return tuple(torch.zeros_like(leaf) for leaf in leaves.values())
    return torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True, **options)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
