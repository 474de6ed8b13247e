"""Dense Hessians of linear chains by automatic differentiation: what the closed forms are set against."""

from collections.abc import Sequence
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from ..cracking.brute import hessian_eigenvalues

COLUMNS = 256  # of a Hessian that are formed at a time


def chain_eigenvalues(
    weights: Sequence[Tensor], X: Float[Tensor, "n d0"], Y: Float[Tensor, "n dL"], device: torch.device | str = "cpu"
) -> Float[Tensor, "p"]:
    """All eigenvalues, ascending, of the Hessian of half the mean squared error of `W_L ... W_1 x`.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> chain_eigenvalues([2 * one, 3 * one], one, 6 * one).tolist()
    [0.0, 13.0]
    """
    shapes = [W.shape for W in weights]
    X, Y = X.to(device), Y.to(device)

    def loss(theta: Tensor) -> Tensor:
        outputs = X
        for part, shape in zip(theta.split([prod(shape) for shape in shapes]), shapes):
            outputs = outputs @ part.reshape(shape).mT
        return (outputs - Y).square().sum() / (2 * len(X))

    theta = torch.cat([W.detach().flatten() for W in weights]).to(device)
    return hessian_eigenvalues(loss, theta, columns=COLUMNS).cpu()
