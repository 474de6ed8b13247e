"""Rows on the spectrum of the scalar two-layer linear network: [poster]; [cracking] 3.1, B.1, C; [closed-form] 1, A."""

from collections.abc import Iterator

import torch
from torch import Tensor

from . import library, oracle
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import excess, gap, matrix_gap, normal, number_gap, outside, polynomial_gap, uniform
from .scalar_cases import Scalar, cases, dot, generic, printed_outliers, with_bulk

SECTION = Ledger()
row = SECTION.row


@row(
    "L1",
    "[cracking] Thm 3.1, eq. 1, 29; [closed-form] Thm 1",
    "The spectrum is +dx and -dx, m - 1 times each, and two outliers Λ(|w|², |v|², <w,v>, σ², dx).",
    "holds",
    "In every degenerate case too; 'm - 1 repeated' means m - 1 of each sign.",
)
def scalar_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        yield Seen(gap(with_bulk(case, *printed_outliers(case)), case.H), library=gap(library.scalar_linear(case), case.H))


def squares(case: Scalar, weight: Tensor | float) -> tuple[Tensor, Tensor]:
    """Outliers in the form of eq. 2, whose last square is (2 weight <w,v> - mean xy)^2."""
    s2, imbalance = case.s2, (case.W - case.V).square()
    inside = s2**2 * imbalance + 4 * s2**2 * (case.W * case.V - case.c**2) + 4 * (2 * weight * case.c - case.yx).square()
    half, root = s2 * (case.W + case.V) / 2, inside.clamp(min=0.0).sqrt() / 2
    return half + root, half - root


@row(
    "L2",
    "[cracking] eq. 2; [closed-form] Sec. 1",
    "The outliers with a sum of squares under the root: imbalance of norms, non-collinearity, (2<w,v>σ² - mean xy)².",
    "holds",
)
def semantic_form(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        yield Seen(gap(with_bulk(case, *squares(case, case.s2)), case.H))


@row(
    "L3",
    "[poster] outlier formula",
    "The same formula with the last square (2<w,v> - mean xy)², without σ².",
    "corrected",
    "The square is (2σ²<w,v> - mean xy)²; as printed it is right only for σ² = 1.",
    kind="misprint",
)
def poster_form(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        yield Seen(gap(with_bulk(case, *squares(case, 1.0)), case.H), gap(with_bulk(case, *squares(case, case.s2)), case.H))


@row(
    "L4",
    "[poster] definitions",
    "σ² = -Σ x_i², and the bulk is ± mean(x) mean(δ).",
    "corrected",
    "σ² = (1/n) Σ x_i² and λ_bulk = ± mean(x δ); both are damaged in the text as extracted.",
    kind="damaged text",
)
def poster_definitions(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        x, delta = case.x, case.c.unsqueeze(-1) * case.x - case.y
        printed = definitions_gap(case, -x.square().sum(-1), x.mean(-1) * delta.mean(-1))
        yield Seen(printed, definitions_gap(case, case.s2, case.d))


def definitions_gap(case: Scalar, s2: Tensor, bulk: Tensor) -> Tensor:
    """Error of tr H_vv = s2 |w|^2 and tr H_vw = s2 <w, v> + m dx against the network."""
    m = case.m
    block, cross = (B.diagonal(dim1=-2, dim2=-1).sum(-1) for B in (case.H[:, :m, :m], case.H[:, :m, m:]))
    return number_gap(s2 * case.W, block, case.unit) + number_gap(s2 * case.c + m * bulk, cross, case.unit)


def blocks(case: Scalar, left: Tensor, right: Tensor) -> Tensor:
    """Claimed Hessian in the order (v, w), with upper-right block s2 left right^T + dx I."""
    s2, eye = case.s2[:, None, None], torch.eye(case.m, dtype=torch.float64)

    def outer(a: Tensor, b: Tensor) -> Tensor:
        return s2 * a.unsqueeze(-1) * b.unsqueeze(-2)

    lower = outer(case.v, case.w) + case.d[:, None, None] * eye
    upper = outer(left, right) + case.d[:, None, None] * eye
    return torch.cat([torch.cat([outer(case.w, case.w), upper], -1), torch.cat([lower, outer(case.v, case.v)], -1)], -2)


@row(
    "L5",
    "[cracking] eq. 10, 11",
    "The upper-right block of the Hessian is σ² v vᵀ + dx I.",
    "corrected",
    "σ² w vᵀ + dx I, as eq. 13 and 35 have it.",
    kind="misprint",
)
def cracking_block(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        yield Seen(matrix_gap(blocks(case, case.v, case.v), case.H), matrix_gap(blocks(case, case.w, case.v), case.H))


def schur(case: Scalar, t: Tensor, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
    """A - t - B (D - t)^{-1} C with B = s2 left left'^T + dx I and C = s2 right right'^T + dx I."""
    s2, d, eye = case.s2[:, None, None], case.d[:, None, None], torch.eye(case.m, dtype=torch.float64)
    B, C = (s2 * a.unsqueeze(-1) * b.unsqueeze(-2) + d * eye for a, b in (left, right))
    A, D = (s2 * a.unsqueeze(-1) * a.unsqueeze(-2) - t[:, None, None] * eye for a in (case.w, case.v))
    return A - B @ torch.linalg.solve(D, C)


@row(
    "L6",
    "[closed-form] eq. 12-14, 16",
    "The upper-right block is σ² v wᵀ + dx I; the Schur complement has the factors (σ² w wᵀ + dx I) and (σ² v vᵀ + dx I).",
    "corrected",
    "σ² w vᵀ + dx I; the factors are (σ² w vᵀ + dx I) and (σ² v wᵀ + dx I).",
    kind="misprint",
)
def closed_form_block(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        t, m = outside(case.H, generator), case.m
        eye = t[:, None, None] * torch.eye(m, dtype=torch.float64)
        A, B, C, D = case.H[:, :m, :m], case.H[:, :m, m:], case.H[:, m:, :m], case.H[:, m:, m:]
        true = A - eye - B @ torch.linalg.solve(D - eye, C)
        w, v = case.w, case.v
        printed = matrix_gap(blocks(case, v, w), case.H) + matrix_gap(schur(case, t, (w, w), (v, v)), true)
        yield Seen(printed, matrix_gap(blocks(case, w, v), case.H) + matrix_gap(schur(case, t, (w, v), (v, w)), true))


@row("L7", "[cracking] eq. 12", "H ∇ℓ = (dx σ²(|w|²+|v|²) w + dx² v; dx σ²(|w|²+|v|²) v + dx² w).", "holds")
def hessian_times_gradient(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        a, b = (case.d * case.s2 * (case.W + case.V)).unsqueeze(-1), case.d.square().unsqueeze(-1)
        claimed = torch.cat([a * case.w + b * case.v, a * case.v + b * case.w], -1)
        true = (case.H @ case.gradient.unsqueeze(-1)).squeeze(-1)
        yield Seen((claimed - true).norm(dim=-1) / (case.unit * case.gradient.norm(dim=-1).clamp(min=1.0)))


def cubic(case: Scalar, t: Tensor) -> Tensor:
    """The third-degree expression s2 |z|^2 - nu of eq. 28, expanded as in eq. 31."""
    return -(t**3) + case.s2 * (case.W + case.V) * t**2 + t * (case.d**2 + 2 * case.s2 * case.d * case.c)


def derivation_errors(case: Scalar, t: Tensor, z: Tensor) -> Iterator[Tensor]:
    """Errors of the steps of the proof at a random point t of the eigenvalue variable and a random vector z."""
    m, s2, d, V = case.m, case.s2, case.d, case.V
    eye = torch.eye(m, dtype=torch.float64)
    outer = case.v.unsqueeze(-1) * case.v.unsqueeze(-2)
    yield matrix_gap(torch.cat([d.unsqueeze(-1) * case.w, d.unsqueeze(-1) * case.v], -1), case.gradient)  # eq. 5, 6
    yield matrix_gap(blocks(case, case.w, case.v), case.H)  # eq. 7-9
    inverse = torch.linalg.inv(case.H[:, m:, m:] - t[:, None, None] * eye)
    woodbury = -eye / t[:, None, None] - (s2 / (t * (t - V * s2)))[:, None, None] * outer
    yield matrix_gap(woodbury * t[:, None, None], inverse * t[:, None, None])  # eq. 15
    whole = s2 + s2**2 * V / t + s2**3 * V**2 / (t * (t - s2 * V))
    yield number_gap(whole, s2 * t / (t - s2 * V), whole.abs())  # eq. 20, 21
    mixed = s2 * d / t + s2**2 * d * V / (t * (t - s2 * V))
    yield number_gap(mixed, s2 * d / (t - s2 * V), mixed.abs())  # eq. 22, 23
    arrow = t.unsqueeze(-1) * case.w + d.unsqueeze(-1) * case.v
    nu = (t**2 - d**2) * (t - s2 * V)
    yield polynomial_gap(cubic(case, t), s2 * dot(arrow, arrow) - nu)  # eq. 31 from 26-28
    true = oracle.characteristic(case.H, t)
    yield polynomial_gap(-cubic(case, t) * (t**2 - d**2) ** (m - 1), t * true)  # eq. 32 against the network
    top, low = case.true_outliers
    total = case.W + case.V
    yield number_gap(s2 * total, top + low, case.unit)  # eq. 33: sum and
    yield number_gap(-(d**2 + 2 * s2 * d * case.c), top * low, case.unit**2)  # product of the roots
    for sign in (1.0, -1.0):  # eq. 48-53: z1 = sign z2
        lhs = dot(case.w, top.unsqueeze(-1) * z + sign * d.unsqueeze(-1) * z)
        lhs = lhs + dot(case.v, d.unsqueeze(-1) * z + sign * top.unsqueeze(-1) * z)
        rhs = (top + sign * d) * dot(case.w + sign * case.v, z)
        yield number_gap(lhs, rhs, case.unit * z.norm(dim=-1) * total.sqrt())


@row(
    "L8",
    "[cracking] eq. 5-9, 13-29, 31-33, 48-53; [closed-form] the same chain",
    "The steps of the proof: gradients, blocks, Woodbury inverse, coefficients, characteristic polynomial, orthogonality.",
    "holds",
    "λ ≠ 0 and λ ≠ σ²|v|² are needed by the proof only, not by the result.",
)
def derivation(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        errors = list(derivation_errors(case, outside(case.H, generator), normal(generator, *case.w.shape)))
        yield Seen(torch.stack(errors).amax(0))


@row(
    "L8a",
    "[cracking] eq. 28; [closed-form] eq. 28",
    "det(σ² z zᵀ - ν I) = ν^(m-1) (σ²|z|² - ν).",
    "corrected",
    "A factor (-1)^(m-1) is missing; harmless, because the determinant is set to zero.",
    kind="misprint",
)
def determinant_sign(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        nu, m = uniform(generator, len(case.c), low=0.5, high=2.0), case.m
        M = case.s2[:, None, None] * case.w.unsqueeze(-1) * case.w.unsqueeze(-2)
        true = torch.linalg.det(M - nu[:, None, None] * torch.eye(m, dtype=torch.float64))
        claimed = nu ** (m - 1) * (case.s2 * case.W - nu)
        size = nu ** (m - 1) * (case.s2 * case.W + nu)
        yield Seen((claimed - true).abs() / size, ((-1) ** (m - 1) * claimed - true).abs() / size)


@row(
    "L9",
    "[cracking] eq. 30; [closed-form] eq. 30",
    "The cubic of the outliers contains the terms -λ³ + dx²|v|² + dx² - σ²dx²|v|².",
    "corrected",
    "They are -λ³ + σ²|v|²λ² + dx²λ - σ²dx²|v|²; eq. 31 is right again.",
    kind="misprint",
)
def cubic_terms(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        t, s2, d2 = outside(case.H, generator), case.s2, case.d**2
        first = s2 * t**2 * case.W + s2 * d2 * case.V + 2 * s2 * case.d * t * case.c - t**3
        true = -t * oracle.characteristic(case.H, t) / (t**2 - d2) ** (case.m - 1)
        printed = first + d2 * case.V + d2 - s2 * d2 * case.V
        corrected = first + s2 * case.V * t**2 + d2 * t - s2 * d2 * case.V
        yield Seen(polynomial_gap(printed, true), polynomial_gap(corrected, true))


@row(
    "L10",
    "[cracking] after eq. 34; [closed-form] after eq. 34",
    "The most negative eigenvalue is -dx.",
    "corrected",
    "λ_min = -|dx| for m ≥ 2; for m = 1 it is the small outlier, which is at least -|dx|.",
)
def smallest(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        true = torch.linalg.eigvalsh(case.H)[:, 0]
        claimed = -case.d.abs() if case.m > 1 else printed_outliers(case)[1]
        yield Seen(number_gap(-case.d, true, case.unit), number_gap(claimed, true, case.unit))


@row("L11", "[cracking] after eq. 34; [closed-form] after eq. 34", "λ_min ≥ -sqrt(2 loss) σ.", "holds")
def smallest_bound(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        true = torch.linalg.eigvalsh(case.H)[:, 0]
        yield Seen(excess(-(2 * case.loss * case.s2).sqrt(), true, case.unit))


@row(
    "L12",
    "[cracking] Thm 3.1, footnote a",
    "The small outlier can overlap with the bulk.",
    "holds",
    "More is true: -|dx| ≤ λ₂ ≤ |dx| ≤ λ₁ always, so the small outlier never leaves the interval of the bulk.",
)
def interlacing(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        (top, low), d = case.true_outliers, case.d.abs()
        yield Seen(excess(low.abs(), d, case.unit), excess(d, top, case.unit))


@row(
    "L19",
    "[cracking] eq. 122, after eq. 33; [closed-form] eq. 2",
    "λ₁,₂ = tr/2 ± sqrt(tr²/4 - λ₁λ₂), and -λ₁λ₂ = (<w,v>σ² - mean xy)(3<w,v>σ² - mean xy).",
    "holds",
    "λ₂ = -dx (dx + 2σ²<w,v>)/λ₁ keeps more digits.",
)
def trace_form(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        top, low = case.true_outliers
        product = -(case.c * case.s2 - case.yx) * (3 * case.c * case.s2 - case.yx)
        trace = case.s2 * (case.W + case.V)
        root = (trace**2 / 4 - product).clamp(min=0.0).sqrt()
        stable = torch.where(top > 0, -case.d * (case.d + 2 * case.s2 * case.c) / torch.where(top > 0, top, 1.0), 0.0)
        errors = (trace / 2 + root - top, trace / 2 - root - low, (product - top * low) / case.unit)
        yield Seen(sum(e.abs() for e in errors) / case.unit, number_gap(stable, low, case.unit))


def phases(generator: torch.Generator, profile: Profile) -> Iterator[tuple[Scalar, Tensor]]:
    """Generic cases whose target slope is spread around <w, v>, with that slope."""
    for case in generic(generator, profile):
        slope = case.c / uniform(generator, len(case.c), low=-1.0, high=2.0)
        slope = torch.where(torch.arange(len(slope)) % 6 == 0, 0.0, slope)
        y = case.y + ((slope * case.s2 - case.yx) / case.s2).unsqueeze(-1) * case.x
        yield Scalar(case.w, case.v, case.x, y), slope


@row(
    "L20",
    "[cracking] App. C; [closed-form] Sec. 1",
    "With θ* = mean xy/σ²: late phase θ*/3 ≤ <w,v> ≤ θ* has λ₂ ≥ 0 (λ₁ ≤ tr); before and beyond it λ₂ ≤ 0 (λ₁ ≥ tr).",
    "corrected",
    "That is so for θ* > 0. In general λ₂ ≥ 0 exactly when 1/3 ≤ <w,v>/θ* ≤ 1; for θ* = 0 always λ₂ ≤ 0.",
)
def learning_phases(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case, slope in phases(generator, profile):
        low, c = case.true_outliers[1] / case.unit, case.c
        late, early, beyond = (slope / 3 <= c) & (c <= slope), c <= slope / 3, c >= slope
        printed = torch.where(late, (-low).clamp(min=0.0), 0.0)
        printed = torch.maximum(printed, torch.where(early | beyond, low.clamp(min=0.0), 0.0))
        ratio = c / slope
        yield Seen(printed, torch.where((ratio >= 1 / 3) & (ratio <= 1), -low, low).clamp(min=0.0))


@row(
    "L21",
    "[cracking] App. C; [closed-form] Sec. 1",
    "At the solution H has rank one and λ₁ = tr H.",
    "holds",
    "The solution is dx = 0; the loss there may be positive.",
)
def rank_at_solution(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        solved = case.kept(case.of_kind("solved", "solved, w = v"))
        true = torch.linalg.eigvalsh(solved.H)
        rest = true[:, :-1].abs().amax(-1) / solved.unit
        yield Seen(torch.maximum(rest, number_gap(true[:, -1], solved.s2 * (solved.W + solved.V), solved.unit)))


@row(
    "L22",
    "[poster]; [cracking] Sec. 3.1, Fig. 7; [closed-form] Sec. 1",
    "Eigenvalues scale in proportion to the input variance.",
    "corrected",
    "Only if the targets are scaled too, H(kx, ky) = k² H(x, y), or if mean xy = 0.",
)
def input_scale(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        k = 3.0
        claimed = k**2 * torch.linalg.eigvalsh(case.H)
        inputs_only = Scalar(case.w, case.v, k * case.x, case.y).H
        yield Seen(gap(claimed, inputs_only), gap(claimed, Scalar(case.w, case.v, k * case.x, k * case.y).H))


@row("L23", "[poster]", "Outliers come as a pair, of which one remains at convergence.", "holds")
def one_outlier_left(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        solved = case.kept(case.of_kind("solved", "solved, w = v"))
        magnitudes = torch.linalg.eigvalsh(solved.H).abs() / solved.unit.unsqueeze(-1)
        yield Seen(((magnitudes > 1e-9).sum(-1) != 1).to(torch.float64))


@row(
    "L24",
    "[cracking] Sec. 3.2; [closed-form] Sec. 2",
    "The ReLU is (a)₊ = 1{a > 0}.",
    "corrected",
    "(a)₊ = a 1{a > 0}, which is what eq. 3 uses.",
    kind="misprint",
)
def relu_definition(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        a = case.v.unsqueeze(-1) * case.x.unsqueeze(-2)
        fires, true = a.gt(0).to(a.dtype), torch.relu(a)
        yield Seen((fires - true).abs().flatten(1).amax(-1), (a * fires - true).abs().flatten(1).amax(-1))
