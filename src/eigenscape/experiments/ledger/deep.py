"""Rows on the Gauss-Newton spectrum of deep linear networks: [data] Sec. 2, 3, App. B."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from . import oracle
from .core import Ledger, Profile
from .deep_cases import Deep, cases, count_nonzero, kron, minima, nonzero_gap, padded, rank, root, spread, top
from .evidence import Seen
from .oracle import excess, matrix_gap, normal, number_gap
from .two_layer_cases import norms

SECTION = Ledger()
row = SECTION.row


def summed(case: Deep, X: Tensor) -> Tensor:
    """sum_l (X P_l^T P_l X^T / n) (x) (S_l S_l^T), eq. 5."""
    n = case.X.shape[-2]
    terms = [kron(X @ P.mT @ P @ X.mT / n, S @ S.mT) for P, S in zip(case.before, case.after)]
    return torch.stack(terms).sum(0)


@row(
    "E1",
    "[data] eq. 4, 5",
    "J_l = (P_l X)ᵀ ⊗ S_l, P_l = W_{l-1}...W₁, S_l = W_L...W_{l+1}; JJᵀ/n has the nonzero spectrum of the GGN JᵀJ/n.",
    "holds",
    "With weights flattened column by column.",
)
def tangent_kernel(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        error, n, start = matrix_gap(summed(case, case.X), case.ntk), case.X.shape[-2], 0
        for P, S, W in zip(case.before, case.after, case.weights):
            block = case.jacobian[..., start : start + W[0].numel()].unflatten(-1, W.shape[1:])
            columns = block.mT.flatten(2)  # row-major to column-major
            error = torch.maximum(error, matrix_gap(kron(case.X @ P.mT, S), columns))
            start += W[0].numel()
        nonzero = torch.linalg.eigvalsh(case.ntk)[:, -min(n * case.widths[-1], case.G.shape[-1]) :]
        yield Seen(torch.maximum(error, nonzero_gap(nonzero, case.G)))


@row(
    "E1a",
    "[data] eq. 4",
    "The brace of P_l in eq. 4 includes X.",
    "corrected",
    "It ends before X: eq. 5 multiplies P_l by X, and P_l is d_{l-1} × d₀.",
    kind="misprint",
)
def brace(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for widths in ((2, 2), (3, 2, 3)):  # n = d_0, so that the printed product has a shape
        b, n = 8 * profile.batch, widths[0]
        weights = tuple(normal(generator, b, o, i) for i, o in pairwise(widths))
        case = Deep(weights, normal(generator, b, n, n), normal(generator, b, n, widths[-1]))
        yield Seen(matrix_gap(summed(case, case.X @ case.X), case.ntk), matrix_gap(summed(case, case.X), case.ntk))


@row(
    "E2",
    "[data] Assumption 1, eq. 3",
    "Where the loss is zero the Hessian is the GGN.",
    "holds",
    "E[(f(x) - y)xᵀ] = 0 is enough, so every global minimum that least squares allows qualifies, whatever its loss.",
)
def zero_loss(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in minima(generator, profile, noise=0.0):
        yield Seen(matrix_gap(case.G, case.H))
    largest = 0.0
    for case in minima(generator, profile):
        largest = max(largest, float(oracle.values(case.loss, case.theta, case.X, case.Y).amax()))
        yield Seen(corrected=matrix_gap(case.G, case.H))
    yield Seen(numbers={"largest loss of these minima": largest})


@row(
    "E2a",
    "[data] after Assumption 1",
    "The approximation of the Hessian by the GGN gets accurate with training.",
    "holds under",
    "No hidden layer is narrower than the rank of the least-squares solution; at minima of bottlenecks a gap remains.",
)
def trained(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in minima(generator, profile, narrow=True):
        fits = min(case.widths) >= rank(case.C @ torch.linalg.pinv(case.S, hermitian=True))
        step = torch.stack([g.flatten(1).norm(dim=-1) for g in case.gradients]).amax(0)
        at_rest = step < 1e-9 * case.unit  # a bottleneck's best truncation is critical only for white inputs
        yield Seen(matrix_gap(case.G, case.H)[at_rest], condition=fits[at_rest])


def bound_terms(case: Deep) -> Tensor:
    """sigma_max^2(P_l F) sigma_max^2(S_l) with F F^T = E[x x^T], layer by layer."""
    F = root(case.S)
    return torch.stack([norms(P @ F) * norms(S) for P, S in zip(case.before, case.after)])


@row(
    "E3",
    "[data] eq. 6",
    "White inputs: λ_max(GGN) ≤ σ² Σ_l σ_max²(P_l) σ_max²(S_l).",
    "holds",
    "Strict in general for L ≥ 3, equal for balanced weights; any inputs with P_l Σ^½ for σ P_l; each term is a lower bound.",
)
def spectral_bound(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    slack = 0.0
    for case in cases(generator, profile):
        terms, true = bound_terms(case), top(case.G)
        yield Seen(corrected=excess(true, terms.sum(0), true) + excess(terms.amax(0), true, true))
    for case in cases(generator, profile, ("white",)):
        printed = case.variance * torch.stack([norms(P) * norms(S) for P, S in zip(case.before, case.after)]).sum(0)
        true = top(case.G)
        slack = max(slack, float(((printed - true) / printed).amax()))
        yield Seen(excess(true, printed, true), numbers={"largest relative slack": slack})
    for case in cases(generator, profile, even=True):
        equal = number_gap(bound_terms(case).sum(0), top(case.G), top(case.G))
        yield Seen(
            corrected=equal if (case.S - case.variance[:, None, None] * torch.eye(case.widths[0])).abs().max() < 1e-9 else None
        )


def squares(W: Tensor) -> Tensor:
    """Squared Frobenius norms."""
    return W.square().sum((-2, -1))


@row(
    "E4",
    "[data] eq. 7, 11",
    "White inputs: tr GGN = σ² Σ_l |P_l|_F² |S_l|_F²; for two layers σ² (d₂|W₁|_F² + d₀|W₂|_F²).",
    "holds",
    "Exact for the Hessian itself at any loss (its other part has no diagonal), which is why it holds early in training.",
)
def trace(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        F, true = root(case.S), case.H.diagonal(dim1=-2, dim2=-1).sum(-1)
        general = torch.stack([squares(P @ F) * squares(S) for P, S in zip(case.before, case.after)]).sum(0)
        yield Seen(corrected=number_gap(general, true, case.unit))
    for case in cases(generator, profile, ("white",)):
        true = case.G.diagonal(dim1=-2, dim2=-1).sum(-1)
        claimed = torch.stack([squares(P) * squares(S) for P, S in zip(case.before, case.after)]).sum(0)
        error = number_gap(case.variance * claimed, true, case.unit)
        if case.depth == 2:
            (first, last), (d0, _, d2) = map(squares, case.weights), case.widths
            error = torch.maximum(error, number_gap(case.variance * (d2 * first + d0 * last), true, case.unit))
        yield Seen(error)


@row(
    "E5",
    "[data] Sec. 3",
    "Balanced: the right singular vectors of a layer are aligned with the left ones of the next.",
    "corrected",
    "The left ones of a layer with the right ones of the next.",
    kind="misprint",
)
def alignment(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, ("white",), even=True, deep=2):
        if len(set(case.widths)) > 1 or case.widths[0] < 2:
            continue
        (U, s, V), (U2, _, V2) = (torch.linalg.svd(W) for W in case.weights[:2])
        simple = (s[:, :-1] - s[:, 1:]).amin(-1) > 1e-2

        def mismatch(a: Tensor, b: Tensor) -> Tensor:
            return 1 - (a * b).sum(-2).abs().amin(-1)

        yield Seen(mismatch(V.mT, U2)[simple], mismatch(U, V2.mT)[simple].clamp(min=0.0))


@row(
    "E6",
    "[data] Sec. 3, eq. 8",
    "Balanced: P_lᵀP_l = (W₁ᵀW₁)^(l-1), S_l S_lᵀ = (W_L W_Lᵀ)^(L-l), and layers share their nonzero singular values.",
    "holds",
    "Zero singular values included.",
)
def balanced_kernel(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, even=True):
        first, last, n = case.weights[0], case.weights[-1], case.X.shape[-2]
        power = torch.linalg.matrix_power
        terms = [
            kron(case.X @ power(first.mT @ first, k) @ case.X.mT / n, power(last @ last.mT, case.depth - 1 - k))
            for k in range(case.depth)
        ]
        values = torch.stack([torch.linalg.svdvals(W)[:, : min(case.widths)] for W in case.weights])
        shared = (values - values[:1]).abs().amax((0, -1))
        yield Seen(torch.maximum(matrix_gap(torch.stack(terms).sum(0), case.ntk), shared))


def pairs(case: Deep, rows: int, columns: int) -> Tensor:
    """sigma^2 sum_l sigma_i^(2(L-l)) sigma_j^(2(l-1)) for i and j in these ranges, zero beyond the rank."""
    s = torch.linalg.svdvals(case.weights[0])[:, : min(case.widths)]
    i, j = padded(s, rows)[:, :rows], padded(s, columns)[:, :columns]
    return case.variance.unsqueeze(-1) * spread(i.unsqueeze(-1), j.unsqueeze(-2), case.depth).flatten(1)


@row(
    "E7",
    "[data] eq. 9a",
    "Balanced, white inputs: the nonzero eigenvalues are σ² Σ_l σ_i^(2(L-l)) σ_j^(2(l-1)), i, j up to the smallest width.",
    "corrected",
    "i runs to d₀ and j to d_L, with σ = 0 beyond the rank and 0⁰ = 1: printed, those with one zero σ are missing.",
)
def balanced_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, ("white",), even=True):
        k, d0, dL = min(case.widths), case.widths[0], case.widths[-1]
        square = torch.full((len(case.X),), d0 == dL == k)
        yield Seen(nonzero_gap(pairs(case, k, k), case.G), nonzero_gap(pairs(case, d0, dL), case.G), square)


@row(
    "E7a",
    "[data] eq. 9b",
    "The sum is (σ_i^(2L) - σ_j^(2L))/(σ_i² - σ_j²), or L σ^(2(L-1)) where σ_i = σ_j.",
    "holds",
    "Near a tie the quotient loses its digits; the sum does not.",
    tolerance=1e-8,
)
def quotient(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, ("white",), even=True):
        s = torch.linalg.svdvals(case.weights[0])[:, : min(case.widths)]
        a, b, depth = s.unsqueeze(-1), s.unsqueeze(-2), case.depth
        tie = (a - b).abs() < 1e-6
        closed = torch.where(
            tie,
            depth * a ** (2 * depth - 2) + 0 * b,
            (a ** (2 * depth) - b ** (2 * depth)) / torch.where(tie, 1.0, a**2 - b**2),
        )
        tops = case.variance * closed.flatten(1).amax(-1)  # the largest one is the network's
        far = (~tie | ((a - b).abs() < 1e-12)).flatten(1).all(-1)
        sums = (closed - spread(a, b, depth)).flatten(1).abs().amax(-1)
        yield Seen((sums + number_gap(tops, top(case.G), case.unit))[far])


@row(
    "E8",
    "[data] after eq. 9",
    "At most (min d)² eigenvalues are nonzero.",
    "corrected",
    "Exactly r(d₀ + d_L - r) for r = rank(W_L...W₁) and L ≥ 2, white inputs; at most k(d₀ + d_L - k), k = min d.",
)
def how_many(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, ("white",), even=True, deep=2):
        r, d0, dL = rank(case.weights[0]), case.widths[0], case.widths[-1]
        count = count_nonzero(case.G)
        printed = (count - min(case.widths) ** 2).clamp(min=0).to(torch.float64)
        yield Seen(printed, (count - r * (d0 + dL - r)).abs().to(torch.float64))


@row(
    "E9",
    "[data] eq. 10",
    "Two layers, white inputs: λ_max(GGN) = σ² (|W₁|² + |W₂|²), spectral norms; not their maximum.",
    "holds",
    "At any point. For other inputs it is λ_max(Σ^½ (W₁ᵀW₁ + |W₂|² I) Σ^½).",
)
def sum_of_norms(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        if case.depth == 2:
            first, last = case.weights
            F, eye = root(case.S), torch.eye(case.widths[0], dtype=torch.float64)
            general = top(F @ (first.mT @ first + norms(last)[:, None, None] * eye) @ F)
            yield Seen(corrected=number_gap(general, top(case.G), case.unit))
    for case in cases(generator, profile, ("white",)):
        if case.depth == 2:
            claimed = case.variance * (norms(case.weights[0]) + norms(case.weights[1]))
            yield Seen(number_gap(claimed, top(case.G), case.unit))


def two_layer_sums(case: Deep, rows: int, columns: int) -> Tensor:
    """sigma^2 (sigma_i^2(W_1) + sigma_j^2(W_2)) for i and j in these ranges, zero beyond the rank."""
    first, last = (torch.linalg.svdvals(W) ** 2 for W in case.weights)
    i, j = padded(first, rows)[:, :rows], padded(last, columns)[:, :columns]
    return case.variance.unsqueeze(-1) * (i.unsqueeze(-1) + j.unsqueeze(-2)).flatten(1)


@row(
    "E13",
    "[data] eq. 15",
    "Two layers, white inputs: all nonzero eigenvalues are σ²(σ_i²(W₁) + σ_j²(W₂)), i ≤ min{d₀,d₁}, j ≤ min{d₁,d₂}.",
    "corrected",
    "i ≤ d₀ and j ≤ d₂, with σ = 0 beyond the rank: printed, eigenvalues are missing where d₁ < d₀ or d₁ < d₂.",
)
def shallow_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, ("white",)):
        if case.depth == 2:
            d0, d1, d2 = case.widths
            printed = nonzero_gap(two_layer_sums(case, min(d0, d1), min(d1, d2)), case.G)
            yield Seen(printed, nonzero_gap(two_layer_sums(case, d0, d2), case.G))


@row(
    "E13a",
    "[data] end of App. B",
    "Of the eigenvalues at most min{d₀,d₁} min{d₁,d₂} are nonzero.",
    "corrected",
    "Exactly d₀d₂ - (d₀ - rank W₁)(d₂ - rank W₂).",
)
def shallow_count(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for even in (False, True):
        for case in cases(generator, profile, ("white",), even=even):
            if case.depth == 2:
                d0, d1, d2 = case.widths
                count, (r1, r2) = count_nonzero(case.G), map(rank, case.weights)
                printed = (count - min(d0, d1) * min(d1, d2)).clamp(min=0)
                exact = d0 * d2 - (d0 - r1) * (d2 - r2)
                yield Seen(printed.to(torch.float64), (count - exact).abs().to(torch.float64))


def kernel_residual(case: Deep) -> Tensor:
    """Largest residual of (X v_i / sqrt n) (x) u_j as an eigenvector of J J^T / n."""
    v, u = torch.linalg.svd(case.weights[0]).Vh.mT, torch.linalg.svd(case.weights[-1]).U
    q = kron(case.X @ v, u)
    length = q.norm(dim=-2)
    q = q / length.clamp(min=1e-300).unsqueeze(-2)
    value = (q * (case.ntk @ q)).sum(-2)
    rest = oracle.residual(case.ntk, q, value)
    return torch.where(length > 1e-9 * length.amax(-1, keepdim=True), rest, 0.0).amax(-1)


@row(
    "E14",
    "[data] Sec. 3, App. B, eq. 16",
    "Eigenvectors of JJᵀ/n are (Xᵀv_i/√n) ⊗ u_j, v_i right singular vectors of W₁, u_j left ones of W_L.",
    "holds under",
    "White inputs (Assumption 2, made one sentence later) and, for L ≥ 3, balanced weights (Assumption 3).",
)
def kernel_vectors(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for even, shallow in ((True, False), (False, True)):
        for kind in ("white", "raw"):
            for case in cases(generator, profile, (kind,), even=even, deep=2):
                if case.depth == 2 or not shallow:
                    yield Seen(kernel_residual(case), condition=torch.full((len(case.X),), kind == "white"))
