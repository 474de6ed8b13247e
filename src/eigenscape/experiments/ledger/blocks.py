"""Rows on block-diagonal networks with several inputs or outputs: [cracking] B.4."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from . import library, oracle
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import gap, kind_mask, normal, repeat, residual
from .scalar_cases import dot, pair

SECTION = Ledger()
row = SECTION.row
SHAPES = ((1, 2), (2, 1), (2, 3), (3, 2), (3, 4))  # (D, m)
KINDS = ("random", "w = v", "w = -v", "w = 0", "all 0", "dead input", "solved", "orthogonal")


def inputs_loss(theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Half the mean squared error of `sum_d <w_d, v_d> x_d`; theta holds (v_1, w_1, v_2, w_2, ...)."""
    v, w = theta.reshape(X.shape[-1], 2, -1).unbind(1)
    return (X @ (w * v).sum(-1) - y).square().mean() / 2


def outputs_loss(theta: Tensor, x: Tensor, Y: Tensor) -> Tensor:
    """Half the squared error, mean over samples and summed over outputs, of `f_k(x) = <w_k, v_k> x`."""
    v, w = theta.reshape(Y.shape[-1], 2, -1).unbind(1)
    return (x.unsqueeze(-1) * (w * v).sum(-1) - Y).square().sum(-1).mean() / 2


@dataclass(frozen=True)
class Heads:
    """A batch of D (or K) vector pairs and data; `d[:, i]` is the residual covariance of head i."""

    w: Float[Tensor, "b heads m"]
    v: Float[Tensor, "b heads m"]
    X: Tensor
    Y: Tensor
    many_inputs: bool

    @cached_property
    def H(self) -> Tensor:
        """Hessian by autograd, heads one after the other, each in the order (v, w)."""
        theta = oracle.pack(torch.stack([self.v, self.w], -2))
        return oracle.hessians(inputs_loss if self.many_inputs else outputs_loss, theta, self.X, self.Y)

    @cached_property
    def c(self) -> Tensor:
        """<w_i, v_i>."""
        return dot(self.w, self.v)

    @cached_property
    def S(self) -> Float[Tensor, "b heads heads"]:
        """E[x x^T]; for several outputs, mean x^2 times the identity."""
        if self.many_inputs:
            return self.X.mT @ self.X / self.X.shape[-2]
        return self.X.square().mean(-1)[:, None, None] * torch.eye(self.w.shape[-2], dtype=torch.float64)

    @cached_property
    def d(self) -> Tensor:
        """Mean of x delta, head by head."""
        if self.many_inputs:
            return (self.S @ self.c.unsqueeze(-1)).squeeze(-1) - (self.X * self.Y.unsqueeze(-1)).mean(-2)
        return self.c * self.X.square().mean(-1, keepdim=True) - (self.X.unsqueeze(-1) * self.Y).mean(-2)

    def outliers(self) -> Tensor:
        """Outlier pair of each head, shape (b, heads, 2)."""
        s2 = self.S.diagonal(dim1=-2, dim2=-1)
        return torch.stack(pair(dot(self.w, self.w), dot(self.v, self.v), self.c, s2, self.d), -1)

    def spectrum(self) -> Tensor:
        """Union of the heads' spectra, [cracking] Cor B.1, B.2."""
        bulk = repeat(self.d, self.w.shape[-1] - 1)
        return torch.cat([self.outliers(), bulk, -bulk], -1).flatten(1)


def draw(generator: torch.Generator, batch: int, heads: int, m: int, n: int, many_inputs: bool) -> Heads:
    """Random cases, kinds in turn; inputs as they come."""
    w, v = normal(generator, batch, heads, m), normal(generator, batch, heads, m)
    X = normal(generator, batch, n, heads) + 0.5 if many_inputs else normal(generator, batch, n) + 0.5
    Y = normal(generator, batch, n) if many_inputs else normal(generator, batch, n, heads)

    def where(name: str, changed: Tensor, old: Tensor) -> Tensor:
        return torch.where(kind_mask(batch, KINDS, name).reshape(-1, *[1] * (old.ndim - 1)), changed, old)

    v = where("w = v", w, where("w = -v", -w, v))
    v = where("orthogonal", v - w * (dot(w, v) / dot(w, w)).unsqueeze(-1), v)
    w, v = where("w = 0", 0 * w, where("all 0", 0 * w, w)), where("all 0", 0 * v, v)
    c = dot(w, v)
    fit = (X @ c.unsqueeze(-1)).squeeze(-1) if many_inputs else X.unsqueeze(-1) * c.unsqueeze(-2)
    return Heads(w, v, X, where("solved", fit, Y), many_inputs)


def decorrelated(generator: torch.Generator, profile: Profile) -> Iterator[Heads]:
    """Inputs with E[x_d x_e] = 0 for d != e, uncentred; sometimes one of them is dead."""
    for D, m in SHAPES:
        batch, n = 3 * profile.batch * len(KINDS), 6
        case = draw(generator, batch, D, m, n, True)
        size = oracle.uniform(generator, batch, 1, D, low=0.3, high=3.0)
        size = torch.where(kind_mask(batch, KINDS, "dead input")[:, None, None] & (torch.arange(D) == 0), 0.0, size)
        X = oracle.orthonormal(generator, batch, n, D) * size * n**0.5
        yield Heads(case.w, case.v, X, case.Y, True)


def judged(case: Heads) -> Tensor:
    """The spectrum that the library returns."""
    if case.many_inputs:
        return library.block_inputs(case.w, case.v, case.X, case.Y)
    return library.block_outputs(case.w, case.v, case.X, case.Y)


@row(
    "C1",
    "[cracking] Cor B.1, eq. 111-113",
    "With uncorrelated inputs the spectrum of Σ_d <w_d,v_d> x_d is the union over d of the scalar network's.",
    "holds",
    "Uncorrelated means E[x_d x_e] = 0 without centring; inputs of zero variance and m = 1 included.",
)
def many_inputs(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in decorrelated(generator, profile):
        yield Seen(gap(case.spectrum(), case.H), library=gap(judged(case), case.H))


@row(
    "C1+",
    "ours, beyond [cracking] Cor B.1",
    "Correlated inputs: bulk ±dx_d, m - 1 times each, and the 2D eigenvalues of Bᵀ Sxx B + diag(dx₁, -dx₁, ...).",
    "holds",
    "Row d of B is (|w_d+v_d|, |w_d-v_d|)/√2 in columns 2d, 2d+1. Without it Cor B.1 is off by up to the number shown.",
    kind="ours",
)
def correlated_inputs(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    worst = 0.0
    for D, m in SHAPES:
        case = draw(generator, 3 * profile.batch * len(KINDS), D, m, 6, True)
        lengths = torch.stack([(case.w + case.v).norm(dim=-1), (case.w - case.v).norm(dim=-1)], -1) / 2**0.5
        B = torch.diag_embed(lengths.mT).permute(0, 2, 3, 1).flatten(2)
        shift = torch.stack([case.d, -case.d], -1).flatten(1)
        few = torch.linalg.eigvalsh(B.mT @ case.S @ B + torch.diag_embed(shift))
        bulk = repeat(case.d, m - 1).flatten(1)
        worst = max(worst, float(gap(case.spectrum(), case.H).amax()))
        yield Seen(gap(torch.cat([few, bulk, -bulk], -1), case.H), library=gap(judged(case), case.H))
    yield Seen(numbers={"error of Cor B.1 on correlated inputs": worst})


@row(
    "C2",
    "[cracking] B.4.1, B.4.2",
    "These networks are the one-hidden-layer networks wᵀVx (WVx) with block-diagonal V (W), spectrum included.",
    "holds under",
    "The zeros of V are frozen. As functions they agree; the full network has more parameters and another Hessian.",
)
def masked_or_full(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in decorrelated(generator, profile):
        b, D, m = case.w.shape
        if D == 1:
            continue
        V = torch.diag_embed(case.v.mT).permute(0, 3, 1, 2).reshape(b, D * m, D)

        def full(theta: Tensor, X: Tensor, y: Tensor, width: int = D * m, D: int = D) -> Tensor:
            V, w = oracle.split(theta, (width, D), (width,))
            return (X @ V.T @ w - y).square().mean() / 2

        H = oracle.hessians(full, oracle.pack(V, case.w.flatten(1)), case.X, case.Y)
        frozen = oracle.pack(V.abs() > 0, torch.ones(b, D * m, dtype=torch.bool))
        claimed = case.spectrum().amax(-1)
        some = (case.v != 0).flatten(1).all(-1)
        masked = torch.linalg.eigvalsh(H * frozen.unsqueeze(-1) * frozen.unsqueeze(-2))[:, -1]
        for true, inside in ((masked, True), (torch.linalg.eigvalsh(H)[:, -1], False)):
            error = ((claimed.clamp(min=0.0) - true).abs() / true.abs().clamp(min=1.0))[some]
            yield Seen(error, condition=torch.full(error.shape, inside))


@row(
    "C3",
    "[cracking] Cor B.2, eq. 115-118",
    "For several outputs f_k = <w_k,v_k> x the spectrum is the union over k of the scalar network's.",
    "holds",
    "Any inputs, centred or not. (In eq. 116 the column headers are out of order; blocks are (v_k, w_k).)",
)
def many_outputs(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for K, m in SHAPES:
        case = draw(generator, 3 * profile.batch * len(KINDS), K, m, 5, False)
        yield Seen(gap(case.spectrum(), case.H), library=gap(judged(case), case.H))


@row(
    "C4",
    "[cracking] Cor B.3, eq. 119",
    "Its outlier eigenvectors are λ (0; w_k; v_k; 0) + dx_k (0; v_k; w_k; 0).",
    "holds under",
    "The vector does not vanish: w_k ≠ ±v_k and dx_k ≠ 0, as in L13.",
)
def output_vectors(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for K, m in SHAPES:
        case = draw(generator, 3 * profile.batch * len(KINDS), K, m, 5, False)
        values = case.outliers()
        for k in range(K):
            size = torch.minimum((case.w - case.v)[:, k].norm(dim=-1), (case.w + case.v)[:, k].norm(dim=-1))
            regular = (size > 1e-7) & (case.d[:, k].abs() > 1e-7)
            for value in values[:, k].unbind(-1):
                a, slope = value.unsqueeze(-1), case.d[:, k].unsqueeze(-1)
                top, low = a * case.w[:, k] + slope * case.v[:, k], a * case.v[:, k] + slope * case.w[:, k]
                z = torch.zeros(len(value), K, 2 * m, dtype=torch.float64)
                z[:, k] = torch.cat([top, low], -1)
                z = z.flatten(1)
                terms = (value.abs() + slope.squeeze(-1).abs()) * (case.w[:, k].norm(dim=-1) + case.v[:, k].norm(dim=-1))
                weight = (1000 * z.norm(dim=-1) / terms.clamp(min=1e-300)).clamp(max=1.0)
                rest = weight * residual(case.H, z.unsqueeze(-1), value.unsqueeze(-1)).squeeze(-1)
                yield Seen(torch.where(z.norm(dim=-1) > 1e-7 * terms, rest, torch.inf), condition=regular)


@row(
    "C5",
    "[cracking] eq. 114",
    "For m > 1 the network is a sum of m diagonal linear networks, f(x) = Σ_i <β⁽ⁱ⁾, x>, β⁽ⁱ⁾_d = w_{d,i} v_{d,i}.",
    "holds",
)
def mixtures(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in decorrelated(generator, profile):
        beta = case.w * case.v
        experts = torch.stack([(case.X @ beta[..., i].unsqueeze(-1)).squeeze(-1) for i in range(beta.shape[-1])]).sum(0)
        whole = oracle.values(inputs_loss, oracle.pack(torch.stack([case.v, case.w], -2)), case.X, experts)
        yield Seen(whole.abs().sqrt() / experts.abs().amax(-1).clamp(min=1.0))
