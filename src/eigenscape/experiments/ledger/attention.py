"""Rows on the spectrum of self-attention: [cracking] Thm 3.5 and B.5 (bounds and prose are in `attention_bounds`)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from . import oracle
from .attention_cases import (
    ACTIVATIONS,
    Attention,
    attention,
    cases,
    depressed,
    draw,
    printed_matrix,
    printed_xi,
    spectrum,
    three,
    xi,
)  # fmt: skip
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import gap, matrix_gap, outside, polynomial_gap, repeat
from .scalar_cases import dot, pair

SECTION = Ledger()
row = SECTION.row


@row(
    "A1",
    "[cracking] B.5, first display",
    "The Hessian, with columns (w_V, w_K, w_Q) and rows (w_V, w_Q, w_K).",
    "corrected",
    "Both rows and columns are in the order (w_V, w_Q, w_K).",
    kind="misprint",
)
def hessian_matrix(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        claimed, dk = printed_matrix(case), case.dk
        order = [0, *range(dk + 1, 2 * dk + 1), *range(1, dk + 1)]
        yield Seen(matrix_gap(claimed[..., order], case.H), matrix_gap(claimed, case.H))


def cubic(case: Attention, t: Tensor) -> Tensor:
    """The third-order polynomial of B.5, as printed."""
    alpha, beta, gamma, zeta = case.scalars
    k = beta**2 - alpha * zeta
    first = (k * case.N + 2 * gamma * zeta * case.c + gamma**2) * t
    return -(t**3) + (alpha + zeta * case.N) * t**2 + first + (2 * gamma * k * case.c - alpha * gamma**2)


def bulk_factor(case: Attention, t: Tensor) -> Tensor:
    """(t^2 - gamma^2)^(d_K - 1)."""
    return (t**2 - case.scalars[2] ** 2) ** (case.dk - 1)


@row(
    "A2",
    "[cracking] Thm 3.5 and its cubic",
    "The spectrum is d_K - 1 pairs ±γ and the three roots of a cubic.",
    "holds",
    "All cases, batches of sequences too (average α, β, γ, ζ). Take the roots from a 3 x 3 symmetric matrix.",
)
def attention_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        t = outside(case.H, generator)
        error = polynomial_gap(-cubic(case, t) * bulk_factor(case, t), oracle.characteristic(case.H, t))
        yield Seen(error, corrected=gap(spectrum(case), case.H))


def depressed_gap(case: Attention, t: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """Error of t^3 + p t + q, shifted by T/3 and times the bulk, against the network's characteristic polynomial."""
    s = t - depressed(case)[0] / 3
    return polynomial_gap((s**3 + p * s + q) * bulk_factor(case, t), oracle.characteristic(case.H, t))


@row("A3", "[cracking] B.5, p", "p of the depressed cubic.", "holds")
def coefficient_p(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        _, p, q = depressed(case)
        yield Seen(depressed_gap(case, outside(case.H, generator), p, q))


@row(
    "A4",
    "[cracking] B.5, q",
    "q = -(1/27)(2T³ + 9T(β²-αζ)N + 2γζ<wQ,wK> + γ² + 27(...)), T = α + ζN, N = |wQ|² + |wK|².",
    "corrected",
    "A pair of parentheses is lost: 9T((β²-αζ)N + 2γζ<wQ,wK> + γ²).",
    kind="misprint",
)
def coefficient_q(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        (alpha, beta, gamma, zeta), (T, p, q), t = case.scalars, depressed(case), outside(case.H, generator)
        k = beta**2 - alpha * zeta
        last = 27 * (2 * gamma * k * case.c - alpha * gamma**2)
        printed = -(2 * T**3 + 9 * T * k * case.N + 2 * gamma * zeta * case.c + gamma**2 + last) / 27
        yield Seen(depressed_gap(case, t, p, printed), depressed_gap(case, t, p, q))


def interval_excess(case: Attention, width: Tensor) -> Tensor:
    """By how much an outlier leaves [T/3 - width, T/3 + width]; nan where the width has no value."""
    centre = depressed(case)[0] / 3
    return ((case.true_outliers - centre.unsqueeze(-1)).abs().amax(-1) - width).clamp(min=0.0) / case.unit


@row(
    "A5",
    "[cracking] Thm 3.5 (twice) and end of B.5",
    "The outliers lie within ξ of tr/3, where ξ contains (ζ|wK| + ζ|wQ| + α)².",
    "corrected",
    "The norms are squared: (ζ|wK|² + ζ|wQ|² + α)². As printed the radicand can be negative and the bounds violated.",
    kind="misprint",
)
def half_width(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        yield Seen(interval_excess(case, printed_xi(case)), interval_excess(case, xi(case)))


def viete(case: Attention, factor: Tensor | float) -> Tensor:
    """Roots by Viete's formula with `factor` in front of the arguments of cos and arccos; clipped, p = 0 allowed."""
    T, p, q = depressed(case)
    p = p.clamp(max=-1e-300)
    angle = torch.arccos((factor * 3 * q / (2 * p) * (-3 / p).sqrt()).clamp(-1, 1)) / 3
    roots = [2 * (-p / 3).sqrt() * torch.cos(factor * (angle - k * 2 * torch.pi / 3)) + T / 3 for k in range(3)]
    return torch.stack(roots, -1).sort(-1).values


@row(
    "A6",
    "[cracking] B.5, trigonometric roots",
    "The roots contain 'cos ζ(...)' and 'arccos ζ(...)'.",
    "corrected",
    "cos and arccos (argument clipped to [-1, 1]); half the digits go at a double root, so prefer the 3 x 3 matrix.",
    kind="damaged text",
    tolerance=1e-6,
)
def trigonometric_roots(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        wrong, right = viete(case, case.scalars[3]), viete(case, 1.0)
        printed, corrected = ((t - case.true_outliers).abs().amax(-1) / case.unit for t in (wrong, right))
        yield Seen(printed, corrected)


@row(
    "A7",
    "[cracking] Rem. B.3",
    "For γ = 0 the cubic leaves two outliers, given by a quadratic.",
    "holds",
    "All other 2 d_K - 1 eigenvalues are zero.",
)
def no_gamma(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        alpha, beta, gamma, zeta = case.scalars
        T, none = alpha + zeta * case.N, gamma.abs() < 1e-13
        root = (T**2 + 4 * (beta**2 - alpha * zeta) * case.N).clamp(min=0.0).sqrt() / 2
        spectrum = torch.cat([torch.stack([T / 2 + root, T / 2 - root], -1), repeat(0 * T, 2 * case.dk - 1)], -1)
        yield Seen(gap(spectrum, case.H)[none])


@row(
    "A15",
    "[cracking] Rem. B.2",
    "The query-key block is the Hessian of a scalar linear network, with ζ for σ² and γ for dx; its bulk is ±γ.",
    "holds",
    "Also for ζ < 0.",
)
def query_key_block(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        _, _, gamma, zeta = case.scalars
        outliers = pair(dot(case.wQ, case.wQ), dot(case.wK, case.wK), case.c, zeta, gamma)
        bulk = repeat(gamma, case.dk - 1)
        yield Seen(gap(torch.cat([torch.stack(outliers, -1), bulk, -bulk], -1), case.H[:, 1:, 1:]))


def chain(case: Attention, t: Tensor, power: int, weight: Tensor) -> Tensor:
    """The matrix `zeta t^power wQ wQ^T + zeta gamma t (...) + zeta weight^2 wK wK^T - nu I` of B.5."""
    _, beta, gamma, zeta = case.scalars
    e2 = beta**2 / (zeta * (zeta * t + beta**2 - case.scalars[0] * zeta)) + dot(case.wK, case.wK) / t
    Q, K = case.wQ.unsqueeze(-1), case.wK.unsqueeze(-1)
    a, b, c = zeta * t**power, zeta * gamma * t, zeta * weight**2
    nu = t * (1 - zeta * e2) * (t**2 - gamma**2)
    M = a[:, None, None] * Q @ Q.mT + b[:, None, None] * (Q @ K.mT + K @ Q.mT) + c[:, None, None] * K @ K.mT
    return (M - nu[:, None, None] * torch.eye(case.dk, dtype=torch.float64)) / (t**2 * (1 - zeta * e2))[:, None, None]


@row(
    "A16",
    "[cracking] B.5, from the Schur complement to |ζ w wᵀ - ν I|",
    "The chain of determinants, with ζ λ⁻² wQ wQᵀ, and w = λ wQ + t wK with t undefined.",
    "corrected",
    "ζ λ² wQ wQᵀ and w = λ wQ + γ wK; 'the determinant of D is not zero' means A. ζ ≠ 0 is needed by the proof only.",
    kind="misprint",
)
def determinant_chain(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        usable, t, dk = case.scalars[3].abs() > 1e-3, outside(case.H, generator), case.dk
        head = case.H[:, : dk + 1, : dk + 1] - t[:, None, None] * torch.eye(dk + 1, dtype=torch.float64)
        cross = case.H[:, : dk + 1, dk + 1 :]
        tail = case.H[:, dk + 1 :, dk + 1 :] - t[:, None, None] * torch.eye(dk, dtype=torch.float64)
        schur = tail - cross.mT @ torch.linalg.solve(head, cross)
        gamma = case.scalars[2]
        printed, corrected = (matrix_gap(chain(case, t, power, gamma), schur)[usable] for power in (-2, 2))
        yield Seen(printed, corrected)


def gauss_newton(case: Attention) -> Tensor:
    """Nonzero part of the Gauss-Newton matrix, 2 x 2."""
    m1, m2, _ = case.moments
    slope, w, root = case.X * m2, case.wV, case.dk**0.5
    b = w * (m1 * slope).flatten(1).mean(-1) / root
    z = w**2 * slope.square().flatten(1).mean(-1) / case.dk
    off = b * case.N.sqrt()
    return torch.stack([torch.stack([case.scalars[0], off], -1), torch.stack([off, z * case.N], -1)], -2)


@row(
    "A17",
    "ours, beside [cracking] Sec. 3.3",
    "The Gauss-Newton matrix has rank at most 2: the eigenvalues of [[α, β_G √N], [β_G √N, ζ_G N]].",
    "holds",
    "β_G = w_V m1·(x⊙m2)/(L√d_K), ζ_G = w_V²|x⊙m2|²/(L d_K), for one sequence; averages for a batch.",
    kind="ours",
)
def attention_gauss_newton(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        G = oracle.gauss_newton(lambda theta, X: attention(theta, X).flatten(), case.theta, case.X)
        few = torch.linalg.eigvalsh(gauss_newton(case))
        yield Seen(gap(torch.cat([few, repeat(0 * case.N, 2 * case.dk - 1)], -1), G))


@row(
    "A19",
    "[cracking] after Thm 3.5",
    "The same spectrum results for any twice differentiable activation applied row by row.",
    "holds",
    "α, β, γ, ζ are then the second derivatives in (w_V, <wQ,wK>) of the loss.",
)
def other_activations(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for name in ACTIVATIONS:
        for shape in ((2, 1, 4), (3, 2, 3)):
            case = draw(generator, 8 * profile.batch, *shape)

            def whole(theta: Tensor, X: Tensor, Y: Tensor, name: str = name) -> Tensor:
                return (attention(theta, X, name) - Y).square().mean() / 2

            def scalar(ac: Tensor, X: Tensor, Y: Tensor, name: str = name, dk: int = case.dk) -> Tensor:
                ones = torch.zeros(dk - 1, dtype=ac.dtype)
                theta = torch.cat([ac[:1], ac[1:], ones, torch.ones_like(ac[1:]), ones])
                return (attention(theta, X, name) - Y).square().mean() / 2

            H = oracle.hessians(whole, case.theta, case.X, case.Y)
            ac = torch.stack([case.wV, case.c], -1)
            second, slope = oracle.hessians(scalar, ac, case.X, case.Y), oracle.gradients(scalar, ac, case.X, case.Y)
            gamma = slope[:, 1]
            few = three(second[:, 0, 0], second[:, 0, 1], gamma, second[:, 1, 1], case.wQ, case.wK)
            bulk = repeat(gamma, case.dk - 1)
            yield Seen(gap(torch.cat([few, bulk, -bulk], -1), H))
