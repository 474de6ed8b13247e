"""One head of self-attention with embedding dimension 1, random and degenerate, with its Hessian by autograd."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from . import oracle
from .core import Profile
from .oracle import kind_mask, normal
from .scalar_cases import dot

SHAPES = ((1, 1, 3), (2, 1, 1), (2, 1, 4), (2, 3, 2), (3, 2, 3), (6, 1, 3))  # (d_K, sequences, length)
KINDS = (
    "random", "w_V = 0", "constant x", "large x", "solved", "wQ = wK", "wQ = -wK", "wQ = 0", "all w = 0", "orthogonal",
    "gamma = 0", "small w", "far targets", "far targets, other side", "large w", "zero x",
)  # fmt: skip
ACTIVATIONS = {
    "softmax": lambda s: torch.softmax(s, -1),
    "sigmoid": torch.sigmoid,
    "linear": lambda s: s,
    "tanh": torch.tanh,
}


def attention(theta: Tensor, X: Tensor, activation: str = "softmax", bias: Tensor | float = 0.0) -> Tensor:
    """Outputs `w_V A(x) x` of shape (sequences, length); theta = (w_V, w_Q, w_K); `bias` is added to the scores."""
    dk = (theta.shape[-1] - 1) // 2
    wV, wQ, wK = theta[0], theta[1 : dk + 1], theta[dk + 1 :]
    scores = X.unsqueeze(-1) * X.unsqueeze(-2) * (wQ @ wK) / dk**0.5 + bias
    return wV * (ACTIVATIONS[activation](scores) @ X.unsqueeze(-1)).squeeze(-1)


def loss(theta: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    """Half the mean squared error over the tokens of all sequences."""
    return (attention(theta, X) - Y).square().mean() / 2


@dataclass(frozen=True)
class Attention:
    """A batch of heads and sequences; alpha, beta, gamma, zeta are averages over sequences."""

    wV: Float[Tensor, "b"]
    wQ: Float[Tensor, "b dk"]
    wK: Float[Tensor, "b dk"]
    X: Float[Tensor, "b sequences length"]
    Y: Float[Tensor, "b sequences length"]

    @cached_property
    def theta(self) -> Tensor:
        """Parameters in the order (w_V, w_Q, w_K)."""
        return torch.cat([self.wV.unsqueeze(-1), self.wQ, self.wK], -1)

    @cached_property
    def H(self) -> Tensor:
        """Hessian by autograd."""
        return oracle.hessians(loss, self.theta, self.X, self.Y)

    @cached_property
    def unit(self) -> Tensor:
        """Return max(1, spectral radius)."""
        return oracle.scale(self.H)

    @property
    def dk(self) -> int:
        """Number of query (and key) weights."""
        return self.wQ.shape[-1]

    @cached_property
    def N(self) -> Tensor:
        """|w_Q|^2 + |w_K|^2."""
        return dot(self.wQ, self.wQ) + dot(self.wK, self.wK)

    @cached_property
    def c(self) -> Tensor:
        """<w_Q, w_K>."""
        return dot(self.wQ, self.wK)

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Attention moments m1, m2, m3 of Def. B.1, per token."""
        scores = self.X.unsqueeze(-1) * self.X.unsqueeze(-2) * (self.c / self.dk**0.5)[:, None, None, None]
        A, x = torch.softmax(scores, -1), self.X.unsqueeze(-2)
        m1 = (A * x).sum(-1)
        centred = x - m1.unsqueeze(-1)
        return m1, (A * centred**2).sum(-1), (A * centred**3).sum(-1)

    @cached_property
    def scalars(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """alpha, beta, gamma, zeta, averaged over the tokens of all sequences."""
        m1, m2, m3 = self.moments
        w, x, root = self.wV[:, None, None], self.X, self.dk**0.5
        delta = w * m1 - self.Y
        terms = (m1**2, (w * m1 + delta) * x * m2 / root, w * delta * x * m2 / root)
        zeta = (w**2 * (x * m2) ** 2 + w * delta * x**2 * m3) / self.dk
        a, b, c, z = (t.flatten(1).mean(-1) for t in (*terms, zeta))
        return a, b, c, z

    @cached_property
    def true_outliers(self) -> Float[Tensor, "b 3"]:
        """Three outliers, ascending: eigenvalues of the network's Hessian on span{w_V, (p; p), (q; -q)}."""
        dk, zero = self.dk, torch.zeros(len(self.c), 1, dtype=torch.float64)
        first = torch.zeros(len(self.c), 2 * dk + 1, dtype=torch.float64)
        first[:, 0] = 1.0
        any_unit = torch.zeros_like(self.wQ)
        any_unit[:, 0] = 1.0  # any direction serves where w_Q = -+ w_K
        columns = [first]
        for sign in (1.0, -1.0):
            p = self.wK + sign * self.wQ
            p = torch.where(p.norm(dim=-1, keepdim=True) > 1e-12, p, any_unit)
            p = p / p.norm(dim=-1, keepdim=True) / 2**0.5
            columns.append(torch.cat([zero, p, sign * p], -1))
        Q = torch.stack(columns, -1)
        return torch.linalg.eigvalsh(Q.mT @ self.H @ Q)


def draw(generator: torch.Generator, batch: int, dk: int, sequences: int, length: int) -> Attention:
    """Random cases, kinds in turn."""
    wV, wQ, wK = normal(generator, batch), normal(generator, batch, dk), normal(generator, batch, dk)
    X, Y = normal(generator, batch, sequences, length), normal(generator, batch, sequences, length)

    def where(name: str, changed: Tensor, old: Tensor) -> Tensor:
        return torch.where(kind_mask(batch, KINDS, name).reshape(-1, *[1] * (old.ndim - 1)), changed, old)

    wV = where("w_V = 0", 0 * wV, wV)
    wK = where("wQ = wK", wQ, where("wQ = -wK", -wQ, wK))
    wK = where("orthogonal", wK - wQ * (dot(wQ, wK) / dot(wQ, wQ)).unsqueeze(-1), wK)
    wQ, wK = where("wQ = 0", 0 * wQ, where("all w = 0", 0 * wQ, wQ)), where("all w = 0", 0 * wK, wK)
    wQ, wK = where("small w", wQ / 20, where("large w", 5 * wQ, wQ)), where("small w", wK / 20, where("large w", 5 * wK, wK))
    X = where("constant x", X[..., :1].expand_as(X), where("large x", 3 * X, where("small w", 3 * X, X)))
    X = where("zero x", 0 * X, X)
    Y = where("far targets", 20 * Y.abs(), where("far targets, other side", -20 * Y.abs(), Y))
    case = Attention(wV, wQ, wK, X, Y)
    m1, m2, _ = case.moments
    fit, slope = wV[:, None, None] * m1, X * m2
    Y = where("solved", fit, Y)
    delta, size = fit - Y, slope.square().flatten(1).sum(-1)
    along = ((delta * slope).flatten(1).sum(-1) / size.clamp(min=1e-300))[:, None, None] * slope
    return Attention(wV, wQ, wK, X, where("gamma = 0", Y + along, Y))


def cases(generator: torch.Generator, profile: Profile) -> Iterator[Attention]:
    """One batch per shape, every kind in each."""
    for shape in SHAPES:
        yield draw(generator, 2 * profile.batch * len(KINDS), *shape)


def printed_matrix(case: Attention) -> Float[Tensor, "b p p"]:
    """The Hessian of [cracking] B.5, rows and columns in the order (w_V, w_Q, w_K)."""
    alpha, beta, gamma, zeta = (s[:, None, None] for s in case.scalars)
    Q, K = case.wQ.unsqueeze(-1), case.wK.unsqueeze(-1)
    eye = torch.eye(case.dk, dtype=torch.float64)
    top = torch.cat([alpha, beta * K.mT, beta * Q.mT], -1)
    middle = torch.cat([beta * K, zeta * K @ K.mT, zeta * K @ Q.mT + gamma * eye], -1)
    return torch.cat([top, middle, torch.cat([beta * Q, zeta * Q @ K.mT + gamma * eye, zeta * Q @ Q.mT], -1)], -2)


def depressed(case: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """T, p and q of the depressed cubic, q with its parentheses restored."""
    alpha, beta, gamma, zeta = case.scalars
    T, k = alpha + zeta * case.N, beta**2 - alpha * zeta
    p = -(3 * gamma**2 + 6 * gamma * zeta * case.c + 3 * k * case.N + T**2) / 3
    inner = k * case.N + 2 * gamma * zeta * case.c + gamma**2
    return T, p, -(2 * T**3 + 9 * T * inner + 27 * (2 * gamma * k * case.c - alpha * gamma**2)) / 27


def xi(case: Attention) -> Tensor:
    """Half-width of the outliers' interval, 2 sqrt(-p / 3)."""
    return 2 * (-depressed(case)[1] / 3).clamp(min=0.0).sqrt()


def printed_xi(case: Attention) -> Tensor:
    """The same as printed in Thm 3.5, with norms in the last square that are not squared (nan where the radicand is < 0)."""
    alpha, beta, gamma, zeta = case.scalars
    norms = case.wQ.norm(dim=-1) + case.wK.norm(dim=-1)
    inside = 3 * gamma**2 + 6 * zeta * gamma * case.c + 3 * (beta**2 - alpha * zeta) * case.N
    return 2 / 3 * (inside + (zeta * norms + alpha) ** 2).sqrt()


def three(alpha: Tensor, beta: Tensor, gamma: Tensor, zeta: Tensor, wQ: Tensor, wK: Tensor) -> Float[Tensor, "b 3"]:
    """Three outliers, ascending, from a symmetric 3 x 3 matrix: no arccos, no excluded case."""
    a, b = ((wK + sign * wQ).norm(dim=-1) / 2**0.5 for sign in (1.0, -1.0))
    rows = (alpha, beta * a, beta * b), (beta * a, zeta * a**2 + gamma, zeta * a * b)
    M = torch.stack([torch.stack(r, -1) for r in (*rows, (beta * b, zeta * a * b, zeta * b**2 - gamma))], -2)
    return torch.linalg.eigvalsh(M)


def spectrum(case: Attention) -> Float[Tensor, "b p"]:
    """Whole spectrum: the three outliers, and d_K - 1 pairs of gamma and -gamma."""
    bulk = oracle.repeat(case.scalars[2], case.dk - 1)
    return torch.cat([three(*case.scalars, case.wQ, case.wK), bulk, -bulk], -1)
