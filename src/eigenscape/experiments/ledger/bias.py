"""Rows on the scalar linear network with hidden bias, w . (v x + b): [cracking] Thm B.1, B.3; [closed-form] Thm 6, D."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from . import library, oracle
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import excess, gap, kind_mask, matrix_gap, normal, number_gap, outside, polynomial_gap, repeat
from .scalar_cases import dot, pair
from .scalar_cases import draw as draw_scalar

SECTION = Ledger()
row = SECTION.row
WIDTHS = (1, 2, 3, 4, 8)
KINDS = ("random", "b = v", "w = v", "w = 0", "v = 0", "b = 0", "all 0", "x = 0", "shifted", "solved", "one sample")


def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Half the mean squared error of `w . (v x + b)`, theta = (w, v, b)."""
    w, v, b = theta.chunk(3)
    return ((w @ v) * x + w @ b - y).square().mean() / 2


@dataclass(frozen=True)
class Biased:
    """A batch of networks with hidden bias and their data; `d` and `e` are the means of x delta and of delta."""

    w: Float[Tensor, "b m"]
    v: Float[Tensor, "b m"]
    b: Float[Tensor, "b m"]
    x: Float[Tensor, "b n"]
    y: Float[Tensor, "b n"]

    @cached_property
    def H(self) -> Tensor:
        """Hessian by autograd, in the order (w, v, b)."""
        return oracle.hessians(loss, torch.cat([self.w, self.v, self.b], -1), self.x, self.y)

    @cached_property
    def unit(self) -> Tensor:
        """Return max(1, spectral radius)."""
        return oracle.scale(self.H)

    @property
    def m(self) -> int:
        """Width."""
        return self.w.shape[-1]

    @cached_property
    def delta(self) -> Tensor:
        """Residuals."""
        return dot(self.w, self.v).unsqueeze(-1) * self.x + dot(self.w, self.b).unsqueeze(-1) - self.y

    @cached_property
    def d(self) -> Tensor:
        """Mean of x delta."""
        return (self.x * self.delta).mean(-1)

    @cached_property
    def e(self) -> Tensor:
        """Mean of delta."""
        return self.delta.mean(-1)

    @cached_property
    def r2(self) -> Tensor:
        """d^2 + e^2."""
        return self.d**2 + self.e**2

    @cached_property
    def squares(self) -> tuple[Tensor, Tensor, Tensor]:
        """|w|^2, |v|^2, |b|^2."""
        return dot(self.w, self.w), dot(self.v, self.v), dot(self.b, self.b)

    @cached_property
    def products(self) -> tuple[Tensor, Tensor, Tensor]:
        """<w, v>, <w, b>, <v, b>."""
        return dot(self.w, self.v), dot(self.w, self.b), dot(self.v, self.b)


def general(generator: torch.Generator, profile: Profile) -> Iterator[Biased]:
    """Any data, any parameters, degenerate ones included."""
    batch = 3 * profile.batch * len(KINDS)
    for m in WIDTHS:
        w, v, b, x, y = (normal(generator, batch, k) for k in (m, m, m, 5, 5))

        def where(name: str, changed: Tensor, old: Tensor, batch: int = batch) -> Tensor:
            return torch.where(kind_mask(batch, KINDS, name).unsqueeze(-1), changed, old)

        b, v = where("b = v", v, where("b = 0", 0 * b, where("all 0", 0 * b, b))), where("w = v", w, v)
        w, v = where("w = 0", 0 * w, where("all 0", 0 * w, w)), where("v = 0", 0 * v, where("all 0", 0 * v, v))
        x = where("x = 0", 0 * x, where("shifted", x + 3, where("one sample", x[:, :1].expand_as(x), x)))
        y = where("one sample", y[:, :1].expand_as(y), y)
        case = Biased(w, v, b, x, y)
        yield Biased(w, v, b, x, where("solved", y + case.delta, y))


def white(generator: torch.Generator, profile: Profile, widths: tuple[int, ...] = WIDTHS[1:]) -> Iterator[Biased]:
    """Centred inputs of variance one, everything else arbitrary."""
    for case in general(generator, profile):
        x = normal(generator, *case.x.shape)
        x = x - x.mean(-1, keepdim=True)
        if case.m in widths:
            yield Biased(case.w, case.v, case.b, x / x.square().mean(-1, keepdim=True).sqrt(), case.y)


def assumed(generator: torch.Generator, profile: Profile, targets: str = "nothing to learn") -> Iterator[Biased]:
    """The assumptions of Thm B.1: white x, <v, b> = 0, |v| = |b|, and targets orthogonal to 1 and x (or `targets`)."""
    for case in white(generator, profile):
        frame = oracle.orthonormal(generator, len(case.w), case.m, 2)
        length = case.w.new_tensor(0.3) + oracle.uniform(generator, len(case.w), 1)
        v, b = length * frame[..., 0], length * frame[..., 1]
        slope, offset = (case.x * case.y).mean(-1, keepdim=True), case.y.mean(-1, keepdim=True)
        y = case.y - slope * case.x - offset
        if targets == "parallel":  # (mean yx, mean y) parallel to (<w, v>, <w, b>)
            y = y + offset * (dot(case.w, v).unsqueeze(-1) * case.x + dot(case.w, b).unsqueeze(-1))
        yield Biased(case.w, v, b, case.x, case.y if targets == "any" else y)


def quadratic(W: Tensor, V: Tensor, r2: Tensor) -> tuple[Tensor, Tensor]:
    """The pair of eq. 68."""
    half, root = (W + V) / 2, ((W + V) ** 2 + 12 * r2).sqrt() / 2
    return half + root, half - root


def viete(W: Tensor, V: Tensor, r2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The triple of Thm B.1, with the argument of arccos clipped to [-1, 1]."""
    p = -r2 - (W + V) ** 2 / 3
    q = -2 / 27 * (W + V) ** 3 - V * r2 / 3 + 2 / 3 * W * r2
    angle = torch.arccos((3 * q / (2 * p) * (-3 / p).sqrt()).clamp(-1, 1)) / 3
    t0, t1, t2 = (2 * (-p / 3).sqrt() * torch.cos(angle - k * 2 * torch.pi / 3) + (W + V) / 3 for k in range(3))
    return t0, t1, t2


def theorem(case: Biased) -> Tensor:
    """The spectrum of Thm B.1 with the multiplicities it does not state: +-r (m - 2 times each) and 0 (m - 1 times)."""
    W, V, _ = case.squares
    outliers = torch.stack([*quadratic(W, V, case.r2), *viete(W, V, case.r2)], -1)
    r = repeat(case.r2.sqrt(), case.m - 2)
    return torch.cat([outliers, r, -r, repeat(0 * W, case.m - 1)], -1)


def judged(case: Biased) -> Tensor:
    """The spectrum that the library returns."""
    return library.scalar_linear_bias(case.w, case.v, case.b, case.x, case.y)


@row(
    "B1",
    "[cracking] Thm B.1, eq. 68; [closed-form] Thm 6, eq. 5",
    "Under its assumptions: a pair, a cubic's triple, bulk ± sqrt(dx² + dδ²), and zeros.",
    "holds",
    "Multiplicities: ±r m - 2 times each, 0 m - 1 times; m ≥ 2. The assumptions mean that there is nothing to learn.",
    tolerance=1e-7,  # arccos loses half the digits at a double root
)
def biased_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in assumed(generator, profile):
        yield Seen(gap(theorem(case), case.H), library=gap(judged(case), case.H))
    wrong = [gap(theorem(case), case.H).amax() for case in assumed(generator, profile, targets="any")]
    yield Seen(numbers={"error with targets to learn": float(max(wrong))})


@row(
    "B1+",
    "ours, beyond [cracking] Thm B.1",
    "As B1, but with (mean yx, mean y) parallel to k = (<w,v>, <w,b>): pair Λ(|w|², |v|², |k|, 1, ω), a cubic in ω².",
    "holds",
    "ω is the residual covariance along k; ±|ω| m - 2 times each, 0 m - 1 times.",
    kind="ours",
)
def parallel_targets(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in assumed(generator, profile, targets="parallel"):
        W, V, _ = case.squares
        c, a, _ = case.products
        k = (c**2 + a**2).sqrt()
        omega = torch.where(k > 0, (case.d * c + case.e * a) / k.clamp(min=1e-300), case.r2.sqrt())
        # The cubic l^3 - (V+W) l^2 - omega^2 l + omega^2 W is that of a symmetric matrix.
        one, zero = torch.ones_like(W), torch.zeros_like(W)
        root = (W * V).sqrt()
        rows = [W + V * 0, root, zero], [root, V, omega * one], [zero, omega * one, zero]
        triple = torch.linalg.eigvalsh(torch.stack([torch.stack(r, -1) for r in rows], -2))
        bulk = repeat(omega.abs(), case.m - 2)
        top, low = pair(W, V, k, one, omega)
        spectrum = torch.cat([torch.stack([top, low], -1), triple, bulk, -bulk, repeat(zero, case.m - 1)], -1)
        yield Seen(gap(spectrum, case.H))


def reduced(case: Biased, t: Tensor) -> Tensor:
    """The 2 x 2 matrix B(t) of eq. 88."""
    (W, V, B), (c, a, vb), d, e = case.squares, case.products, case.d, case.e
    off = vb * t**2 + e * c * t + d * a * t + d * e * W
    first, last = (V + W) * t**2 + 2 * d * c * t - e**2 * W, (B + W) * t**2 + 2 * e * a * t - d**2 * W
    return torch.stack([torch.stack([first, off], -1), torch.stack([off, last], -1)], -2)


def expanded(case: Biased, t: Tensor, bias: Tensor, sign: float) -> Tensor:
    """Eq. 89-98 with `bias` for |b|^2 in eq. 92 and `sign` in front of eq. 97 and 98."""
    (W, V, B), (c, a, vb), d, e, r2 = case.squares, case.products, case.d, case.e, case.r2
    mixed = e * c + d * a
    total = t**6 + r2**2 * t**2 - 2 * r2 * t**4 - (V + B + 2 * W) * t**5
    total = total - 2 * (d * c + e * a) * t**4 + r2 * (V + B + 3 * W) * t**3
    total = total + 2 * r2 * (d * c + e * a) * t**2 - r2**2 * W * t
    total = total + (V + W) * (bias + W) * t**4 + 4 * d * e * c * a * t**2
    total = total + 2 * e * a * (V + W) * t**3 + 2 * d * c * (B + W) * t**3
    total = total - 2 * d**3 * c * W * t - 2 * e**3 * a * W * t
    total = total - (V + W) * W * d**2 * t**2 - (B + W) * W * e**2 * t**2
    total = total - (vb**2 * t**4 + mixed**2 * t**2)
    tail = 2 * vb * mixed * t**3 + 2 * vb * e * d * W * t**2 + 2 * mixed * e * d * W * t
    return total + sign * tail


def collected(case: Biased, t: Tensor, bias: Tensor) -> Tensor:
    """The polynomial sorted by degree, as printed after eq. 99, with `bias` for |b|^2 in the fourth degree."""
    (W, V, B), (c, a, vb), d, e, r2 = case.squares, case.products, case.d, case.e, case.r2
    mixed = e * c + d * a
    fourth = -2 * r2 - 2 * (d * c + e * a) + (V + W) * (bias + W) - vb**2
    third = r2 * (V + B + 3 * W) + 2 * e * a * (V + W) + 2 * d * c * (B + W) - 2 * vb * mixed
    second = r2**2 + 2 * r2 * (d * c + e * a) + 4 * d * e * c * a
    second = second - ((V + W) * W * d**2 + (B + W) * W * e**2 + mixed**2 + 2 * vb * e * d * W)
    first = -(r2**2 * W + 2 * d**3 * c * W + 2 * e**3 * a * W + 2 * mixed * e * d * W)
    return t**6 - (V + B + 2 * W) * t**5 + fourth * t**4 + third * t**3 + second * t**2 + first * t


def sextic(case: Biased, t: Tensor) -> Tensor:
    """What the network leaves of det(t - H) after the bulk (t (t^2 - r^2))^(m - 2) is divided out."""
    return oracle.characteristic(case.H, t) / (t * (t**2 - case.r2)) ** (case.m - 2)


@row(
    "B2",
    "[cracking] eq. 89-99 and the collected form; [closed-form] eq. 86-96",
    "The polynomial of degree 6 that the outliers solve (σ = 1, mean x = 0).",
    "corrected",
    "|b| must be |b|² in eq. 92 and below, and the bracket opened in eq. 96 closes after eq. 98.",
    kind="misprint",
)
def degree_six(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in white(generator, profile):
        t = outside(case.H, generator)
        true, B = sextic(case, t), case.squares[2]
        printed = polynomial_gap(expanded(case, t, B.sqrt(), 1.0), true) + polynomial_gap(collected(case, t, B.sqrt()), true)
        corrected = polynomial_gap(expanded(case, t, B, -1.0), true) + polynomial_gap(collected(case, t, B), true)
        yield Seen(printed, corrected)


@row(
    "B3",
    "ours, beyond [cracking] eq. 88",
    "For any data, det(λ - H) = (λ(λ² - r²))^(m-2) det(λ(λ² - r²) I - Sxx B(λ)), Sxx = [[σ², mean x], [mean x, 1]].",
    "holds",
    "B(λ) is eq. 88. The spectrum: ±r m - 2 times each, 0 m - 1 times, and five roots.",
    kind="ours",
)
def general_sextic(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in general(generator, profile):
        t, s2, mean = outside(case.H, generator), case.x.square().mean(-1), case.x.mean(-1)
        S = torch.stack([torch.stack([s2, mean], -1), torch.stack([mean, torch.ones_like(s2)], -1)], -2)
        nu = t * (t**2 - case.r2)
        claimed = torch.linalg.det(nu[:, None, None] * torch.eye(2, dtype=torch.float64) - S @ reduced(case, t))
        yield Seen(polynomial_gap(claimed, sextic(case, t)), library=gap(judged(case), case.H))


@row(
    "B4",
    "[cracking] eq. 69-81, 84-88, 100-104, 107-109; [closed-form] eq. 81-85, 97-101, 104-106",
    "The blocks, the inverse, the 2 x 2 quadratic form, the factors A to E of the quintic, and p, q of the depressed cubic.",
    "holds",
    "Eq. 100-104 factor the quintic with |b|² in place of |b|.",
)
def factorisation(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in assumed(generator, profile):
        (W, V, _), d, e, r2, t = case.squares, case.d, case.e, case.r2, outside(case.H, generator)
        zero = torch.zeros_like(t)
        M = [[-t, d, e], [d, -t, zero], [e, zero, -t]]
        inverse = [[t**2, t * d, t * e], [t * d, t**2 - e**2, e * d], [t * e, e * d, t**2 - d**2]]
        M, inverse = (torch.stack([torch.stack(r, -1) for r in rows], -2) for rows in (M, inverse))
        nu = t * (t**2 - r2)
        rest = matrix_gap(-M @ inverse / nu[:, None, None], torch.eye(3, dtype=torch.float64).expand_as(M))  # eq. 86
        U = torch.stack([torch.cat([case.v, case.w, 0 * case.w], -1), torch.cat([case.b, 0 * case.w, case.w], -1)], -1)
        eye = torch.eye(3 * case.m, dtype=torch.float64)
        base = torch.stack([torch.kron(k, torch.eye(case.m, dtype=torch.float64)) for k in M])
        rest = rest + matrix_gap(U @ U.mT + base, case.H - t[:, None, None] * eye)  # eq. 84, 85
        form = -nu[:, None, None] * (U.mT @ torch.linalg.solve(base, U))
        rest = rest + matrix_gap(reduced(case, t), form)  # eq. 88
        A, B, C, D, E = -(V + W), -3 * r2, -(V + W), -r2, r2 * W
        quintic = (t**2 + A * t + B) * (t**3 + C * t**2 + D * t + E)
        rest = rest + polynomial_gap(quintic * t, sextic(case, t))  # eq. 100-104
        p = -r2 - (V + W) ** 2 / 3
        q = (-2 * (V + W) ** 3 - 9 * (V + W) * r2 + 27 * r2 * W) / 27
        short = -2 / 27 * (V + W) ** 3 - V * r2 / 3 + 2 / 3 * W * r2
        s = t - (V + W) / 3
        rest = rest + polynomial_gap(s**3 + p * s + q, t**3 + C * t**2 + D * t + E) + number_gap(q, short, case.unit**3)
        yield Seen(rest)


@row(
    "B5",
    "[cracking] eq. 82, 83",
    "The lower-left blocks of the Hessian are dx I + σ² v wᵀ and dδ I + b wᵀ.",
    "corrected",
    "w vᵀ and w bᵀ, as [closed-form] eq. 79 has it.",
    kind="misprint",
)
def lower_blocks(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in white(generator, profile, WIDTHS):
        eye, zero = torch.eye(case.m, dtype=torch.float64), torch.zeros(len(case.w), case.m, case.m, dtype=torch.float64)
        w, v, b = (t.unsqueeze(-1) for t in (case.w, case.v, case.b))
        D, E = case.d[:, None, None] * eye, case.e[:, None, None] * eye
        top = torch.cat([v @ v.mT + b @ b.mT, D + v @ w.mT, E + b @ w.mT], -1)
        lower = [(v @ w.mT, b @ w.mT), (w @ v.mT, w @ b.mT)]
        claims = [
            torch.cat([top, torch.cat([D + f, w @ w.mT, zero], -1), torch.cat([E + g, zero, w @ w.mT], -1)], -2)
            for f, g in lower
        ]
        printed, corrected = (matrix_gap(claim, case.H) for claim in claims)
        yield Seen(printed, corrected)


@row(
    "B6",
    "[cracking] end of B.3; [closed-form] Sec. 3",
    "The pair is centred at tr/4, the triple at tr/6, and lies within t' = (2/3) sqrt((|v|²+|w|²)² + 3(dx²+dδ²)) of it.",
    "holds",
)
def centres(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in assumed(generator, profile):
        true = torch.linalg.eigvalsh(case.H)
        (W, V, _), trace = case.squares, true.sum(-1)
        # The five outliers, from the network: the pair is the eigenvalue nearest each root of eq. 68, the triple the rest.
        pick = torch.stack([(true - t.unsqueeze(-1)).abs().argmin(-1) for t in quadratic(W, V, case.r2)], -1)
        ends = true.gather(-1, pick)
        reach = 2 / 3 * ((V + W) ** 2 + 3 * case.r2).sqrt()
        triple = torch.stack(viete(W, V, case.r2), -1)
        nearest = true.gather(-1, (true.unsqueeze(-1) - triple.unsqueeze(-2)).abs().argmin(-2))
        centre = number_gap(ends.sum(-1) / 2, trace / 4, case.unit) + number_gap(nearest.mean(-1), trace / 6, case.unit)
        yield Seen(centre + excess((nearest - (trace / 6).unsqueeze(-1)).abs().amax(-1), reach, case.unit))


@row(
    "B7",
    "[cracking] eq. 106; [closed-form] eq. 6",
    "Without bias the pair is (|v|²+|w|²)/2 ± sqrt((|v|²+|w|²)² + 12 dx²)/2.",
    "holds",
    "This is eq. 1 for σ = 1 and mean yx = 0.",
)
def no_bias(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for m in WIDTHS:
        case = draw_scalar(generator, 18 * profile.batch, m, 4)
        x = case.x / case.s2.sqrt().clamp(min=1e-12).unsqueeze(-1)
        y = case.y - (x * case.y).mean(-1, keepdim=True) * x
        case = type(case)(case.w, case.v, x, y).kept(case.s2 > 0)
        top, low = quadratic(case.W, case.V, case.d**2)
        true = case.true_outliers
        yield Seen(number_gap(top, true[0], case.unit) + number_gap(low, true[1], case.unit))
