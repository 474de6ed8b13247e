"""Rows on bounds and prose about self-attention: [cracking] Rem. 3.1, B.4, Sec. 3.3, 4.3, D.2."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from . import oracle
from .attention_cases import Attention, attention, cases, depressed, draw, loss, printed_xi, spectrum, xi
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import excess, normal, number_gap
from .scalar_cases import generic as scalar_generic

SECTION = Ledger()
row = SECTION.row
NAMES = {"1/d_K": "variance 1/d_K", "unit norm": "unit vectors", "1": "variance 1"}


def centre(case: Attention) -> Tensor:
    """tr H / 3."""
    return depressed(case)[0] / 3


@row(
    "A8",
    "[cracking] before Rem. B.4, from Viete's formula",
    "With ξ = 2 sqrt(-p/3), the largest outlier lies between tr/3 + ξ/2 and tr/3 + ξ.",
    "holds",
)
def largest_outlier(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        top, mid, half = case.true_outliers[:, -1], centre(case), xi(case)
        yield Seen(torch.maximum(excess(top, mid + half, case.unit), excess(mid + half / 2, top, case.unit)))


def counterexamples(generator: torch.Generator, batch: int) -> Attention:
    """d_K = 2, one sequence: eigenvalues -58.3, -33.70, -33.66, 3.45, 33.70 with upper bound 6.38; then its neighbours."""
    weights = torch.tensor([-6.653, -0.788, -0.287, -0.809, -0.295], dtype=torch.float64)
    data = torch.tensor([2.239, 0.147, -0.456, -0.225, -2.606, -11.936], dtype=torch.float64)
    shake = 0.03 * normal(generator, batch, 11)
    shake[0] = 0.0
    wV, wQ, wK, X, Y = (torch.cat([weights, data]) * (1 + shake)).split([1, 2, 2, 3, 3], -1)
    return Attention(wV.squeeze(-1), wQ, wK, X.unsqueeze(-2), Y.unsqueeze(-2))


@row(
    "A9",
    "[cracking] Rem. B.4, eq. 121",
    "The same two bounds hold for the largest eigenvalue of H (ξ with squared norms).",
    "holds under",
    "ζ ≥ 0. For ζ < 0 the bulk can be on top: λ_max = max(l₀, |γ|) for d_K ≥ 2. The lower bound always holds.",
)
def largest_eigenvalue(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    worst = 0.0
    for case in (counterexamples(generator, 8 * profile.batch), *cases(generator, profile)):
        top, mid, half = torch.linalg.eigvalsh(case.H)[:, -1], centre(case), xi(case)
        error = torch.maximum(excess(top, mid + half, case.unit), excess(mid + half / 2, top, case.unit))
        outlier, gamma = case.true_outliers[:, -1], case.scalars[2].abs()
        exact = torch.maximum(outlier, gamma) if case.dk > 1 else outlier
        worst = max(worst, float(number_gap(exact, top, case.unit).amax()))
        yield Seen(error, condition=case.scalars[3] >= -1e-12 * case.unit)
    yield Seen(numbers={"error of max(l₀, |γ|)": worst})


@row(
    "A10",
    "[cracking] Sec. 3.3, Rem. 3.1",
    "The eigenvalue of largest magnitude is the largest outlier.",
    "corrected",
    "|λ|_max = max(|l₀|, |l₂|, |γ|): for ζ < 0 it can be negative, or the bulk.",
)
def largest_magnitude(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        true, outliers = oracle.radius(case.H), case.true_outliers
        ends = outliers[:, [0, -1]].abs().amax(-1)
        corrected = torch.maximum(ends, case.scalars[2].abs()) if case.dk > 1 else ends
        yield Seen(number_gap(outliers[:, -1], true, case.unit), number_gap(corrected, true, case.unit))


@row(
    "A11",
    "[cracking] Rem. 3.1",
    "κ(H) ≥ (2 tr + 3ξ)/(6|γ|).",
    "corrected",
    "With the ξ of A5 (norms squared); d_K = 1 included. Exactly, κ = max(|l_k|, |γ|)/min(|l_k|, |γ|); γ = 0 is singular.",
)
def condition_number(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        gamma = case.scalars[2].abs()
        true = torch.linalg.eigvalsh(case.H).abs()
        regular = gamma > 1e-9 * case.unit
        errors = []
        for width in (printed_xi(case), xi(case)):
            bound = (2 * depressed(case)[0] + 3 * width) / (6 * gamma)
            errors.append(((bound * true.amin(-1) - true.amax(-1)).clamp(min=0.0) / case.unit)[regular])
        sound = regular & (true.amin(-1) > 1e-6 * case.unit)  # the reciprocal of kappa, where it has digits
        claimed = spectrum(case).abs()
        exact = (claimed.amin(-1) / claimed.amax(-1) - true.amin(-1) / true.amax(-1)).abs()[sound]
        yield Seen(errors[0], torch.cat([errors[1], exact]))


@row(
    "A21",
    "[cracking] Sec. 3.3",
    "The positive bulk bounds the smallest magnitude from above, |λ|_min ≤ |γ|.",
    "holds",
    "For d_K = 1 too, where there is no bulk.",
)
def smallest_magnitude(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        yield Seen(excess(torch.linalg.eigvalsh(case.H).abs().amin(-1), case.scalars[2].abs(), case.unit))


def with_keys(case: Attention, query: float, key: float) -> Attention:
    """The same head with w_Q and w_K scaled."""
    return Attention(case.wV, query * case.wQ, key * case.wK, case.X, case.Y)


def decrease(series: list[Tensor]) -> Tensor:
    """Largest relative decrease along a series."""
    steps = [(a - b).clamp(min=0.0) / a.abs().clamp(min=1e-300) for a, b in pairwise(series)]
    return torch.stack(steps).amax(0)


@row(
    "A12",
    "[cracking] after Rem. 3.1",
    "The condition number is monotone in the magnitude of the query and key weights.",
    "holds under",
    "<wQ,wK> is held fixed and ζ ≥ 0. Scaling both weights changes the scores, and κ may fall.",
)
def monotone(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for shape in ((2, 1, 4), (3, 2, 3)):
        sizes = (shape[0], shape[0])
        b = 60 * profile.batch
        wQ, wK = (normal(generator, b, k) for k in sizes)
        ratio = (wK.norm(dim=-1) / wQ.norm(dim=-1)).sqrt().unsqueeze(-1)
        X, Y = (normal(generator, b, *shape[1:]) for _ in range(2))
        case = Attention(normal(generator, b), ratio * wQ, wK / ratio, X, Y)
        grid = (1.0, 1.3, 1.7, 2.2)
        for fixed in (True, False):
            heads = [with_keys(case, s, 1 / s if fixed else s) for s in grid]
            magnitudes = [torch.linalg.eigvalsh(h.H).abs() for h in heads]
            sound = (case.scalars[2].abs() > 1e-3) & (magnitudes[0].amin(-1) > 1e-6)
            kappa = [m.amax(-1) / m.amin(-1) for m in magnitudes]
            condition = (case.scalars[3] >= 0) if fixed else torch.zeros(b, dtype=torch.bool)
            yield Seen(decrease(kappa)[sound], condition=condition[sound])


@row(
    "A13",
    "[cracking] Sec. 3.3, citing Noci et al.",
    "At initialisation the attention scores tend to the uniform distribution as d_K grows.",
    "holds under",
    "<wQ,wK>/√d_K → 0: entries of variance 1/d_K, or vectors of unit norm. Not for entries of variance 1.",
    tolerance=0.01,
)
def uniform_scores(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for dk in (1024, 16384):
        for scheme in ("1/d_K", "unit norm", "1"):
            wQ, wK = (normal(generator, 20 * profile.batch, dk) for _ in range(2))
            if scheme == "1/d_K":
                wQ, wK = wQ / dk**0.5, wK / dk**0.5
            elif scheme == "unit norm":
                wQ, wK = (w / w.norm(dim=-1, keepdim=True) for w in (wQ, wK))
            x = torch.linspace(-1.5, 1.5, 5, dtype=torch.float64)
            scores = x.unsqueeze(-1) * x * ((wQ * wK).sum(-1) / dk**0.5)[:, None, None]
            deviation = (torch.softmax(scores, -1) - 0.2).abs().mean()
            yield Seen(deviation.unsqueeze(0), condition=torch.tensor([scheme != "1"]))
            if dk > 10000:
                yield Seen(numbers={f"mean deviation at d_K = {dk}, entries of {NAMES[scheme]}": float(deviation)})


@row(
    "A14",
    "[cracking] Sec. 3.3, Figs. 2c, 9",
    "As an attention sink grows, the bulk shrinks and (if its activation is large) the largest eigenvalue grows.",
    "corrected",
    "In the limit γ → 0 and λ_max → x_sink², so it has grown exactly if x_sink² exceeds its first value; not monotonically.",
    tolerance=1e-6,
)
def sinks(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    case = draw(generator, 60 * profile.batch, 3, 1, 4)
    X = normal(generator, *case.X.shape)
    X[..., 0] = oracle.uniform(generator, len(X), 1, low=0.2, high=5.0)
    theta, token = normal(generator, *case.theta.shape), torch.eye(4, dtype=torch.float64)[0]

    def biased(theta: Tensor, X: Tensor, Y: Tensor, bias: Tensor) -> Tensor:
        return (attention(theta, X, bias=bias * token) - Y).square().mean() / 2

    grid = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 300.0)
    spectra = [
        torch.linalg.eigvalsh(oracle.hessians(biased, theta, X, case.Y, torch.full((len(X),), b, dtype=torch.float64)))
        for b in grid
    ]
    tops, square = [s[:, -1] for s in spectra], X[:, 0, 0] ** 2
    unit = torch.stack(tops).amax(0).clamp(min=1.0)
    # The bulk +-gamma occurs twice on either side of the three outliers: the second smallest magnitude bounds it.
    limit = number_gap(tops[-1], square, unit) + spectra[-1][:, :-1].abs().amax(-1) / unit
    grows = (tops[-1] > tops[0]) == (square > tops[0])
    large = square > tops[0]
    yield Seen(printed=decrease(tops)[large], corrected=limit + (~grows).to(torch.float64))


@row(
    "A18",
    "[cracking] D.2, D.5, Fig. 27",
    "Gradient descent with η = 2.3, d_K = 2 on sequence reversal shows progressive sharpening and the edge of stability.",
    "not decidable from the text",
    "The input (x₁, x₂) is not given, and what happens depends on it: see the counts.",
)
def reversal_training(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    inputs = [(1.0, -1.0), (1.0, 0.5), (1.0, 2.0), (1.0, 3.0), (0.5, -0.5), (1.0, 0.0)]
    X = torch.tensor(inputs, dtype=torch.float64).repeat_interleave(3, 0).unsqueeze(-2)
    theta, Y, rate = 0.1 * normal(generator, len(X), 5), X.flip(-1), 2.3
    start, seen = oracle.values(loss, theta, X, Y), torch.zeros(len(X), dtype=torch.bool)
    for t in range(profile.pick(300, 3000)):
        theta = theta - rate * oracle.gradients(loss, theta, X, Y).nan_to_num(nan=0.0).clamp(-1e6, 1e6)
        if t % 20 == 0:
            H = oracle.hessians(loss, theta.clamp(-1e3, 1e3), X, Y).nan_to_num(nan=0.0)
            seen |= torch.linalg.eigvalsh(H)[:, -1] > 2 / rate
    end = oracle.values(loss, theta, X, Y)
    fell = end < start
    counts = {"diverged": ~fell, "sharper than 2/η and loss fell": fell & seen, "never above 2/η": fell & ~seen}
    yield Seen(numbers={"runs": len(X), **{name: int(mask.sum()) for name, mask in counts.items()}})


@row(
    "A20",
    "[cracking] Sec. 3.3, 4.3, Fig. 5",
    "The GGN's top eigenvalue approximates the Hessian's worse in networks with attention than in those without.",
    "not decidable from the text",
    "A hypothesis about trained GPT-2 models. On random small networks the medians of the relative gap are as shown.",
)
def gauss_newton_gap(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    case = draw(generator, 200 * profile.batch, 3, 1, 4)
    case = Attention(*(normal(generator, *t.shape) for t in (case.wV, case.wQ, case.wK, case.X, case.Y)))
    G = oracle.gauss_newton(lambda theta, X: attention(theta, X).flatten(), case.theta, case.X)
    top, ggn = torch.linalg.eigvalsh(case.H)[:, -1], torch.linalg.eigvalsh(G)[:, -1]
    linear = next(scalar_generic(generator, profile, widths=(3,)))
    flat = linear.s2 * (linear.W + linear.V)
    gaps = ((top - ggn).abs() / top.abs()).median(), ((linear.true_outliers[0] - flat).abs() / flat).median()
    yield Seen(numbers={"median gap, attention": float(gaps[0]), "median gap, linear": float(gaps[1])})
