"""Rows on the remaining statements of [cracking]: Sec. 4.1, 4.2, D.1.3, D.3.3, D.4, and the empirical ones."""

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor

from . import oracle
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import excess, matrix_gap, normal, number_gap
from .two_layer_cases import TwoLayer, cases, norms, whitened

SECTION = Ledger()
row = SECTION.row


def kron(A: Tensor, B: Tensor) -> Tensor:
    """Kronecker products of a batch."""
    return torch.stack([torch.kron(a, b) for a, b in zip(A, B)])


@row(
    "S1",
    "[cracking] D.3.3, D.4",
    "The diagonal blocks of the Hessian are W₂ᵀW₂ ⊗ Σ and I ⊗ W₁ΣW₁ᵀ.",
    "holds",
    "With matrices flattened row by row.",
)
def diagonal_blocks(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        K, M, D = case.sizes
        first = matrix_gap(kron(case.W.mT @ case.W, case.S), case.H[:, : M * D, : M * D])
        eye = torch.eye(K, dtype=torch.float64).expand(len(case.W), K, K)
        yield Seen(first + matrix_gap(kron(eye, case.V @ case.S @ case.V.mT), case.H[:, M * D :, M * D :]))


@row(
    "S2",
    "[cracking] D.3.3",
    "With decorrelated inputs λ_max = max(|W₁|², |W₂|²), spectral norms.",
    "corrected",
    "The sum, as [data] eq. 10 says: λ_max(GGN) = |W₁|² + |W₂|². The full H differs by at most the norm of E[δxᵀ].",
)
def maximum_or_sum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for raw in cases(generator, profile):
        if raw.X.shape[-2] >= raw.X.shape[-1]:
            case = whitened(generator, raw)
            top, ggn = (torch.linalg.eigvalsh(A)[:, -1] for A in (case.H, case.G))
            rule, total = torch.maximum(norms(case.W), norms(case.V)), norms(case.W) + norms(case.V)
            near = torch.minimum((rule - top).abs(), (rule - ggn).abs()) / case.unit
            slack = excess((top - ggn).abs(), torch.linalg.matrix_norm(case.omega, 2), case.unit)
            yield Seen(near, number_gap(total, ggn, case.unit) + slack)


@row(
    "S3",
    "[cracking] D.3.3",
    "λ_max(H) is at least the squared spectral norm of either weight matrix (decorrelated inputs).",
    "holds",
    "In general λ_max(H) ≥ max(|W₂|² λ_max(Σ), |W₁Σ^½|²).",
)
def lower_bound(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for raw in cases(generator, profile):
        general = torch.maximum(
            norms(raw.W) * torch.linalg.eigvalsh(raw.S)[:, -1], torch.linalg.matrix_norm(raw.V @ raw.S @ raw.V.mT, 2)
        )
        corrected = excess(general, torch.linalg.eigvalsh(raw.H)[:, -1], raw.unit)
        if raw.X.shape[-2] >= raw.X.shape[-1]:
            case = whitened(generator, raw)
            bound = torch.maximum(norms(case.W), norms(case.V))
            yield Seen(excess(bound, torch.linalg.eigvalsh(case.H)[:, -1], case.unit), corrected)


@row(
    "S4",
    "[cracking] D.4",
    "For K = D and decorrelated inputs tr H = D (|W₁|_F² + |W₂|_F²).",
    "holds",
    "At any loss. In general tr H = |W₂|_F² tr Σ + K |W₁Σ^½|_F².",
)
def trace_formula(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for raw in cases(generator, profile):
        K, _, D = raw.sizes
        frobenius = raw.W.square().sum((-2, -1)) * raw.S.diagonal(dim1=-2, dim2=-1).sum(-1)
        general = frobenius + K * (raw.V @ raw.S * raw.V).sum((-2, -1))
        corrected = number_gap(general, raw.H.diagonal(dim1=-2, dim2=-1).sum(-1), raw.unit)
        printed = None
        if K == D and raw.X.shape[-2] >= D:
            case = whitened(generator, raw)
            claimed = D * (case.W.square().sum((-2, -1)) + case.V.square().sum((-2, -1)))
            printed = number_gap(claimed, case.H.diagonal(dim1=-2, dim2=-1).sum(-1), case.unit)
        yield Seen(printed, corrected)


def closest_pair(case: TwoLayer) -> Tensor:
    """Smallest distance of a sum of two eigenvalues from tr H / D, over the radius."""
    true, D = torch.linalg.eigvalsh(case.H), case.V.shape[-1]
    i, j = torch.triu_indices(true.shape[-1], true.shape[-1], 1)
    target = true.sum(-1, keepdim=True) / D
    return (true[:, i] + true[:, j] - target).abs().amin(-1) / true.abs().amax(-1)


@row(
    "S5",
    "[cracking] Sec. 4.1; [closed-form] Sec. 3",
    "For one output and input size D, two eigenvalues sum to tr H / D.",
    "holds under",
    "White inputs, VᵀV = t I and E[yx] parallel to Vᵀw: decorrelated data, as there, or any converged point.",
)
def paired_outliers(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for D, m in ((2, 4), (3, 5), (4, 6)):
        b, n = 10 * profile.batch, 12
        X = n**0.5 * oracle.orthonormal(generator, b, n, D)
        V, w, y = oracle.orthonormal(generator, b, m, D), normal(generator, b, 1, m), normal(generator, b, n, 1)
        unlearnable = y - X @ (X.mT @ y) / n
        parallel = unlearnable + 2 * X @ V.mT @ w.mT
        inside = [TwoLayer(w, 1.3 * V, X, target) for target in (unlearnable, parallel)]
        general = [
            TwoLayer(w, V, X, y),
            TwoLayer(w, normal(generator, b, m, D), X, unlearnable),
            TwoLayer(w, V, normal(generator, b, n, D), unlearnable),
        ]
        for cases_, meets in ((inside, True), (general, False)):
            for case in cases_:
                yield Seen(closest_pair(case), condition=torch.full((b,), meets))


@row(
    "S6",
    "[cracking] D.1.3",
    "For vectors the Frobenius, spectral and nuclear alignments are the inner product.",
    "corrected",
    "The spectral and nuclear ones are its absolute value: the sign is lost.",
)
def alignments(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    w, v = normal(generator, 40 * profile.batch, 5, 1), normal(generator, 40 * profile.batch, 5, 1)
    inner, singular = (w * v).sum((-2, -1)), torch.linalg.svdvals(w.mT @ v)
    kinds = torch.stack([singular.amax(-1), singular.sum(-1)])
    yield Seen((kinds - inner).abs().amax(0), (kinds - inner.abs()).abs().amax(0))


@row(
    "S7",
    "[cracking] D.1.3, D.3.3",
    "|W|_F² = Σ_ij W_nm²; λ_max(W₁W₁ᵀ) = (σ_max²(W₁))²; both layers are D × m.",
    "corrected",
    "Σ_ij W_ij²; σ_max²(W₁); W₁ is m × D.",
    kind="misprint",
)
def notation(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    W = normal(generator, 40 * profile.batch, 4, 3)
    frobenius, top = (W.mT @ W).diagonal(dim1=-2, dim2=-1).sum(-1), torch.linalg.eigvalsh(W @ W.mT)[:, -1]
    sigma2 = torch.linalg.svdvals(W)[:, 0] ** 2
    printed = (12 * W[:, -1, -1] ** 2 - frobenius).abs() + (sigma2**2 - top).abs()
    yield Seen(printed, (W.square().sum((-2, -1)) - frobenius).abs() + (sigma2 - top).abs())


@row(
    "S8",
    "[cracking] Sec. 4.2, D.1.4",
    "For two layers, single matrices and knocked-out products are equivalent descriptions.",
    "holds",
    "As a set: the product without W₁ is W₂, and the other way round.",
)
def knocked_out(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        layers = [case.V, case.W]
        single = torch.stack([norms(W) for W in layers], -1).sort(-1).values
        products = []
        for i in range(2):
            products.append(norms(reduce(torch.matmul, layers[:i] + layers[i + 1 :])))
        yield Seen((torch.stack(products, -1).sort(-1).values - single).abs().amax(-1))


@row(
    "S9",
    "[cracking] Sec. 4.2, Figs. 4, 14-22, 26",
    "Sharpness correlates most with squared spectral norms (trace: Frobenius) across parametrisations and depths.",
    "not decidable from the text",
    "Empirical: the training recipe is given, the networks are not. At random points the correlations are as shown.",
)
def correlations(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    b, D, m, n = 100 * profile.batch, 3, 8, 20
    case = TwoLayer(*(normal(generator, b, *s) / 2 for s in ((D, m), (m, D), (n, D), (n, D))))
    top = torch.linalg.eigvalsh(case.H)[:, -1]
    singular = [torch.linalg.svdvals(W) for W in (case.W, case.V)]
    kinds = {"spectral": [s[:, 0] ** 2 for s in singular], "Frobenius": [(s**2).sum(-1) for s in singular]}
    kinds["nuclear"] = [s.sum(-1) ** 2 for s in singular]
    yield Seen(
        numbers={
            f"correlation with {name} norms": float(torch.corrcoef(torch.stack([top, a + b]))[0, 1])
            for name, (a, b) in kinds.items()
        }
    )


@row(
    "S10",
    "[cracking] Sec. 4.3, Figs. 5, 6, 23-25",
    "In GPT-2 the GGN approximates sharpness worse with attention, and attention sinks stretch the spectrum.",
    "not decidable from the text",
    "Measurements on 124M-parameter models; nothing to check without training them.",
)
def language_models(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    yield Seen()


@row(
    "S11",
    "[poster]; [spectral-view] Sec. 4, 6",
    "Flat minima generalise better; most critical points of deep networks are saddles; spectra are universal.",
    "not decidable from the text",
    "Statements about practice without a setting in which they could be tested; [cracking] Sec. 2 cites both sides.",
)
def practice(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    yield Seen()
