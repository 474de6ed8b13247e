"""Random and degenerate two-layer networks, and their Hessians by autograd."""

import torch
from hypothesis import strategies as st
from strategies import normal, pick, random_stream
from torch import Tensor
from torch.func import jacrev, vmap
from torch.nn import functional as F

from eigenscape.theory.factors import FactorLayout

sizes = st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 7, 9]), st.integers(1, 4), st.integers(1, 6))  # K, m, D, n
biases = st.sampled_from([(False, False), (True, False), (False, True), (True, True)])


def eye(rows, columns):
    return torch.eye(rows, columns, dtype=torch.float64)


def several(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Standard normal tensors, one after the other from one stream."""
    g = random_stream(seed)
    return [normal(g, *shape) for shape in shapes]


def rank_one(A):
    return A[:, :1] @ A[:1]


def equal_singular_values(A):
    return torch.linalg.svd(A, full_matrices=False)[0] @ torch.linalg.svd(A, full_matrices=False)[2]


def transposed(A, like):
    out = torch.zeros_like(like)
    k, d = min(like.shape[0], A.shape[1]), min(like.shape[1], A.shape[0])
    out[:k, :d] = A.T[:k, :d]
    return out


FACTORS = {
    "generic": lambda W, V: (W, V),
    "W zero": lambda W, V: (0 * W, V),
    "V zero": lambda W, V: (W, 0 * V),
    "both zero": lambda W, V: (0 * W, 0 * V),
    "transposed": lambda W, V: (W, transposed(W, V)),
    "opposite": lambda W, V: (W, -transposed(W, V)),
    "rank one W": lambda W, V: (rank_one(W), V),
    "rank one V": lambda W, V: (W, rank_one(V)),
    "orthogonal W": lambda W, V: (equal_singular_values(W), V),
    "orthogonal V": lambda W, V: (W, equal_singular_values(V)),
    "both orthogonal": lambda W, V: (equal_singular_values(W), equal_singular_values(V)),
    "orthogonal to each other": lambda W, V: (W - W @ V @ torch.linalg.pinv(V), V),
    "whole numbers": lambda W, V: (W.round(), V.round()),
    "dead neurons": lambda W, V: (W, V * (torch.arange(len(V)) % 2)[:, None]),
    "unused neurons": lambda W, V: (W * (torch.arange(len(V)) % 2), V),
    "large": lambda W, V: (10 * W, 10 * V),
    "small": lambda W, V: (1e-3 * W, 1e-3 * V),
    "unequal scales": lambda W, V: (1e2 * W, 1e-2 * V),
    "nearly rank one": lambda W, V: (rank_one(W) + 1e-9 * W, rank_one(V) + 1e-9 * V),
}

DATA = {
    "generic": lambda X: X,
    "zero": lambda X: 0 * X,
    "a dead input": lambda X: X * (torch.arange(X.shape[1]) > 0),
    "rank one": rank_one,
    "white": lambda X: equal_singular_values(X) * len(X) ** 0.5,
    "far from centred": lambda X: X + 3,
    "centred": lambda X: X - X.mean(0),
    "large": lambda X: 5 * X,
    "small": lambda X: 1e-2 * X,
    "uneven inputs": lambda X: X * 10.0 ** -torch.arange(X.shape[1]),
}

TARGETS = {
    "generic": lambda Y, fit, X: Y,
    "fitted": lambda Y, fit, X: fit,
    "nearly fitted": lambda Y, fit, X: fit + 1e-9 * Y,
    "zero": lambda Y, fit, X: 0 * Y,
    "best fit, loss left": lambda Y, fit, X: fit + Y - X @ torch.linalg.pinv(X) @ Y,
    "rank one residual": lambda Y, fit, X: fit + rank_one(Y),
    "equal residual values": lambda Y, fit, X: fit + X[:, : Y.shape[1]] @ eye(X[:, : Y.shape[1]].shape[1], Y.shape[1]),
}


def factors(batch: int, K: int, m: int, D: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """A batch of W (K, m) and V (m, D), each in a relation of its own."""
    drawn = [pick(FACTORS, g)(normal(g, K, m), normal(g, m, D)) for _ in range(batch)]
    return torch.stack([W for W, _ in drawn]), torch.stack([V for _, V in drawn])


def samples(batch: int, n: int, D: int, g: torch.Generator) -> Tensor:
    """A batch of data (n, D), each of a kind of its own."""
    return torch.stack([pick(DATA, g)(normal(g, n, D)) for _ in range(batch)])


def targets(fit: Tensor, X: Tensor, g: torch.Generator) -> Tensor:
    """Targets for a batch of outputs (n, K), each of a kind of its own."""
    return torch.stack([pick(TARGETS, g)(normal(g, *f.shape), f, x) for f, x in zip(fit, X)])


def criterion(name: str):
    """Mean loss of outputs (n, K)."""
    return {
        "outputs": lambda f, y: f,
        "half_mse": lambda f, y: 0.5 * (f - y).square().sum(-1).mean(),
        "mse": lambda f, y: F.mse_loss(f, y),
        "cross_entropy": lambda f, y: F.cross_entropy(f, y),
        "quartic": lambda f, y: (f - y).pow(4).sum(-1).mean(),
        "swish": lambda f, y: (F.silu(f - y).sum(-1) + 0.1 * f.tanh().prod(-1)).mean(),
    }[name]


def derivatives_of(name: str):
    """Derivatives of each sample's loss by autograd, as a user would give them."""
    sample = lambda f, y: criterion(name)(f.unsqueeze(0), y.unsqueeze(0))  # noqa: E731

    def both(f, y):
        shape = torch.broadcast_shapes(f.shape, y.shape)
        rows = f.expand(shape).reshape(-1, shape[-1]), y.expand(shape).reshape(-1, shape[-1])
        d1, d2 = vmap(jacrev(sample))(*rows), vmap(jacrev(jacrev(sample)))(*rows)
        return d1.reshape(shape), d2.reshape(*shape, shape[-1])

    return both


def network_loss(parameters: FactorLayout, name: str = "half_mse", activation=lambda z: z):
    """Loss of the flat parameter vector of `W a(V x + b) + c`."""

    def loss(theta, X, Y):
        p = parameters.layout.unflatten(theta)
        hidden = X @ p["V"].T + p.get("b", 0.0)
        return criterion(name)(activation(hidden) @ p["W"].T + p.get("c", 0.0), Y)

    return loss
