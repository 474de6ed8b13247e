"""Random and degenerate deep linear networks, as tensors and as functions of one flat parameter vector."""

from itertools import pairwise

import torch
from hypothesis import strategies as st
from oracles import hessians
from strategies import normal, pick
from torch.func import jacrev, vmap

# Every relation between neighbours: depth 1 to 4, wide, narrow, bottlenecks, d0 > d1, outputs wider than everything.
WIDTHS = [(1, 1), (3, 2), (2, 4), (1, 1, 1), (2, 3, 2), (4, 1, 3), (3, 2, 4), (1, 4, 1), (3, 3, 3), (4, 2, 1)]
WIDTHS += [
    (2, 3, 3, 1),
    (4, 2, 1, 3),
    (3, 2, 2, 4),
    (2, 2, 2, 2),
    (1, 3, 2, 1),
    (2, 2, 3, 2, 2),
    (3, 1, 2, 1, 2),
    (1, 2, 1, 2, 3),
]

WEIGHTS = {
    "generic": lambda W, g: W,
    "zero": lambda W, g: 0 * W,
    "rank one": lambda W, g: W[:, :1] @ W[:1],
    "orthogonal": lambda W, g: torch.linalg.qr(W if W.shape[0] >= W.shape[1] else W.mT).Q.reshape(W.shape),
    "identity": lambda W, g: torch.eye(*W.shape, dtype=W.dtype),
    "whole numbers": lambda W, g: W.round(),
    "large": lambda W, g: 10 * W,
    "small": lambda W, g: 1e-3 * W,
    "one dead row": lambda W, g: W * (torch.arange(len(W)) > 0).unsqueeze(-1),
}

DATA = {
    "generic": lambda X: X,
    "far from centred": lambda X: X + 3,
    "zero": lambda X: 0 * X,
    "rank one": lambda X: X[:, :1] @ X[:1],
    "one dead input": lambda X: X * (torch.arange(X.shape[1]) > 0),
    "whitened": lambda X: torch.linalg.qr(X).Q * len(X) ** 0.5 if len(X) >= X.shape[1] else X,
    "large": lambda X: 10 * X,
    "ties": lambda X: X[:1].expand_as(X),
}

widths = st.sampled_from(WIDTHS)
samples = st.sampled_from([1, 2, 3, 7])


def biased_layers(widths):
    """Some of the layers."""
    return st.sets(st.integers(0, len(widths) - 2)).map(lambda chosen: tuple(sorted(chosen)))


def networks(widths, biased, batch, g):
    """A batch of weights, mostly generic, and of biases, each member of kinds of its own."""
    kinds = WEIGHTS | {f"generic {i}": WEIGHTS["generic"] for i in range(8)}
    weights = [torch.stack([pick(kinds, g)(normal(g, b, a), g) for _ in range(batch)]) for a, b in pairwise(widths)]
    biases = [normal(g, batch, d) if l in biased else None for l, d in enumerate(widths[1:])]
    return weights, biases if biased else None


def datasets(n, d, batch, g):
    """A batch of inputs, each of a kind of its own."""
    return torch.stack([pick(DATA, g)(normal(g, n, d)) for _ in range(batch)])


def flatten(weights, biases=None):
    """Parameters in the order of `nn.Linear` layers."""
    rows = []
    for W, b in zip(weights, biases or [None] * len(weights)):
        rows += [W.flatten(-2)] if b is None else [W.flatten(-2), b]
    return torch.cat(rows, -1)


def forward(widths, biased, theta, X):
    """Outputs (n, dL) of the network with flat parameters."""
    H, at = X, 0
    for l, (a, b) in enumerate(pairwise(widths)):
        H = H @ theta[at : at + a * b].reshape(b, a).mT
        at += a * b
        if l in biased:
            H = H + theta[at : at + b]
            at += b
    return H


def dense_ggn(widths, biased, weights, biases, X):
    """Gauss-Newton matrices of a batch, from the Jacobian of the outputs."""
    J = vmap(jacrev(lambda t, x: forward(widths, biased, t, x).flatten()))(flatten(weights, biases), X)
    return J.mT @ J / X.shape[-2]


def dense_hessian(widths, biased, weights, biases, X, Y):
    """Hessians of a batch of losses, by autograd."""

    def loss(theta, x, y):
        return (forward(widths, biased, theta, x) - y).square().sum() / (2 * len(x))

    return hessians(loss, flatten(weights, biases), X, Y)
