"""Two-layer linear networks f(x) = W V x with several inputs and outputs, and their Hessian by autograd."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from . import oracle
from .core import Profile
from .oracle import kind_mask, normal

# (D, K, M)
SHAPES = ((1, 1, 1), (1, 1, 4), (2, 1, 3), (3, 1, 5), (1, 3, 4), (2, 2, 2), (2, 2, 5), (3, 2, 2), (2, 3, 4), (4, 2, 1))
KINDS = (
    "random", "solved", "W = 0", "V = 0", "W = V^T", "flat W", "flat V", "flat X", "shifted", "large X",
    "rank-one residual", "equal singular values",
)  # fmt: skip
Criterion = Callable[[Tensor, Tensor], Tensor]


def half_mse(outputs: Tensor, Y: Tensor) -> Tensor:
    """Half the squared error, mean over samples and summed over outputs."""
    return (outputs - Y).square().sum(-1).mean() / 2


def loss_of(criterion: Criterion, K: int, M: int, D: int) -> oracle.Loss:
    """Loss of W V x with theta = (V, W), row-major."""

    def loss(theta: Tensor, X: Tensor, Y: Tensor) -> Tensor:
        V, W = oracle.split(theta, (M, D), (K, M))
        return criterion(X @ V.T @ W.T, Y)

    return loss


@dataclass(frozen=True)
class TwoLayer:
    """A batch of networks W V x and data, one sample per row."""

    W: Float[Tensor, "b K M"]
    V: Float[Tensor, "b M D"]
    X: Float[Tensor, "b n D"]
    Y: Float[Tensor, "b n K"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Outputs, width, inputs."""
        return self.W.shape[-2], self.W.shape[-1], self.V.shape[-1]

    @cached_property
    def theta(self) -> Tensor:
        """Parameters in the order (V, W), row-major."""
        return oracle.pack(self.V, self.W)

    @cached_property
    def H(self) -> Tensor:
        """Hessian by autograd."""
        return oracle.hessians(loss_of(half_mse, *self.sizes), self.theta, self.X, self.Y)

    @cached_property
    def G(self) -> Tensor:
        """Gauss-Newton matrix by autograd."""
        K, M, D = self.sizes

        def outputs(theta: Tensor, X: Tensor) -> Tensor:
            V, W = oracle.split(theta, (M, D), (K, M))
            return X @ V.T @ W.T

        return oracle.gauss_newton(outputs, self.theta, self.X)

    @cached_property
    def unit(self) -> Tensor:
        """Return max(1, spectral radius)."""
        return oracle.scale(self.H)

    @cached_property
    def S(self) -> Tensor:
        """E[x x^T]."""
        return self.X.mT @ self.X / self.X.shape[-2]

    @cached_property
    def omega(self) -> Tensor:
        """Derivative of the loss with respect to the product, E[delta x^T]."""
        return (self.X @ (self.W @ self.V).mT - self.Y).mT @ self.X / self.X.shape[-2]


def draw(generator: torch.Generator, batch: int, D: int, K: int, M: int, n: int) -> TwoLayer:
    """Random cases, kinds in turn."""
    W, V, X, Y = (normal(generator, batch, *s) for s in ((K, M), (M, D), (n, D), (n, K)))

    def where(name: str, changed: Tensor, old: Tensor) -> Tensor:
        return torch.where(kind_mask(batch, KINDS, name)[:, None, None], changed, old)

    if K == D:
        W = where("W = V^T", V.mT, W)
    W = where("W = 0", 0 * W, where("flat W", W[:, :1].expand_as(W), W))
    V = where("V = 0", 0 * V, where("flat V", V[:, :, :1].expand_as(V), V))
    X = where("flat X", X[:, :, :1].expand_as(X), where("shifted", X + 2, where("large X", 10 * X, X)))
    X = where("equal singular values", X.new_ones(()) * oracle.orthonormal(generator, batch, n, D), X)
    fit = X @ (W @ V).mT
    Y = where("solved", fit, where("rank-one residual", fit + Y[:, :, :1], Y))
    equal = fit - n**0.5 * (X @ torch.eye(D, K, dtype=torch.float64))
    return TwoLayer(W, V, X, where("equal singular values", equal, Y))


def cases(generator: torch.Generator, profile: Profile, n: int = 6) -> Iterator[TwoLayer]:
    """One batch per shape, every kind in each; and one with a single sample."""
    for D, K, M in SHAPES:
        yield draw(generator, profile.batch * len(KINDS), D, K, M, n)
    yield draw(generator, profile.batch * len(KINDS), 2, 2, 3, 1)


def whitened(generator: torch.Generator, case: TwoLayer) -> TwoLayer:
    """The same networks on inputs with E[x x^T] = I."""
    b, n, D = case.X.shape
    return TwoLayer(case.W, case.V, n**0.5 * oracle.orthonormal(generator, b, n, D), case.Y)


def norms(W: Tensor) -> Tensor:
    """Squared spectral norms."""
    return torch.linalg.matrix_norm(W, 2) ** 2
