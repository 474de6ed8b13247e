"""One output, `f(x) = w^T V x`: when two outliers sum to the trace over D, and the spectrum in closed form where they do."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import Spectrum, TheoryError
from .moments import Moments, conform
from .scalar_products import outlier_pair, safe_sqrt

GOLDEN = 0.6180339887498949  # weighs two commuting matrices so that their sum tells all joint eigenspaces apart


@dataclass(frozen=True, eq=False)
class PairedConditions:
    """How far a network is from what makes its outliers pair up, as fractions (0: exactly met), and which hold up to `tol`.

    Conditions `alignment` and `commutation` give a closed form in which one pair sums to `s_1 (|w|^2 + t_1)`; with `whiteness`
    and `orthogonality` too, that is the trace over D. They are sufficient; [cracking] Sec. 4.1 expects the pair in general,
    where it is not found.
    """

    alignment: Float[Tensor, "*batch"]
    """V^T w and mean y x lie on one axis."""
    commutation: Float[Tensor, "*batch"]
    """`V^T V` and mean x x^T share eigenvectors, one of them along that axis."""
    whiteness: Float[Tensor, "*batch"]
    """`mean x x^T` is a multiple of the identity."""
    orthogonality: Float[Tensor, "*batch"]
    """`V^T V` is a multiple of the identity."""
    tol: float

    @property
    def closed_form(self) -> Bool[Tensor, "*batch"]:
        """Whether `paired_outliers` applies."""
        return (self.alignment <= self.tol) & (self.commutation <= self.tol)

    @property
    def pair_sums_to_trace_over_inputs(self) -> Bool[Tensor, "*batch"]:
        """Whether two outliers sum to `tr H / D`."""
        return self.closed_form & (self.whiteness <= self.tol) & (self.orthogonality <= self.tol)


@dataclass(frozen=True, eq=False)
class _Axes:
    """Joint axes of mean x x^T and V^T V, the last one along V^T w and mean y x, with the variances s and t along them."""

    s: Float[Tensor, "*batch D"]
    t: Float[Tensor, "*batch D"]
    c: Float[Tensor, "*batch"]
    slope: Float[Tensor, "*batch"]
    weight: Float[Tensor, "*batch"]
    width: int
    alignment: Float[Tensor, "*batch"]
    commutation: Float[Tensor, "*batch"]

    @classmethod
    def of(cls, w: Tensor, V: Tensor, data: Moments, tol: float) -> "_Axes":
        Sxx, Syx, gram = data.Sxx, data.Syx.squeeze(-2), V.mT @ V
        map_, size = (w.unsqueeze(-2) @ V).squeeze(-2), w.norm(dim=-1) * V.norm(dim=(-2, -1))
        power = torch.maximum(safe_sqrt(_trace(Sxx) * _trace(data.Syy)), size * _trace(Sxx))  # targets may be rounding
        a, b = map_ / _positive(size).unsqueeze(-1), Syx / _positive(power).unsqueeze(-1)
        longer = (a.norm(dim=-1) >= b.norm(dim=-1)).unsqueeze(-1)
        axis = torch.where(longer, a, b)
        length = axis.norm(dim=-1, keepdim=True)
        axis = torch.where(length > tol, axis / _positive(length), 0.0)  # neither points anywhere: any joint axis will do
        mixed = Sxx / _positive(_norm(Sxx))[..., None, None] + GOLDEN * gram / _positive(_norm(gram))[..., None, None]
        Q = torch.linalg.eigh(mixed + 4 * axis.unsqueeze(-1) * axis.unsqueeze(-2)).eigenvectors.detach()
        S, T, e = Q.mT @ Sxx @ Q, Q.mT @ gram @ Q, Q[..., -1]
        c = (map_ * e).sum(-1)
        off = [(z - (z * axis).sum(-1, keepdim=True) * axis).norm(dim=-1) for z in (a, b)]
        return cls(
            s=S.diagonal(dim1=-2, dim2=-1),
            t=T.diagonal(dim1=-2, dim2=-1),
            c=c,
            slope=c * S[..., -1, -1] - (Syx * e).sum(-1),
            weight=w.square().sum(-1),
            width=w.shape[-1],
            alignment=torch.maximum(*off),
            commutation=torch.maximum(_off_diagonal(S) / _positive(_norm(Sxx)), _off_diagonal(T) / _positive(_norm(gram))),
        )

    def spectrum(self) -> Spectrum:
        """One pair, D - 1 triples and the bulk."""
        D, m, total = self.s.shape[-1], self.width, self.weight + self.t[..., -1]
        plus, minus = (total + 2 * self.c).clamp(min=0), (total - 2 * self.c).clamp(min=0)
        pair = torch.stack(outlier_pair(plus, minus, self.slope, self.s[..., -1]), -1)
        # l^3 - s (W + t) l^2 - slope^2 l + slope^2 s W, as the characteristic polynomial of a symmetric matrix
        s, t, W, slope = torch.broadcast_tensors(
            self.s[..., :-1], self.t[..., :-1].clamp(min=0), self.weight.unsqueeze(-1), self.slope.unsqueeze(-1)
        )
        zero, mixed = torch.zeros_like(s), s * safe_sqrt(W * t)
        rows = [[s * W, mixed, zero], [mixed, s * t, slope], [zero, slope, zero]]
        triples = torch.linalg.eigvalsh(torch.stack([torch.stack(row, -1) for row in rows], -2)).flip(-1).flatten(-2)
        bulk = torch.stack([self.slope, -self.slope, 0 * self.slope], -1)
        counts = [1] * (3 * D - 1) + [m - D, m - D, (m - 1) * (D - 1)]
        labels = ("outlier",) * (3 * D - 1) + ("bulk", "bulk", "zero")
        return Spectrum(torch.cat([pair, triples, bulk], -1), torch.tensor(counts, device=pair.device), labels)


def paired_conditions(
    w: Float[Tensor, "*batch m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    y: Float[Tensor, "*batch n"],
    tol: float = 1e-9,
) -> PairedConditions:
    """Measure what `paired_outliers` needs of `f(x) = w^T V x`.

    >>> V = torch.eye(3)[:, :2]
    >>> found = paired_conditions(torch.tensor([1.0, 0.0, 1.0]), V, X=torch.eye(2), y=torch.tensor([3.0, 0.0]))
    >>> found.pair_sums_to_trace_over_inputs.item()
    True
    """
    return _measure(*_checked(w, V, X, y), tol)[1]


def paired_outliers(
    w: Float[Tensor, "*batch m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    y: Float[Tensor, "*batch n"],
    *,
    tol: float = 1e-9,
) -> Spectrum:
    r"""Return the Hessian spectrum of `1/(2n) sum (w^T V x - y)^2` where its outliers come in one pair and D - 1 triples.

    Let mean x x^T and V^T V share an eigenbasis, of eigenvalues s_d and t_d, with V^T w and mean y x along axis 1, and let r be
    the residual covariance along it. Then the first two values are those of a scalar network, of sum `s_1 (|w|^2 + t_1)`;
    each further axis adds the roots of `l^3 - s_d (|w|^2 + t_d) l^2 - r^2 l + r^2 s_d |w|^2`; `+-r` occur m - D times each.
    For white inputs and orthogonal equal columns of V, the pair and each triple sum to the trace over D. Raises where a
    condition fails by more than `tol`; `two_layer_linear` has no conditions, and eigenvectors.

    >>> V = torch.eye(3)[:, :2]
    >>> s = paired_outliers(torch.tensor([1.0, 0.0, 1.0]), V, X=torch.eye(2), y=torch.tensor([3.0, 0.0]))
    >>> (s.values[:2].sum() - s.trace / 2).abs().item() < 1e-12
    True
    """
    inputs = _checked(w, V, X, y)
    m, D = inputs[1].shape[-2:]
    if m < D:
        raise TheoryError(
            f"the width is {m} and there are {D} inputs; expected m >= D: use two_layer_linear(w[None], V, X, Y)."
        )
    axes, found = _measure(*inputs, tol)
    worst = {
        "V^T w and mean y x are not on one axis": found.alignment,
        "V^T V and mean x x^T have no common axes with V^T w": found.commutation,
    }
    for sentence, gap in worst.items():
        if bool((gap > tol).any()):
            raise TheoryError(
                f"{sentence}: off by {gap.max().item():.1e}; expected at most tol = {tol:.1e}: "
                "use two_layer_linear(w[None], V, X, Y)."
            )
    return axes.spectrum()


def _checked(w: Tensor, V: Tensor, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Moments]:
    w, V, X, y = conform({"w": "m", "V": "m D", "X": "n D", "y": "n"}, w=w, V=V, X=X, y=y)
    return w, V, Moments.of(X, y.unsqueeze(-1))


def _measure(w: Tensor, V: Tensor, data: Moments, tol: float) -> tuple[_Axes, PairedConditions]:
    axes, gram = _Axes.of(w, V, data, tol), V.mT @ V
    found = PairedConditions(
        alignment=axes.alignment,
        commutation=axes.commutation,
        whiteness=_anisotropy(data.Sxx).broadcast_to(axes.alignment.shape),
        orthogonality=_anisotropy(gram).broadcast_to(axes.alignment.shape),
        tol=tol,
    )
    return axes, found


def _trace(A: Tensor) -> Tensor:
    return A.diagonal(dim1=-2, dim2=-1).sum(-1)


def _norm(A: Tensor) -> Tensor:
    return A.norm(dim=(-2, -1))


def _positive(size: Tensor) -> Tensor:
    return torch.where(size > 0, size, 1.0)


def _off_diagonal(A: Tensor) -> Tensor:
    return _norm(A - torch.diag_embed(A.diagonal(dim1=-2, dim2=-1)))


def _anisotropy(A: Tensor) -> Tensor:
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return _norm(A - (_trace(A) / A.shape[-1])[..., None, None] * eye) / _positive(_norm(A))
