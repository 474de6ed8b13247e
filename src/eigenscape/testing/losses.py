"""Losses whose Hessian at one point is a given matrix, and nowhere else."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..core import DataError
from ..curvature import Objective


def _checked(H: Tensor) -> Tensor:
    if H.ndim != 2 or H.shape[0] != H.shape[1] or not torch.equal(H, H.mT):
        raise DataError(
            f"H has shape {tuple(H.shape)} or is not symmetric; expected a symmetric (n, n) tensor: (H + H.mT) / 2."
        )
    return H


def loss_with_hessian(H: Float[Tensor, "n n"], at: Float[Tensor, "n"]) -> Callable[[Float[Tensor, "n"]], Float[Tensor, ""]]:
    """Return a nonlinear loss with Hessian H at one point: `d^T H d / 2 + sum d^3 + sum d`, where d is the step from there.

    >>> H = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> torch.autograd.functional.hessian(loss_with_hessian(H, torch.ones(2)), torch.ones(2))
    tensor([[2., 1.],
            [1., 3.]])
    """
    H = _checked(H)

    def loss(t: Tensor) -> Tensor:
        d = t - at
        return 0.5 * d @ H @ d + d.pow(3).sum() + d.sum()

    return loss


class _Quadratic(nn.Module):
    """One output per sample, `x` times the loss: the mean over samples has the Hessian wanted if the x average to 1."""

    H: Tensor
    at: Tensor

    def __init__(self, H: Tensor):
        super().__init__()
        at = torch.linspace(-1, 1, len(H), dtype=H.dtype, device=H.device)
        self.t = nn.Parameter(at.clone())
        self.register_buffer("H", H)
        self.register_buffer("at", at)

    def forward(self, x: Tensor) -> Tensor:
        return x * loss_with_hessian(self.H, self.at)(self.t)


def objective_with_hessian(H: Float[Tensor, "n n"]) -> Objective:
    """Return an objective whose Hessian at its present parameters is H; its data are two uneven batches.

    >>> from eigenscape.curvature import hessian
    >>> hessian(objective_with_hessian(torch.diag(torch.tensor([1.0, 2.0])))) @ torch.ones(2)
    tensor([1., 2.])
    """
    x = torch.tensor([0.5, 1.5, 1.0], dtype=H.dtype, device=H.device)
    data = [(part, torch.zeros_like(part)) for part in (x[:2], x[2:])]
    return Objective(_Quadratic(_checked(H)), lambda outputs, _: outputs.mean(), data)
