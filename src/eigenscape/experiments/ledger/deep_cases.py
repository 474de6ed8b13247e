"""Deep linear networks f(x) = W_L ... W_1 x, balanced or not, on many kinds of data, and their matrices by autograd."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vmap

from . import oracle
from .core import Profile
from .oracle import normal, orthonormal, uniform

# Widths (d_0, ..., d_L): one to four layers, bottlenecks, more inputs than width, more outputs than inputs.
SHAPES = ((3, 2), (3, 3, 3), (4, 2, 3), (2, 4, 3), (3, 1, 3), (1, 3, 1), (5, 3, 2), (2, 3, 4, 3), (3, 2, 3, 2), (2, 2, 2, 2, 2))
DATA = ("white", "raw", "shifted", "flat", "few samples")


def chain(weights: tuple[Tensor, ...], like: Tensor, size: int) -> Tensor:
    """Product `W_l ... W_1` of `weights = (W_1, ..., W_l)`; the identity of this size for none."""
    eye = torch.eye(size, dtype=torch.float64).expand(like.shape[0], size, size)
    return reduce(lambda product, W: W @ product, weights, eye)


@dataclass(frozen=True)
class Deep:
    """A batch of networks `(W_1, ..., W_L)` and data, one sample per row (the paper: per column)."""

    weights: tuple[Float[Tensor, "b out in"], ...]
    X: Float[Tensor, "b n d0"]
    Y: Float[Tensor, "b n dL"]

    @property
    def widths(self) -> tuple[int, ...]:
        """d_0, ..., d_L."""
        return self.weights[0].shape[-1], *(W.shape[-2] for W in self.weights)

    @property
    def depth(self) -> int:
        """L."""
        return len(self.weights)

    def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
        """Outputs of one network, its weights flattened row by row."""
        shapes = [W.shape[1:] for W in self.weights]
        return reduce(lambda x, W: x @ W.mT, oracle.split(theta, *shapes), X)

    def loss(self, theta: Tensor, X: Tensor, Y: Tensor) -> Tensor:
        """Half the squared error, mean over samples and summed over outputs."""
        return (self.outputs(theta, X) - Y).square().sum(-1).mean() / 2

    @cached_property
    def theta(self) -> Tensor:
        """All weights, first layer first."""
        return oracle.pack(*self.weights)

    @cached_property
    def H(self) -> Tensor:
        """Hessian by autograd."""
        return oracle.hessians(self.loss, self.theta, self.X, self.Y)

    @cached_property
    def jacobian(self) -> Float[Tensor, "b n_dL p"]:
        """Derivative of the outputs, sample by sample, by autograd."""
        return vmap(jacrev(self.outputs))(self.theta, self.X).flatten(1, 2)

    @cached_property
    def G(self) -> Tensor:
        """Gauss-Newton matrix J^T J / n."""
        return self.jacobian.mT @ self.jacobian / self.X.shape[-2]

    @cached_property
    def ntk(self) -> Tensor:
        """Tangent kernel J J^T / n."""
        return self.jacobian @ self.jacobian.mT / self.X.shape[-2]

    @cached_property
    def gradients(self) -> tuple[Tensor, ...]:
        """Gradient with respect to each weight, by autograd."""
        flat = oracle.gradients(self.loss, self.theta, self.X, self.Y)
        parts = flat.split([W[0].numel() for W in self.weights], -1)
        return tuple(g.reshape(W.shape) for g, W in zip(parts, self.weights))

    @cached_property
    def unit(self) -> Tensor:
        """Return max(1, spectral radius)."""
        return oracle.scale(self.H)

    @cached_property
    def S(self) -> Tensor:
        """E[x x^T]."""
        return self.X.mT @ self.X / self.X.shape[-2]

    @cached_property
    def C(self) -> Tensor:
        """E[y x^T]."""
        return self.Y.mT @ self.X / self.X.shape[-2]

    @cached_property
    def product(self) -> Tensor:
        """W_L ... W_1."""
        return chain(self.weights, self.X, self.widths[0])

    @cached_property
    def before(self) -> tuple[Tensor, ...]:
        """P_l = W_{l-1} ... W_1."""
        return tuple(chain(self.weights[:layer], self.X, self.widths[0]) for layer in range(self.depth))

    @cached_property
    def after(self) -> tuple[Tensor, ...]:
        """S_l = W_L ... W_{l+1}."""
        sizes = self.widths
        return tuple(chain(self.weights[layer + 1 :], self.X, sizes[layer + 1]) for layer in range(self.depth))

    @cached_property
    def variance(self) -> Tensor:
        """sigma_x^2, the first entry of E[x x^T] (white data have no other)."""
        return self.S[:, 0, 0]


def inputs(generator: torch.Generator, kind: str, b: int, n: int, d: int) -> Tensor:
    """Inputs of one kind; white ones satisfy X^T X / n = sigma^2 I with a random sigma."""
    X = normal(generator, b, n, d)
    if kind == "white":
        return n**0.5 * orthonormal(generator, b, n, d) * uniform(generator, b, 1, 1, low=0.5, high=2.0)
    if kind == "shifted":
        return X + 1.5
    if kind == "flat":
        return X[..., :1] * normal(generator, b, 1, d)
    return X[:, : max(1, d - 1)] if kind == "few samples" else X


def balanced(generator: torch.Generator, values: Float[Tensor, "b k"], widths: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Weights `U_l diag(values) U_{l-1}^T`: every layer has these singular values, W_l W_l^T = W_{l+1}^T W_{l+1}."""
    b, k = values.shape
    frames = [orthonormal(generator, b, d, d)[..., :k] for d in widths]
    return tuple(left * values.unsqueeze(-2) @ right.mT for right, left in pairwise(frames))


def factored(generator: torch.Generator, W: Float[Tensor, "b dL d0"], hidden: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Balanced weights whose product is W (its best approximation, if the hidden layers are narrower than its rank)."""
    b, dL, d0 = W.shape
    U, s, Vh = torch.linalg.svd(W, full_matrices=False)
    depth, k = len(hidden) + 1, min(d0, dL, *hidden)
    # NOTE: rounding noise must go before the root, which would make 1e-8 of 1e-16.
    root = torch.where(s > 1e-11 * s[:, :1], s, 0.0)[:, :k] ** (1 / depth)
    frames = [Vh.mT[..., :k], *(orthonormal(generator, b, d, d)[..., :k] for d in hidden), U[..., :k]]
    return tuple(left * root.unsqueeze(-2) @ right.mT for right, left in pairwise(frames))


def singular_values(generator: torch.Generator, b: int, k: int) -> Tensor:
    """Random ones; in turn with a tie, with a zero, all zero but one."""
    s, turn = uniform(generator, b, k, low=0.3, high=1.5), torch.arange(b).unsqueeze(-1) % 4
    first = torch.arange(k) == 0
    s = torch.where(turn == 1, s[:, :1], torch.where((turn == 2) & (torch.arange(k) == k - 1) & (k > 1), 0.0, s))
    return torch.where((turn == 3) & ~first, 0.0, s)


def cases(
    generator: torch.Generator, profile: Profile, data: tuple[str, ...] = DATA, even: bool = False, deep: int = 1
) -> Iterator[Deep]:
    """One batch per shape of at least `deep` layers and kind of data, balanced weights if `even`, random ones otherwise."""
    for widths in SHAPES:
        if len(widths) <= deep:
            continue
        b, n = 4 * profile.batch, 6
        for kind in data:
            X = inputs(generator, kind, b, n, widths[0])
            if even:
                weights = balanced(generator, singular_values(generator, b, min(widths)), widths)
            else:
                weights = tuple(normal(generator, b, o, i) / 1.5 for i, o in pairwise(widths))
            yield Deep(weights, X, normal(generator, b, X.shape[-2], widths[-1]))


def minima(
    generator: torch.Generator, profile: Profile, data: tuple[str, ...] = DATA, noise: float = 1.0, narrow: bool = False
) -> Iterator[Deep]:
    """Balanced global minima, built from least squares; `narrow` keeps bottlenecks too narrow for the solution."""
    for widths in SHAPES:
        b, n = 4 * profile.batch, 6
        wide = min(widths) == min(widths[0], widths[-1])
        if len(widths) < 3 or (not wide and not narrow):
            continue
        for kind in data:
            X = inputs(generator, kind, b, n, widths[0])
            truth = normal(generator, b, widths[-1], widths[0])
            Y = X @ truth.mT + noise * normal(generator, b, X.shape[-2], widths[-1])
            best = (torch.linalg.pinv(X) @ Y).mT
            yield Deep(factored(generator, best, widths[1:-1]), X, Y)


def spread(a: Tensor, b: Tensor, depth: int) -> Tensor:
    """sum_l a^(2(L-l)) b^(2(l-1)) for singular values a, b of one balanced layer, with 0^0 = 1."""
    return torch.stack([a ** (2 * (depth - 1 - k)) * b ** (2 * k) for k in range(depth)]).sum(0)


def padded(values: Float[Tensor, "b k"], size: int) -> Float[Tensor, "b size"]:
    """Values followed by zeros."""
    return torch.cat([values, values.new_zeros(len(values), max(size - values.shape[-1], 0))], -1)


def nonzero_gap(claimed: Float[Tensor, "b q"], H: Float[Tensor, "b p p"]) -> Tensor:
    """Largest distance between two spectra, the shorter one filled up with zeros."""
    true = torch.linalg.eigvalsh(H)
    size = max(true.shape[-1], claimed.shape[-1])
    claimed, true = (padded(t, size).sort(-1).values for t in (claimed, true))
    return (claimed - true).abs().amax(-1) / true.abs().amax(-1).clamp(min=1.0)


def count_nonzero(H: Float[Tensor, "b p p"]) -> Tensor:
    """Number of eigenvalues above rounding."""
    true = torch.linalg.eigvalsh(H).abs()
    return (true > 1e-9 * true.amax(-1, keepdim=True)).sum(-1)


def rank(W: Tensor) -> Tensor:
    """Number of singular values above rounding."""
    return torch.linalg.matrix_rank(W, rtol=1e-9)


def top(H: Tensor) -> Tensor:
    """Largest eigenvalue."""
    return torch.linalg.eigvalsh(H)[..., -1]


def root(S: Float[Tensor, "b d d"]) -> Float[Tensor, "b d d"]:
    """Symmetric square root."""
    values, vectors = torch.linalg.eigh(S)
    return vectors * values.clamp(min=0.0).sqrt().unsqueeze(-2) @ vectors.mT


def kron(A: Tensor, B: Tensor) -> Tensor:
    """Kronecker products of a batch."""
    return torch.einsum("bij,bkl->bikjl", A, B).reshape(len(A), A.shape[1] * B.shape[1], -1)
