"""Rows on [spectral-view]: the worked example, rates of gradient descent, definiteness, trace estimation."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
from torch import Tensor

from . import oracle
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import excess, normal, number_gap, orthonormal, uniform

SECTION = Ledger()
row = SECTION.row


def example(w: Tensor) -> Tensor:
    """The quadratic of [spectral-view] Sec. 2."""
    return 2 * w[0] ** 2 + 8 * w[1] ** 2 + 4 * w[0] * w[1]


def example_hessian(generator: torch.Generator) -> Tensor:
    """Its Hessian by autograd, shape (1, 2, 2)."""
    return oracle.hessians(example, normal(generator, 1, 2))


@row(
    "D1",
    "[spectral-view] Sec. 2",
    "f = 2w₁² + 8w₂² + 4w₁w₂: H = [[4,4],[4,16]], λ = 10 ± 2√13, v₁ ≈ (0.29, 0.96), v₂ ≈ (0.96, -0.29), κ ≈ 6.17.",
    "holds",
    "To the digits printed.",
)
def worked_example(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    H = example_hessian(generator)
    printed = torch.tensor([[4.0, 4.0], [4.0, 16.0]], dtype=torch.float64)
    values, vectors = torch.linalg.eigh(H[0])
    exact = torch.tensor([10 - 2 * 13**0.5, 10 + 2 * 13**0.5], dtype=torch.float64)
    rounded = torch.tensor([[0.96, 0.29], [-0.29, 0.96]], dtype=torch.float64)  # columns v2, v1
    angle = (vectors.abs() - rounded.abs()).abs().amax() - 0.005
    errors = ((H[0] - printed).abs().amax(), (values - exact).abs().amax(), angle.clamp(min=0.0))
    kappa = (number_gap(values[1] / values[0], torch.tensor(6.17)) - 0.005).clamp(min=0.0)
    yield Seen(torch.stack([*errors, kappa]), numbers={"kappa": float(values[1] / values[0])})


@row(
    "D2",
    "[spectral-view] Sec. 2, interpretation",
    "Gradient descent converges more slowly along v₁ (steep) than along v₂.",
    "corrected",
    "Faster, for every η < 2/(λ₁+λ₂) = 0.1; equal there; slower only for 0.1 < η < 2/λ₁ = 0.1162.",
)
def slower_direction(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    H = example_hessian(generator)[0]
    values, vectors = torch.linalg.eigh(H)
    rates = torch.linspace(0.002, 0.116, 20 * profile.batch, dtype=torch.float64)
    remains = []
    for i in (1, 0):  # v1 belongs to the larger eigenvalue
        w = vectors[:, i].expand(len(rates), 2)
        for _ in range(10):
            w = w - rates.unsqueeze(-1) * (w @ H)
        remains.append(w.norm(dim=-1) ** 0.1)
    steep, gentle = remains
    predicted = steep < gentle
    turn = 2 / values.sum()
    corrected = (predicted != (rates < turn)) & ((rates - turn).abs() > 1e-9)
    yield Seen((gentle - steep).clamp(min=0.0), corrected.to(torch.float64))


def quadratics(generator: torch.Generator, profile: Profile) -> Iterator[Tensor]:
    """Random positive definite matrices."""
    for n in (2, 3, 6):
        Q = orthonormal(generator, 10 * profile.batch, n, n)
        yield Q @ torch.diag_embed(uniform(generator, len(Q), n, low=0.05, high=3.0)) @ Q.mT


def contraction(H: Tensor, rate: Tensor) -> Tensor:
    """Largest factor by which a step of gradient descent shrinks the error."""
    eye = torch.eye(H.shape[-1], dtype=H.dtype)
    return torch.linalg.matrix_norm(eye - rate[:, None, None] * H, 2)


@row(
    "D3",
    "[spectral-view] Sec. 5",
    "Gradient descent contracts the error by (κ-1)/(κ+1) per step.",
    "holds under",
    "Positive definite quadratics and η = 2/(λ_max + λ_min), where it is attained; with η = 1/λ_max the factor is 1 - 1/κ.",
)
def rate(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for H in quadratics(generator, profile):
        true = torch.linalg.eigvalsh(H)
        low, top = true[:, 0], true[:, -1]
        claimed = (top / low - 1) / (top / low + 1)
        best, usual = contraction(H, 2 / (low + top)), contraction(H, 1 / top)
        attained = number_gap(best, claimed) + number_gap(usual, 1 - low / top)
        yield Seen(attained, condition=torch.ones_like(low, dtype=torch.bool))
        yield Seen(excess(usual, claimed), condition=torch.zeros_like(low, dtype=torch.bool))


@row(
    "D3a",
    "[spectral-view] Sec. 5",
    "A large condition number makes gradient descent slow and oscillatory.",
    "holds under",
    "η λ_max > 1: only then does the steepest coordinate change sign. With smaller steps it is slow but monotone.",
)
def oscillation(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for H in quadratics(generator, profile):
        values, vectors = torch.linalg.eigh(H)
        scale = uniform(generator, len(H), low=0.1, high=1.9)
        w = normal(generator, len(H), H.shape[-1], 1)
        moved = w - (scale / values[:, -1])[:, None, None] * (H @ w)
        steep = vectors[:, :, -1:]
        flips = (steep.mT @ w * (steep.mT @ moved)).flatten() < 0
        yield Seen((~flips).to(torch.float64), condition=scale > 1)


def kind_by_sampling(f: Tensor) -> tuple[bool, bool]:
    """Whether values around a point (relative to the point) are somewhere positive, somewhere negative."""
    return bool((f > 0).any()), bool((f < 0).any())


@row(
    "D4",
    "[spectral-view] Sec. 3",
    "At a critical point: all λ > 0 minimum, all λ < 0 maximum, mixed signs saddle, some λ = 0 degenerate.",
    "holds",
    "Sufficient conditions. Mixed signs are a saddle also when some λ = 0; semidefinite and singular decides nothing.",
)
def definiteness(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    wrong = []
    signatures = [s for s in product((-1.0, 0.0, 1.0), repeat=3) if any(s)]
    for signs in signatures:
        values = torch.tensor(signs, dtype=torch.float64) * uniform(generator, 3, low=0.5, high=2.0)
        Q = orthonormal(generator, 3, 3)
        H = Q @ torch.diag(values) @ Q.mT
        # Directions on a small sphere, the eigenvectors among them; third-order terms are too small to matter there.
        u = torch.cat([normal(generator, 200, 3), Q.T, -Q.T])
        u = 1e-4 * u / u.norm(dim=-1, keepdim=True)
        cubic = (u @ normal(generator, 3, 1)).flatten() ** 3
        f = 0.5 * (u @ H * u).sum(-1) + cubic
        up, down = kind_by_sampling(f)
        claims = {"minimum": min(signs) > 0, "maximum": max(signs) < 0, "saddle": min(signs) < 0 < max(signs)}
        seen = {"minimum": up and not down, "maximum": down and not up, "saddle": up and down}
        wrong += [float(claims[name] and not seen[name]) for name in claims]
    # x^4, -x^4 and x^3 have the same (zero) second derivative and are a minimum, a maximum, neither.
    x = torch.tensor([-1e-2, 1e-2], dtype=torch.float64)
    undecided = {kind_by_sampling(f) for f in (x**4, -(x**4), x**3)}
    yield Seen(torch.tensor(wrong), numbers={"kinds of point with f'' = 0": len(undecided)})


def quadrature(law: str, n: int) -> tuple[Tensor, Tensor]:
    """Nodes (N, n) and weights that integrate polynomials of degree 4 exactly under a law with E[v v^T] = I."""
    if law == "rademacher":
        nodes = torch.tensor(list(product((-1.0, 1.0), repeat=n)), dtype=torch.float64)
        return nodes, torch.full((len(nodes),), 2.0**-n, dtype=torch.float64)
    points, weights = np.polynomial.hermite_e.hermegauss(3)
    nodes = torch.tensor(list(product(points, repeat=n)), dtype=torch.float64)
    mass = torch.tensor(list(product(weights / weights.sum(), repeat=n)), dtype=torch.float64).prod(-1)
    return nodes, mass


def variances(H: Tensor) -> dict[str, Tensor]:
    """Variance of v^T H v under three laws with E[v v^T] = I."""
    n, square = len(H), H.square().sum()
    signs = 2 * (square - H.diagonal().square().sum())
    return {"gaussian": 2 * square, "rademacher": signs, "sphere": 2 * n / (n + 2) * (square - H.trace() ** 2 / n)}


@row(
    "D5",
    "[spectral-view] Sec. 7",
    "(1/m) Σ vᵀHv with E[vvᵀ] = I estimates tr H.",
    "holds",
    "Variance of one term: 2|H|_F² (Gauss), 2 Σ_{i≠j} H_ij² (signs), 2n/(n+2) (|H|_F² - tr²/n) (sphere).",
)
def hutchinson(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    n = 4
    for _ in range(10 * profile.batch):
        A = normal(generator, n, n)
        H = A + A.mT
        trace = H.trace()
        for law in ("gaussian", "rademacher", "sphere"):
            nodes, weights = quadrature(law, n)
            # A degree-4 form on the sphere of radius sqrt(n): its Gaussian mean times n / (n + 2).
            shrink = n / (n + 2) if law == "sphere" else 1.0
            terms = (nodes @ H * nodes).sum(-1)
            mean, second = (weights * terms).sum(), shrink * (weights * terms**2).sum()
            unit = H.square().sum()
            variance = number_gap(variances(H)[law], second - trace**2, unit)
            yield Seen((mean - trace).abs().reshape(1) / unit.sqrt(), variance.reshape(1))
