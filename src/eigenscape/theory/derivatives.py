"""First and second derivatives of a loss with respect to the outputs of the network, sample by sample."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import TheoryError
from .moments import check_finite

Derivatives = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps outputs (*batch, n, K) and targets to the gradient (*batch, n, K) and the curvature (*batch, n, K, K) of each sample's
loss; a curvature h I may be given as the 0-d tensor h. The loss of the network is the mean over samples."""


def half_mse(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Differentiate `|f - y|^2 / 2`, the loss of the papers.

    >>> half_mse(torch.tensor([[3.0]]), torch.tensor([[1.0]]))
    (tensor([[2.]]), tensor(1.))
    """
    _check_real("Y", targets, outputs)
    return outputs - targets, outputs.new_ones(())


def mse(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Differentiate `|f - y|^2 / K`, which `torch.nn.functional.mse_loss` averages over samples.

    >>> mse(torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    (tensor([[2., 0.]]), tensor(1.))
    """
    d1, d2 = half_mse(outputs, targets)
    return d1 * (2 / outputs.shape[-1]), d2 * (2 / outputs.shape[-1])


def cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Differentiate `-sum_k q_k log softmax(f)_k`; targets are classes (*batch, n) or probabilities q (*batch, n, K).

    >>> d1, d2 = cross_entropy(torch.zeros(1, 2), torch.tensor([0]))
    >>> d1.tolist(), d2.tolist()
    ([[-0.5, 0.5]], [[[0.25, -0.25], [-0.25, 0.25]]])
    """
    n, K = outputs.shape[-2:]
    if targets.is_floating_point():
        _check_real("Y", targets, outputs)
        q = targets
    else:
        if targets.dtype == torch.bool or targets.ndim < 1 or targets.shape[-1] != n:
            raise TheoryError(
                f"Y has shape {tuple(targets.shape)} and dtype {targets.dtype}; expected integer classes ({n},) "
                f"or probabilities ({n}, {K})."
            )
        low, high = int(targets.min()), int(targets.max())
        if low < 0 or high >= K:
            raise TheoryError(
                f"Y holds class {low if low < 0 else high}; expected classes from 0 to {K - 1}, as W has {K} rows."
            )
        q = torch.nn.functional.one_hot(targets.long(), K).to(outputs.dtype)
    p, mass = outputs.softmax(-1), q.sum(-1, keepdim=True)
    return mass * p - q, mass.unsqueeze(-1) * (torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2))


LOSSES: dict[str, Derivatives] = {"half_mse": half_mse, "mse": mse, "cross_entropy": cross_entropy}


def _check_real(name: str, targets: Tensor, outputs: Tensor) -> None:
    """Refuse targets that are not one real number per output."""
    if targets.shape[-2:] != outputs.shape[-2:]:
        n, K = outputs.shape[-2:]
        raise TheoryError(f"{name} has shape {tuple(targets.shape)}; expected (..., {n}, {K}), one row per row of X.")


def derivatives_at(
    loss: str | Derivatives, outputs: Float[Tensor, "*batch n K"], targets: Tensor
) -> tuple[Float[Tensor, "*batch n K"], Tensor]:
    """Evaluate the derivatives of a named loss, or of one given as a function, and check them.

    >>> derivatives_at("hinge", torch.zeros(1, 1), torch.zeros(1, 1))
    Traceback (most recent call last):
        ...
    eigenscape.core.errors.TheoryError: loss is 'hinge'; expected one of half_mse, mse, cross_entropy, or a function
    (outputs, targets) -> (d1, d2).
    """
    if isinstance(loss, str) and loss not in LOSSES:
        raise TheoryError(
            f"loss is {loss!r}; expected one of {', '.join(LOSSES)}, or a function (outputs, targets) -> (d1, d2)."
        )
    if not isinstance(targets, Tensor):
        raise TheoryError(f"Y is a {type(targets).__name__}; expected a tensor: torch.as_tensor(Y).")
    if targets.device != outputs.device:
        raise TheoryError(f"Y is on {targets.device} and the weights on {outputs.device}; expected one device: Y.to(W.device).")
    if targets.is_floating_point():
        targets = targets.to(outputs.dtype)
        check_finite(Y=targets)
    d1, d2 = (LOSSES[loss] if isinstance(loss, str) else loss)(outputs, targets)
    n, K = outputs.shape[-2:]
    if d1.shape[-2:] != (n, K) or (d2.ndim > 0 and d2.shape[-3:] != (n, K, K)):
        raise TheoryError(
            f"the loss returned derivatives of shapes {tuple(d1.shape)} and {tuple(d2.shape)}; "
            f"expected (..., {n}, {K}) and (..., {n}, {K}, {K})."
        )
    check_finite(d1=d1, d2=d2)
    return d1, d2
