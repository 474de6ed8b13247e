"""The data of an objective in output space: inputs, outputs, and the derivatives of each sample's loss, in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..core import NotRecognised
from ..curvature import Objective
from ..curvature.criteria import Bernoulli, CrossEntropy, Squared
from ..curvature.objective import Piece
from .recognise_layers import check_plain

MOST = 50_000_000  # entries of all curvatures together, 0.4 GB
LOSSES = "expected MSELoss, half_mse, CrossEntropyLoss or BCEWithLogitsLoss"


@dataclass(frozen=True, eq=False)
class Samples:
    """The loss is a mean over n samples; sample i has the gradient `d1[i]` and the curvature `d2[i]` in output space.

    A curvature h I that all samples share is the 0-d tensor h. Weights, ignored targets and label smoothing are inside.
    """

    X: Float[Tensor, "n D"]
    outputs: Float[Tensor, "n K"]
    d1: Float[Tensor, "n K"]
    d2: Tensor

    @property
    def quadratic(self) -> bool:
        """Whether the loss is `h |f - y|^2 / 2` with one h for all samples."""
        return self.d2.ndim == 0

    @property
    def Y(self) -> Float[Tensor, "n K"]:
        """Targets of a quadratic loss."""
        return self.outputs - self.d1 / self.d2

    def derivatives(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivatives, in the form that closed forms take a loss in."""
        return self.d1, self.d2


def check_loss(obj: Objective) -> None:
    """Refuse criteria that are not known to treat samples one by one."""
    if not isinstance(obj.output_loss, Squared | CrossEntropy | Bernoulli):
        name = getattr(obj.criterion, "__name__", type(obj.criterion).__name__)
        raise NotRecognised(f"the criterion {name} has no closed form here; {LOSSES}.")
    if isinstance(obj.criterion, nn.Module):
        check_plain(obj.criterion)


def read_samples(obj: Objective, outputs_of: Callable[[Tensor], Tensor], *, flat: bool = False) -> Samples:
    """Collect all micro-batches; `outputs_of` is the recognised network in float64, checked against the model's outputs."""
    inputs, outputs, gradients, curvatures = [], [], [], []
    for piece in obj.pieces():
        X = _inputs(piece.inputs, flat)
        f = outputs_of(X)
        _check_outputs(obj, piece, f)
        targets = _double(piece.targets)
        obj.output_loss.check(f, targets)
        _check_memory(obj, f)
        d1, d2 = _derivatives(obj, f, targets, piece.share)
        for rows, part in zip((inputs, outputs, gradients, curvatures), (X, f, d1, d2)):
            rows.append(part)
    widths = sorted({X.shape[1] for X in inputs})
    if len(widths) > 1:
        raise NotRecognised(f"batches have inputs of widths {widths}; expected one width: analyse them one by one.")
    X, f, d1, d2 = (torch.cat(rows) for rows in (inputs, outputs, gradients, curvatures))
    return Samples(X, f, len(X) * d1, _shared(len(X) * d2, f.shape[-1]))


def _inputs(given: Any, flat: bool) -> Float[Tensor, "n D"]:
    if not isinstance(given, Tensor):
        raise NotRecognised(f"the inputs are a {type(given).__name__}; expected one tensor of shape (samples, features).")
    X = given.flatten(1) if flat and given.ndim > 1 else given
    if X.ndim != 2:
        raise NotRecognised(f"the inputs have shape {tuple(given.shape)}; expected (samples, features).")
    return X.double()


def _double(targets: Any) -> Any:
    return targets.double() if isinstance(targets, Tensor) and targets.is_floating_point() else targets


def _check_outputs(obj: Objective, piece: Piece, f: Tensor) -> None:
    """The layers that were read must give what the model gives."""
    with torch.no_grad():
        seen = obj.outputs(obj.parameters, piece.inputs)
    eps = torch.finfo(obj.dtype).eps
    if not isinstance(seen, Tensor) or seen.shape != f.shape:
        got = f"shape {tuple(seen.shape)}" if isinstance(seen, Tensor) else f"a {type(seen).__name__}"
        raise NotRecognised(f"the model returned {got}; expected outputs of shape {tuple(f.shape)}, as its layers give.")
    gap, size = float((seen.double() - f).abs().max()), float(f.abs().max())
    if gap > 1e4 * eps * max(size, 1.0):
        raise NotRecognised(f"the layers that were read differ from the model's outputs by {gap:.2g}; expected the same.")


def _derivatives(obj: Objective, f: Tensor, targets: Any, share: float) -> tuple[Tensor, Tensor]:
    """Gradient (n, K) and curvature (n, K, K), or (n,) for multiples of I, of `share` times the criterion, row by row."""
    rows, shares = obj.output_loss.scores(f, targets)
    d1 = (rows * shares.unsqueeze(-1)).reshape(f.shape)
    product = obj.output_loss.hessian(f, targets)
    if isinstance(obj.output_loss, Squared):  # h I for each sample: h is enough
        return share * d1.detach(), share * product(torch.ones_like(f))[:, 0].detach()
    units = torch.eye(f.shape[-1], dtype=f.dtype, device=f.device)
    d2 = torch.stack([product(unit.expand_as(f).contiguous()) for unit in units], -1)
    return share * d1.detach(), share * d2.detach()


def _check_memory(obj: Objective, f: Tensor) -> None:
    size = obj.num_samples * f.shape[-1] ** 2
    if size > MOST and not isinstance(obj.output_loss, Squared):
        raise NotRecognised(
            f"{obj.num_samples:g} samples with {f.shape[-1]} outputs have {size:.2g} second derivatives; expected at most "
            f"{MOST:.0e}: fewer samples, or es.eigsh(es.hessian(obj))."
        )


def _shared(d2: Tensor, outputs: int) -> Tensor:
    """The number h where every sample has the curvature h I up to rounding, the matrices (n, K, K) otherwise."""
    eye = torch.eye(outputs, dtype=d2.dtype, device=d2.device)
    h = d2.flatten()[0]
    gap = (d2 - h * eye if d2.ndim == 3 else d2 - h).abs().max()
    if bool(h > 0) and bool(gap <= 1e-14 * h):
        return h
    return d2 if d2.ndim == 3 else d2[:, None, None] * eye
