"""The scalar networks and their data, as functions that autograd can differentiate twice."""

import torch
from jaxtyping import Float
from torch import Tensor

from ...ledger.oracle import normal, uniform

WEDGES = {"V": (1.0, -1.0), "slanted": (2.0, -0.5), "between lines": None}
"""Slopes right and left of zero. The papers name a "synthetic wedge" and do not describe it."""


def default_weights(width: int, generator: torch.Generator) -> Float[Tensor, "two_m"]:
    """Draw `(v; w)` as `nn.Linear` does: v uniform in +-1, w in `+-1/sqrt(m)`.

    >>> default_weights(3, torch.Generator().manual_seed(0)).shape
    torch.Size([6])
    """
    v, w = uniform(generator, width, low=-1.0), uniform(generator, width, low=-1.0)
    return torch.cat([v, w / width**0.5])


def wedge(kind: str, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw x from a standard normal, with its mirror image, and y from two half-lines, or from between two lines through zero.

    >>> x, y = wedge("V", 4, torch.Generator().manual_seed(0))
    >>> torch.equal(y, x.abs())
    True
    """
    half = normal(generator, samples // 2)
    x = torch.cat([half, -half])
    slopes = WEDGES[kind]
    if slopes is None:
        return x, x * uniform(generator, len(x), low=0.5, high=1.5)
    return x, torch.where(x > 0, slopes[0], slopes[1]) * x


def linear(theta: Float[Tensor, "two_m"], x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """`<w, v> x`."""
    v, w = theta.chunk(2)
    return (w @ v) * x


def relu(theta: Float[Tensor, "two_m"], x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """`w . relu(v x)`."""
    v, w = theta.chunk(2)
    return torch.relu(torch.outer(x, v)) @ w


NETS = {"linear": linear, "relu": relu}


def loss(net: str):
    """Half the mean squared error of a network, as a function of (theta, x, y)."""
    outputs = NETS[net]
    return lambda theta, x, y: (outputs(theta, x) - y).square().mean() / 2
