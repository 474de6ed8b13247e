"""Rows on the eigenvectors of the scalar linear network: [cracking] Thms 3.2, 3.3, Cor 3.1; [closed-form] Thms 2, 3."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .core import Ledger, Profile
from .evidence import Seen
from .oracle import basis_gap, normal, residual
from .scalar_cases import Scalar, cases, dot, generic, printed_outliers

SECTION = Ledger()
row = SECTION.row
VANISHING = 1e-7  # a vector this small beside its terms is rounding noise


def arrows(case: Scalar) -> tuple[Tensor, Tensor, Tensor]:
    """The printed vectors z_i as columns, their eigenvalues, and the size of their terms."""
    value = torch.stack(printed_outliers(case), -1)
    swapped = torch.cat([case.w, case.v], -1)
    z = swapped.unsqueeze(-1) * value.unsqueeze(-2) + (case.d.unsqueeze(-1) * case.theta).unsqueeze(-1)
    size = (value.abs() + case.d.abs().unsqueeze(-1)) * case.theta.norm(dim=-1, keepdim=True)
    return z, value, size


def degenerate(case: Scalar) -> Tensor:
    """Cases in which one of the printed vectors vanishes: w = v, w = -v, dx = 0 (or m = 1 and |w| = |v|)."""
    theta = case.theta.norm(dim=-1)
    p, q = (case.w + case.v).norm(dim=-1), (case.w - case.v).norm(dim=-1)
    small = case.d.abs() <= VANISHING * (case.s2 * case.c.abs() + case.yx.abs())
    return (torch.minimum(p, q) <= VANISHING * theta) | small | (case.s2 == 0)


@row(
    "L13",
    "[cracking] Thm 3.2, eq. 35-47; [closed-form] Thm 2, eq. 57, Rem. 1; [poster]",
    "The outliers' eigenvectors are z_i = (λ_i w + dx v; dx w + λ_i v).",
    "holds under",
    "w ≠ ±v and dx ≠ 0. Otherwise one of them is the zero vector; the basis of EIG1 has no exception.",
)
def outlier_vectors(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        z, value, size = arrows(case)
        length = z.norm(dim=-2)
        # Vectors that nearly vanish lose digits: residuals are weighted by their relative length.
        weight = (1000 * length / size.clamp(min=1e-300)).clamp(max=1.0)
        error = torch.where(length > VANISHING * size, weight * residual(case.H, z, value), torch.inf)
        yield Seen(error.amax(-1), condition=~degenerate(case))


@row(
    "L14",
    "[cracking] after Thm 3.2; [closed-form] after Thm 2",
    "The two outlier eigenvectors are an orthonormal basis of span{(v;w), (w;v)}.",
    "corrected",
    "They are orthogonal, with |z_i|² = (λ_i² + dx²)(|w|² + |v|²) + 4 λ_i dx <w,v>; not of length 1.",
)
def outlier_basis(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        z, value, size = arrows(case)
        unit = size.amax(-1).clamp(min=1.0) ** 2
        angle, squared = dot(z[..., 0], z[..., 1]).abs() / unit, z.square().sum(-2)
        d, total = case.d.unsqueeze(-1), (case.W + case.V).unsqueeze(-1)
        formula = (value**2 + d**2) * total + 4 * value * d * case.c.unsqueeze(-1)
        length = (formula - squared).abs().amax(-1) / unit
        yield Seen(torch.maximum(angle, ((squared - 1).abs() / squared.clamp(min=1.0)).amax(-1)), torch.maximum(angle, length))


@row(
    "L15",
    "[cracking] after Thm 3.2; [closed-form] after Thm 2",
    "Where the gradient is not zero, z_i = (λ_i/dx) ∇ℓ + dx θ.",
    "holds",
)
def gradient_and_parameters(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        z, value, size = arrows(case)
        slope = case.d[:, None, None]
        claimed = value.unsqueeze(-2) / slope * case.gradient.unsqueeze(-1) + slope * case.theta.unsqueeze(-1)
        error = (claimed - z).norm(dim=-2) / size.clamp(min=1.0)
        moving = case.gradient.norm(dim=-1) > 1e-6 * case.unit
        yield Seen(error.amax(-1)[moving])


def bulk_vector(case: Scalar, sign: Tensor, c: Tensor) -> Tensor:
    """(z; sign z) with z the projection of c off w + sign v (c itself where that vanishes)."""
    p = case.w + sign.unsqueeze(-1) * case.v
    square = dot(p, p).unsqueeze(-1)
    z = c - torch.where(square > 0, p * dot(p, c).unsqueeze(-1) / square.clamp(min=1e-300), 0.0)
    return torch.cat([z, sign.unsqueeze(-1) * z], -1).unsqueeze(-1)


@row(
    "L16",
    "[cracking] Thm 3.3; [closed-form] Thm 3",
    "Bulk eigenvectors are (z; sgn(λ) z), with z orthogonal to w + sgn(λ) v.",
    "corrected",
    "The sign is that of λ·dx. As printed it is right for dx > 0 only. Where w + s v = 0, z is arbitrary.",
)
def bulk_vectors(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        c = normal(generator, *case.w.shape)
        printed, corrected = [], []
        for s in (1.0, -1.0):
            sign = torch.full_like(case.d, s)
            p = case.w + s * case.v
            exists = (p.norm(dim=-1) == 0) | (case.m > 1)  # m = 1 leaves no room beside w + s v
            literal = bulk_vector(case, (s * case.d).sign(), c)
            ratio = torch.where(case.d == 0, 0.0, dot(p, p))  # 0/0 in the printed projector
            right = residual(case.H, bulk_vector(case, sign, c), (s * case.d).unsqueeze(-1)).squeeze(-1)
            wrong = residual(case.H, literal, (s * case.d).unsqueeze(-1)).squeeze(-1)
            printed.append(torch.where((ratio == 0) & (case.d != 0), torch.inf, wrong)[exists])
            corrected.append(right[exists])
        yield Seen(torch.cat(printed), torch.cat(corrected))


@row(
    "L17",
    "[cracking] after Thm 3.2; [closed-form] after Thm 2",
    "The eigenvectors of ±dx fill 2m - 2 dimensions.",
    "holds under",
    "w ≠ ±v and dx ≠ 0. For w = ±v there are 2m - 1, one of which eq. 1 calls an outlier.",
)
def bulk_dimension(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        true = torch.linalg.eigvalsh(case.H)
        count = ((true.abs() - case.d.abs().unsqueeze(-1)).abs() < 1e-11 * case.unit.unsqueeze(-1)).sum(-1)
        yield Seen((count - (2 * case.m - 2)).abs().to(torch.float64), condition=~degenerate(case))


def eigenbasis(case: Scalar) -> tuple[Tensor, Tensor]:
    """Orthonormal eigenvectors, as columns, and eigenvalues: (n; n) and (n; -n), and a 2 x 2 problem for what is left."""
    s2, d, columns, plane, lengths, bulk = case.s2, case.d, [], [], [], []
    for sign in (1.0, -1.0):
        p = case.w + sign * case.v
        frame = torch.linalg.svd(p.unsqueeze(-2), full_matrices=True).Vh.mT  # first column along p (any one where p = 0)
        both = torch.cat([frame, sign * frame], -2) / 2**0.5
        plane.append(both[..., 0])
        columns.append(both[..., 1:])
        lengths.append(dot(p, frame[..., 0]))
        bulk.append((sign * d).unsqueeze(-1).expand(-1, case.m - 1))
    P, Q = lengths
    rows = (d + s2 * P**2 / 2, s2 * P * Q / 2), (s2 * P * Q / 2, -d + s2 * Q**2 / 2)
    value, turn = torch.linalg.eigh(torch.stack([torch.stack(r, -1) for r in rows], -2))
    return torch.cat([torch.stack(plane, -1) @ turn, *columns], -1), torch.cat([value, *bulk], -1)


@row(
    "EIG1",
    "ours, in place of [cracking] Thms 3.2, 3.3",
    "With p = w + v, q = w - v: (n; n), n ⟂ p, has +dx; (n; -n), n ⟂ q, has -dx; the rest is 2 x 2 in (p;p), (q;-q).",
    "holds",
    "A complete orthonormal eigenbasis with no excluded case.",
    kind="ours",
)
def complete_basis(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        Q, value = eigenbasis(case)
        yield Seen(basis_gap(case.H, Q, value))


def descend(case: Scalar, step: Tensor) -> Scalar:
    """One step of gradient descent, by the network's own gradient."""
    v, w = (case.theta - step.unsqueeze(-1) * case.gradient).chunk(2, -1)
    return Scalar(w, v, case.x, case.y)


def bulk_count(case: Scalar) -> Tensor:
    """How many eigenvalues equal dx in magnitude."""
    true = torch.linalg.eigvalsh(case.H).abs()
    return ((true - case.d.abs().unsqueeze(-1)).abs() < 1e-9 * case.unit.unsqueeze(-1)).sum(-1)


@row(
    "L18",
    "[cracking] Cor 3.1",
    "Under gradient descent the bulk eigenspace stays what it was, θ_t is orthogonal to it, and w ± v only shrink or grow.",
    "holds under",
    "No step with η dx = ±1 (there w + v or w - v dies and the bulk gains a dimension). Also for momentum and weight decay.",
)
def invariant_bulk(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for start in generic(generator, profile, widths=(2, 3, 7)):
        batch = len(start.c)
        kills = torch.arange(batch) % 6 == 0
        p, q = start.w + start.v, start.w - start.v
        grow, shrink = torch.ones(batch, dtype=torch.float64), torch.ones(batch, dtype=torch.float64)
        c, case, worst = normal(generator, *start.w.shape), start, torch.zeros(batch, dtype=torch.float64)
        for t in range(profile.pick(10, 200)):
            step = 0.2 / case.unit
            step = torch.where(kills & (t == 0), 1 / case.d, step)
            shrink, grow = shrink * (1 - step * case.d), grow * (1 + step * case.d)
            case = descend(case, step)
            for sign in (1.0, -1.0):
                z = bulk_vector(start, torch.full_like(start.d, sign), c)
                rest = residual(case.H, z, (sign * case.d).unsqueeze(-1)).squeeze(-1)
                z = z.squeeze(-1)
                angle = dot(case.theta, z).abs() / (z.norm(dim=-1) * case.theta.norm(dim=-1).clamp(min=1.0))
                worst = torch.maximum(worst, torch.maximum(rest, angle))
            off = case.w + case.v - shrink.unsqueeze(-1) * p, case.w - case.v - grow.unsqueeze(-1) * q
            drift = off[0].norm(dim=-1) + off[1].norm(dim=-1)
            worst = torch.maximum(worst, drift / case.theta.norm(dim=-1).clamp(min=1.0))
            if t == 0:
                worst = torch.maximum(worst, (bulk_count(case) - (2 * case.m - 2)).abs().to(torch.float64))
        yield Seen(worst, condition=~kills)


@row(
    "L18a",
    "[cracking] end of the proof of Cor 3.1",
    "The dimension of the bulk eigenspace can only decrease, when dx tends to 0.",
    "corrected",
    "It grows: at dx = 0 the bulk merges with λ₂ into a kernel of dimension 2m - 1.",
)
def dimension_at_convergence(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        solved = case.kept(case.of_kind("solved"))
        count = bulk_count(solved).to(torch.float64)
        yield Seen((count - (2 * case.m - 2)).clamp(min=0.0), (count - (2 * case.m - 1)).abs())


@row(
    "L18b",
    "ours, beside [cracking] Cor 3.1",
    "Training stays in the plane span{θ₀, (w₀;v₀)} whatever the optimiser.",
    "holds under",
    "Steps that are combinations of gradients and parameters (momentum, weight decay); sign descent leaks out.",
    kind="ours",
)
def other_optimisers(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for start in generic(generator, profile, widths=(3, 7)):
        swapped = torch.cat([start.w, start.v], -1)
        plane = torch.linalg.qr(torch.stack([start.theta, swapped], -1)).Q
        for momentum, decay, signs in ((0.9, 0.0, False), (0.5, 0.01, False), (0.0, 0.0, True)):
            case, velocity = start, torch.zeros_like(start.theta)
            for _ in range(profile.pick(30, 100)):
                force = case.gradient.sign() if signs else case.gradient / start.unit.unsqueeze(-1)
                velocity = momentum * velocity - 0.02 * (force + decay * case.theta)
                v, w = (case.theta + velocity).chunk(2, -1)
                case = Scalar(w, v, case.x, case.y)
            theta = case.theta.unsqueeze(-1)
            leak = (theta - plane @ (plane.mT @ theta)).squeeze(-1).norm(dim=-1) / case.theta.norm(dim=-1)
            yield Seen(leak, condition=torch.full(leak.shape, not signs))
