"""Rows on how sharpness depends on data: [data] Sec. 4, 5, App. C, and the dynamics it cites."""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from . import oracle
from .core import Ledger, Profile
from .deep_cases import Deep, balanced, cases, factored, minima, padded, root, spread, top
from .evidence import Seen
from .oracle import matrix_gap, normal, number_gap, orthonormal, uniform

SECTION = Ledger()
row = SECTION.row


@row(
    "E10",
    "[data] eq. 12",
    "Zero loss and white inputs: W_L...W₁ = YXᵀ/(nσ²).",
    "holds",
    "At any global minimum, also of positive loss, if no hidden layer is narrower than the solution's rank.",
)
def solution(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, ("white",)):
        solved = Deep(case.weights, case.X, case.X @ case.product.mT)
        yield Seen(matrix_gap(solved.C / solved.variance[:, None, None], solved.product))
    for case in minima(generator, profile, ("white",)):
        least = torch.linalg.lstsq(case.X, case.Y).solution
        loss = (case.X @ least - case.Y).square().sum((-2, -1)) / (2 * case.X.shape[-2])
        attained = number_gap(oracle.values(case.loss, case.theta, case.X, case.Y), loss, loss)
        yield Seen(corrected=attained + matrix_gap(case.C / case.variance[:, None, None], case.product))


def from_labels(case: Deep) -> Tensor:
    """The sharpness of eq. 14, L sigma^(2/L) n^(1/L - 1) sigma_max(Y)^(2 - 2/L)."""
    n, depth = case.X.shape[-2], case.depth
    strongest = torch.linalg.matrix_norm(case.Y, 2)
    return depth * case.variance ** (1 / depth) * n ** (1 / depth - 1) * strongest ** (2 - 2 / depth)


def from_moments(case: Deep) -> Tensor:
    """L sigma^2 (|Y X^T|_2 / (n sigma^2))^(2 - 2/L)."""
    slope = torch.linalg.matrix_norm(case.C, 2) / case.variance
    return case.depth * case.variance * slope ** (2 - 2 / case.depth)


@row(
    "E11",
    "[data] eq. 13, 14",
    "At balanced solutions σ_i^L = σ_i(Y)/(√n σ_x), so λ_max = L σ_x^(2/L) n^(1/L-1) σ_max(Y)^(2-2/L).",
    "corrected",
    "Exact at zero loss (Assumption 1). With loss left over it overestimates: then σ_i^L = σ_i(YXᵀ)/(nσ_x²), at any loss.",
)
def sharpness_from_labels(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for noise in (0.0, 1.0):
        for case in minima(generator, profile, ("white",), noise=noise):
            true = top(case.H)
            layers = torch.linalg.svdvals(case.weights[0])[:, : min(case.widths)] ** case.depth
            n = case.X.shape[-2]
            printed = padded(torch.linalg.svdvals(case.Y), layers.shape[-1]) / (n * case.variance).sqrt().unsqueeze(-1)
            exact = torch.linalg.svdvals(case.C)[:, : layers.shape[-1]] / case.variance.unsqueeze(-1)
            values = [(s[:, : layers.shape[-1]] - layers).abs().amax(-1) for s in (printed, exact)]
            tops = [number_gap(rule(case), true, case.unit) for rule in (from_labels, from_moments)]
            interpolated = torch.full((len(true),), noise == 0.0)
            yield Seen(torch.maximum(values[0], tops[0]), torch.maximum(values[1], tops[1]), interpolated)


def one_hot(generator: torch.Generator, b: int, n: int, K: int) -> Tensor:
    """Labels of at least one sample per class, the first class the largest."""
    labels = torch.cat([torch.arange(K), torch.zeros(2, dtype=torch.long)]).expand(b, -1)
    more = torch.randint(0, K, (b, n - labels.shape[-1]), generator=generator)
    return torch.nn.functional.one_hot(torch.cat([labels, more], -1), K).to(torch.float64)


def classified(generator: torch.Generator, b: int, n: int, d0: int, depth: int) -> Deep:
    """Balanced least-squares solutions of a classification task of three classes on whitened inputs, sigma_x = 1."""
    Y, X = one_hot(generator, b, n, 3), n**0.5 * orthonormal(generator, b, n, d0)
    return Deep(factored(generator, Y.mT @ X / n, (4,) * (depth - 1)), X, Y)


@row(
    "E12",
    "[data] Sec. 4",
    "For one-hot labels sharpness at a balanced solution depends on the largest class proportion alone, not on n.",
    "holds under",
    "The labels are interpolated (Assumption 1; n = d₀ is enough). With more samples than features it falls with n.",
)
def class_proportions(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for n, d0 in ((6, 6), (9, 9), (12, 4), (40, 4)):
        for depth in (2, 3):
            case = classified(generator, 4 * profile.batch, n, d0, depth)
            share = case.Y.mean(-2).amax(-1)
            claimed, true = depth * share ** (1 - 1 / depth), top(case.H)
            yield Seen(number_gap(claimed, true, true), condition=torch.full((len(true),), n == d0))
            if n > d0:
                yield Seen(numbers={f"true/claimed, n = {n}, d₀ = {d0}, L = {depth}": float((true / claimed).mean())})


@row(
    "E16",
    "[data] Sec. 4",
    "For one-hot labels σ_i²(Y)/n are the class proportions.",
    "holds",
)
def label_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    Y = one_hot(generator, 20 * profile.batch, 17, 4)
    claimed = torch.linalg.svdvals(Y) ** 2 / 17
    yield Seen((claimed.sort(-1).values - Y.mean(-2).sort(-1).values).abs().amax(-1))


@row(
    "E19",
    "[data] Sec. 4, Fig. 1 middle",
    "Large depth amplifies the effect, mainly by the factor L; read as: sharpness grows with depth (σ_x = 1).",
    "holds under",
    "L ≥ ln(1/α_max): L α^(1-1/L) first falls with L if the largest class is small.",
)
def depth_effect(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for K in (2, 3, 6):
        tops = []
        for depth in (1, 2, 3):
            frame = orthonormal(generator, 2, K, K)
            X, Y = K**0.5 * frame, torch.eye(K, dtype=torch.float64).expand(2, K, K)
            weights = factored(generator, Y.mT @ X / K, (K,) * (depth - 1))
            tops.append(top(Deep(weights, X, Y).H))
        for depth, (low, high) in enumerate(pairwise(tops), 1):
            falls = (low - high).clamp(min=0.0) / low
            yield Seen(falls, condition=torch.full((2,), depth >= math.log(K)))


@row(
    "E18",
    "[data] Sec. 5, Fig. 2 left",
    "Eq. 14 on inputs that are not whitened (where the paper finds it to break down).",
    "corrected",
    "λ_max(Σ^½ V diag h(s₁, s_i) Vᵀ Σ^½), W* = U diag(s) Vᵀ least squares, h(a,b) = Σ_l a^(2(L-l)/L) b^(2(l-1)/L).",
)
def raw_inputs(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for noise in (0.0, 1.0):
        for case in minima(generator, profile, ("raw", "shifted", "flat", "few samples"), noise=noise):
            best, true = (torch.linalg.pinv(case.X) @ case.Y).mT, top(case.H)
            _, s, Vh = torch.linalg.svd(best)
            layer = padded(torch.where(s > 1e-11 * s[:, :1], s, 0.0), Vh.shape[-1]) ** (1 / case.depth)
            h, F = spread(layer[:, :1], layer, case.depth), root(case.S)
            claimed = top(F @ Vh.mT @ torch.diag_embed(h) @ Vh @ F)
            mean_square = case.S.diagonal(dim1=-2, dim2=-1).mean(-1)
            n, depth = case.X.shape[-2], case.depth
            printed = depth * mean_square ** (1 / depth) * n ** (1 / depth - 1)
            printed = printed * torch.linalg.matrix_norm(case.Y, 2) ** (2 - 2 / depth)
            yield Seen(number_gap(printed, true, true), number_gap(claimed, true, case.unit))


@row(
    "E15",
    "[data] App. C, data whitening",
    "X = √n σ Q with Q from the QR decomposition of X' (d₀ × n).",
    "corrected",
    "Q from that of X'ᵀ, transposed: the Q of X' is d₀ × d₀.",
    kind="misprint",
)
def whitening(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for d0, n in ((3, 3), (3, 8), (1, 5)):
        raw = normal(generator, 10 * profile.batch, d0, n)
        errors, eye = [], torch.eye(d0, dtype=torch.float64).expand(len(raw), d0, d0)
        for Q in (torch.linalg.qr(raw).Q, torch.linalg.qr(raw.mT).Q.mT):
            X = n**0.5 * 1.7 * Q
            fits = X.shape == raw.shape
            errors.append(matrix_gap(X @ X.mT / n, 1.7**2 * eye) if fits else torch.full((len(raw),), torch.inf))
        yield Seen(errors[0], errors[1])


def imbalances(weights: tuple[Tensor, ...]) -> list[Tensor]:
    """W_l W_l^T - W_{l+1}^T W_{l+1}."""
    return [first @ first.mT - last.mT @ last for first, last in pairwise(weights)]


@row(
    "E15a",
    "[data] App. C, sampling balanced weights",
    "Step 1 samples the right singular vectors of W_l.",
    "corrected",
    "The left ones, U_l; the right ones are set in step 3.",
    kind="misprint",
)
def sampling(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    b, widths = 10 * profile.batch, (3, 4, 3, 3)
    s = uniform(generator, b, 3, low=0.2, high=1.5)
    literal = tuple(
        orthonormal(generator, b, o, o)[..., :3] * s.unsqueeze(-2) @ orthonormal(generator, b, i, i)[..., :3].mT
        for i, o in pairwise(widths)
    )
    errors = [
        torch.stack([D.abs().amax((-2, -1)) for D in imbalances(weights)]).amax(0)
        for weights in (literal, balanced(generator, s, widths))
    ]
    yield Seen(errors[0], errors[1])


def drift(case: Deep, decay: float) -> list[Tensor]:
    """Velocity of the imbalances under the flow dW/dt = - gradient - decay W."""
    moves = [-(g + decay * W) for g, W in zip(case.gradients, case.weights)]
    rates = []
    for first, last, a, b in zip(case.weights, case.weights[1:], moves, moves[1:]):
        left, right = a @ first.mT, last.mT @ b
        rates.append(left + left.mT - right - right.mT)
    return rates


@row(
    "E17",
    "[data] Sec. 3, citing Arora et al. and Du et al.",
    "Gradient flow of a linear network keeps balanced layers balanced.",
    "holds",
    "W_l W_lᵀ - W_{l+1}ᵀ W_{l+1} does not move at all, balanced or not. A step of gradient descent moves it by O(η²).",
)
def conserved(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, deep=2):
        rates = torch.stack([r.abs().amax((-2, -1)) for r in drift(case, 0.0)]).amax(0)
        size = torch.stack([(g.norm(dim=(-2, -1)) * W.norm(dim=(-2, -1))) for g, W in zip(case.gradients, case.weights)])
        yield Seen(rates / size.amax(0).clamp(min=1.0))


@row(
    "E17a",
    "[data] Sec. 3, citing Singh et al., Thm 1",
    "Under weight decay the layers become more and more balanced.",
    "holds",
    "Under the flow with decay λ the imbalance is multiplied by exp(-2λt).",
)
def decayed(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, deep=2):
        decay, error = 0.3, torch.zeros(len(case.X), dtype=torch.float64)
        for rate, imbalance in zip(drift(case, decay), imbalances(case.weights)):
            error = torch.maximum(error, (rate + 2 * decay * imbalance).abs().amax((-2, -1)))
        yield Seen(error / case.unit)


@row(
    "E17b",
    "[data] Sec. 3, citing Ghosh et al., Prop. 2",
    "Gradient descent at the edge of stability balances the singular values of the layers.",
    "not decidable from the text",
    "Cited without its conditions. Shown for width one: |w² - v²| after 200 steps over its start.",
)
def edge_of_stability(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    w, v = uniform(generator, 200, low=1.5, high=2.5), uniform(generator, 200, low=0.1, high=0.5)
    for share in (0.1, 1.2):  # of the largest step that is stable at the minimum which gradient flow finds
        a, b, rate = w, v, share * 2 / ((w**2 - v**2) ** 2 + 4).sqrt()
        for _ in range(200):
            slope = a * b - 1.0
            a, b = a - rate * slope * b, b - rate * slope * a
        left = ((a**2 - b**2) / (w**2 - v**2)).abs().nan_to_num(nan=torch.inf)
        yield Seen(numbers={f"median at {share:g} of the stable step": float(left.median())})


@row(
    "E20",
    "[data] Sec. 2.2",
    "At a minimum λ_max measures the worst change of the loss under a small perturbation, the trace the mean change.",
    "holds",
    "To second order: ρ²λ_max/2 on the sphere of radius ρ, ε² tr/2 for isotropic noise of variance ε².",
    tolerance=1e-2,
)
def perturbations(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in minima(generator, profile, ("white", "raw")):
        p, size = case.theta.shape[-1], 1e-3
        values, vectors = torch.linalg.eigh(case.H)
        start = oracle.values(case.loss, case.theta, case.X, case.Y)

        def rise(move: Tensor, case: Deep = case, start: Tensor = start) -> Tensor:
            return oracle.values(case.loss, case.theta + move, case.X, case.Y) - start

        worst = rise(size * vectors[..., -1]) / (size**2 / 2)
        # Mean over the 2p points +-sqrt(p) e_i, which integrate quadratic forms exactly.
        step = size * p**0.5
        points = [
            step * sign * torch.eye(p, dtype=torch.float64)[i].expand_as(case.theta) for i in range(p) for sign in (1, -1)
        ]
        mean = torch.stack([rise(point) for point in points]).mean(0) / (size**2 / 2)
        trace = values.sum(-1)
        yield Seen(torch.maximum((worst / values[:, -1] - 1).abs(), (mean / trace - 1).abs()))


@row(
    "E21",
    "[data] Sec. 3, 5, Figs. 1, 2, 4",
    "Early flattening, unbalanced starts, Tanh networks and the top ten eigenvalues follow the theory qualitatively.",
    "not decidable from the text",
    "Statements about training runs on image data; they need those runs, not a formula.",
)
def training_runs(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    yield Seen()
