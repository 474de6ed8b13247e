"""What a criterion does in output space: how batches weigh, its Hessian, gradients per datum, and sampled targets.

The whole-set loss is `sum_b w_b l_b / sum_b w_b` where `l_b` is the criterion's mean over batch b and `w_b` the weight that
this mean divides by: samples, elements, or tokens that are not ignored.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import CurvatureError, DataError, random_like, resolve_generator
from . import losses
from .nested import leading, tensors

OutputMap = Callable[[Tensor], Tensor]
Scores = tuple[Float[Tensor, "data c"], Float[Tensor, "data"]]


class OutputLoss(ABC):
    """A criterion, seen from the outputs."""

    def __init__(self, criterion: Any):
        self.criterion = criterion

    def weight(self, targets: Any, inputs: Any) -> float | None:
        """Weight of a batch in the whole-set mean, from its targets; None when it cannot be known."""
        size = leading(targets)
        return float(size if size is not None else leading(inputs) or 1)

    def check(self, outputs: Tensor, targets: Any) -> None:  # noqa: B027
        """Refuse outputs and targets that would broadcast silently; most criteria do so themselves."""

    @abstractmethod
    def hessian(self, outputs: Tensor, targets: Any) -> OutputMap:
        """Return the product with the criterion's Hessian with respect to the outputs (of the batch mean)."""

    def scores(self, outputs: Tensor, targets: Any) -> Scores:
        """Gradient of each datum's loss in output space, one row per datum, and each datum's share of the batch mean."""
        z = outputs.detach().requires_grad_()
        with torch.enable_grad():
            (g,) = torch.autograd.grad(self.criterion(z, targets), z)
        rows = self.rows(g)
        return rows * rows.shape[0], torch.full_like(rows[:, 0], 1 / rows.shape[0])

    def sampled_scores(self, outputs: Tensor, targets: Any, generator: torch.Generator) -> Scores:
        """The same with targets drawn from the model's own distribution."""
        raise CurvatureError(
            f"criterion {_name(self.criterion)} has no known likelihood to sample from; expected cross-entropy, a squared "
            'loss or BCE with logits, or kind="exact" | "empirical".'
        )

    def rows(self, outputs: Tensor) -> Tensor:
        """Outputs as one row per datum."""
        return outputs.reshape(leading(outputs) or 1, -1)

    def unrows(self, rows: Tensor, like: Tensor) -> Tensor:
        """Invert `rows`."""
        return rows.reshape(like.shape)


class Squared(OutputLoss):
    """`scale * |f - y|^2`: torch's mean over all elements, or the papers' half mean over samples."""

    def _scale(self, outputs: Tensor) -> float:
        """Second derivative of the batch mean with respect to one output."""
        return 1.0 / outputs.shape[0] if self.criterion is losses.half_mse else 2.0 / outputs.numel()

    def check(self, outputs, targets):
        """Refuse shapes that differ: the loss would broadcast them."""
        if not isinstance(targets, Tensor) or outputs.shape != targets.shape:
            got = tuple(targets.shape) if isinstance(targets, Tensor) else f"a {type(targets).__name__}"
            raise DataError(
                f"the outputs have shape {tuple(outputs.shape)} and the targets {got}; expected equal shapes, because a "
                "squared loss would broadcast them: targets.reshape(outputs.shape)."
            )

    def hessian(self, outputs, targets):
        """Multiply by a constant."""
        scale = self._scale(outputs)
        return lambda dz: scale * dz

    def sampled_scores(self, outputs, targets, generator):
        """Draw from the Gaussian whose negative log-likelihood is the loss of a sample: scores are Gaussian too."""
        n = outputs.shape[0]
        noise = random_like(outputs.shape, generator, dtype=outputs.dtype, device=outputs.device)
        rows = self.rows((self._scale(outputs) * n) ** 0.5 * noise)
        return rows, torch.full_like(rows[:, 0], 1 / n)


class Bernoulli(OutputLoss):
    """Binary cross-entropy with logits, a datum per element."""

    def _shares(self, targets: Tensor) -> Tensor:
        """Weight of each element in the batch mean, `w (1 + (pos_weight - 1) y) / count`."""
        share = torch.full_like(targets, 1 / targets.numel())
        weight, pos = getattr(self.criterion, "weight", None), getattr(self.criterion, "pos_weight", None)
        share = share if weight is None else share * weight
        return share if pos is None else share * (1 + (pos - 1) * targets)

    def check(self, outputs, targets):
        """Refuse shapes that differ."""
        if isinstance(targets, Tensor) and outputs.shape != targets.shape:
            raise DataError(
                f"the outputs have shape {tuple(outputs.shape)} and the targets {tuple(targets.shape)}; expected equal "
                "shapes: targets.reshape(outputs.shape)."
            )

    def hessian(self, outputs, targets):
        """Multiply elementwise by p (1 - p), weighted."""
        p = torch.sigmoid(outputs.detach())
        curvature = self._shares(targets) * p * (1 - p)
        return lambda dz: curvature * dz

    def rows(self, outputs):
        """One element per row."""
        return outputs.reshape(-1, 1)

    def sampled_scores(self, outputs, targets, generator):
        """Draw coin flips with the model's probabilities."""
        p = self.rows(torch.sigmoid(outputs.detach()))
        u = torch.rand(p.shape, generator=generator, dtype=torch.float64, device=generator.device).to(p.device)
        return p - (u < p).to(p.dtype), self.rows(self._shares(targets))[:, 0]


class CrossEntropy(OutputLoss):
    """Softmax cross-entropy, a datum per target that is not ignored; class indices or probabilities."""

    def __init__(
        self,
        criterion: Any,
        *,
        ignore_index: int = losses.IGNORE_INDEX,
        class_weight: Tensor | None = None,
        smoothing: float = 0.0,
        shift: bool = False,
    ):
        super().__init__(criterion)
        self.ignore_index, self.class_weight, self.smoothing, self.shift = ignore_index, class_weight, smoothing, shift

    def weight(self, targets, inputs):
        """Sum of the (class) weights of the targets that count."""
        if not isinstance(targets, Tensor) or targets.is_floating_point():
            return None if not isinstance(targets, Tensor) else float(targets.numel() / targets.shape[min(1, targets.ndim - 1)])
        return float(self._datum_weights(targets[:, 1:] if self.shift else targets).sum())

    def _datum_weights(self, targets: Tensor) -> Tensor:
        """Weight of each target in the mean's denominator."""
        kept = targets != self.ignore_index
        if self.class_weight is None:
            return kept.to(torch.float64)
        w = self.class_weight.to(targets.device, torch.float64)
        return torch.where(kept, w[torch.where(kept, targets, 0)], 0.0)

    def rows(self, outputs):
        """One row of logits per target."""
        if self.shift:
            outputs = outputs[:, :-1]
        elif outputs.ndim > 2:
            outputs = outputs.movedim(1, -1)
        return outputs.reshape(-1, outputs.shape[-1])

    def unrows(self, rows, like):
        """Put rows back where the logits were; positions without a target get zero."""
        if self.shift:
            return F.pad(rows.reshape(like.shape[0], like.shape[1] - 1, like.shape[2]), (0, 0, 0, 1))
        if like.ndim > 2:
            return rows.reshape(like.shape[0], *like.shape[2:], like.shape[1]).movedim(-1, 1)
        return rows.reshape(like.shape)

    def _labels(self, targets: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Target distribution of each row times its class weights, and each row's share of the batch mean."""
        c = like.shape[-1]
        w = torch.ones(c, device=like.device) if self.class_weight is None else self.class_weight.to(like.device)
        w = w.to(like.dtype)
        if targets.is_floating_point():
            y = self.rows(targets)
            return ((1 - self.smoothing) * y + self.smoothing / c) * w, torch.full_like(y[:, 0], 1 / y.shape[0])
        flat = (targets[:, 1:] if self.shift else targets).reshape(-1)
        kept = flat != self.ignore_index
        hot = F.one_hot(torch.where(kept, flat, 0), c).to(like.dtype)
        y = ((1 - self.smoothing) * hot + self.smoothing / c) * w
        return y, kept.to(like.dtype) / self._datum_weights(flat).sum().to(like.dtype)

    def hessian(self, outputs, targets):
        """Multiply by `a (diag(p) - p p^T)` in each row, where a is the row's total target weight."""
        z = self.rows(outputs.detach())
        p = z.softmax(-1)
        y, share = self._labels(targets, z)
        a = (share * y.sum(-1)).unsqueeze(-1)

        def product(dz: Tensor) -> Tensor:
            d = self.rows(dz)
            return self.unrows(a * p * (d - (p * d).sum(-1, keepdim=True)), outputs)

        return product

    def scores(self, outputs, targets):
        """Gradient `p - y` of each row (y normalised), weighted by the row's total target weight."""
        p = self.rows(outputs.detach()).softmax(-1)
        y, share = self._labels(targets, p)
        total = y.sum(-1)
        return p - y / total.clamp_min(torch.finfo(y.dtype).tiny).unsqueeze(-1), share * total

    def sampled_scores(self, outputs, targets, generator):
        """Draw a class per row by inverting the cumulative distribution."""
        p = self.rows(outputs.detach()).softmax(-1)
        u = torch.rand(p.shape[0], 1, generator=generator, dtype=torch.float64, device=generator.device).to(p.device)
        drawn = (p.double().cumsum(-1) < u).sum(-1).clamp(max=p.shape[-1] - 1)
        y, share = self._labels(targets, p)
        return p - F.one_hot(drawn, p.shape[-1]).to(p.dtype), share * y.sum(-1)


class Generic(OutputLoss):
    """Any other criterion, differentiated twice by autograd in output space."""

    def weight(self, targets, inputs):
        """Samples, or targets that an `ignore_index` attribute does not exclude; None where that is not known."""
        index = getattr(self.criterion, "ignore_index", None)
        for t in tensors(targets):
            if not t.is_floating_point() and not t.is_complex() and t.dtype != torch.bool:
                if index is not None:
                    return float((t != index).sum())
                if bool((t < 0).any()):
                    return None
        return super().weight(targets, inputs)

    def hessian(self, outputs, targets):
        """Differentiate the criterion twice."""
        z = outputs.detach().requires_grad_()
        with torch.enable_grad():
            (g,) = torch.autograd.grad(self.criterion(z, targets), z, create_graph=True)

        def product(dz: Tensor) -> Tensor:
            return torch.autograd.grad(g, z, dz, retain_graph=True, allow_unused=True, materialize_grads=True)[0]

        probe = random_like(z.shape, resolve_generator(None), dtype=z.dtype, device=z.device)
        if not g.requires_grad or not bool(product(probe).any()):
            raise CurvatureError(
                f"criterion {_name(self.criterion)} is linear in the model's outputs, so its GGN is zero; expected one that "
                "curves, such as CrossEntropyLoss on logits in place of NLLLoss on log-probabilities."
            )
        return product


def _name(criterion: Any) -> str:
    return getattr(criterion, "__name__", type(criterion).__name__)


def output_loss(criterion: Any) -> OutputLoss:
    """Recognise a criterion; anything unknown is differentiated by autograd."""
    if not callable(criterion):
        raise CurvatureError(
            f"criterion is a {type(criterion).__name__}; expected a function (outputs, targets) -> scalar mean, such as "
            "torch.nn.CrossEntropyLoss()."
        )
    reduction = getattr(criterion, "reduction", "mean")
    keywords: dict[str, Any] = {}
    base: Any = criterion
    if isinstance(criterion, functools.partial) and not criterion.args:
        base, keywords = criterion.func, dict(criterion.keywords)
        reduction = keywords.pop("reduction", "mean")
    if reduction != "mean":
        raise CurvatureError(
            f"criterion {_name(base)} has reduction={reduction!r}; expected the scalar mean over the batch: reduction='mean'."
        )
    if base is losses.next_token:
        return CrossEntropy(criterion, shift=True)
    if base is F.cross_entropy and set(keywords) <= {"weight", "ignore_index", "label_smoothing"}:
        return CrossEntropy(
            criterion,
            ignore_index=keywords.get("ignore_index", losses.IGNORE_INDEX),
            class_weight=keywords.get("weight"),
            smoothing=keywords.get("label_smoothing", 0.0),
        )
    if type(base) is nn.CrossEntropyLoss:
        return CrossEntropy(base, ignore_index=base.ignore_index, class_weight=base.weight, smoothing=base.label_smoothing)
    if type(base) is nn.MSELoss or (base in (F.mse_loss, losses.half_mse) and not keywords):
        return Squared(criterion)
    if type(base) is nn.BCEWithLogitsLoss or (base is F.binary_cross_entropy_with_logits and not keywords):
        return Bernoulli(criterion)
    return Generic(criterion)
