r"""The spectrum of any loss that sees its parameters only through scalar products `c_g = <w_g, v_g>`, g = 1..G.

With `p = w + v`, `q = w - v`, `d = dl/dc` and `C = d2l/dc2`, the Hessian acts on each group as `d_g` times the swap of
its two halves, plus `C` on the gradients of the products. So `(n; n)`, n orthogonal to `p_g`, has the eigenvalue `d_g`, and
`(n; -n)`, n orthogonal to `q_g`, has `-d_g`; what is left is a matrix of size 2 G in the orthonormal basis of
`(p; p) / (|p| sqrt 2)` and `(q; -q) / (|q| sqrt 2)`. No case is excluded: where p or q is zero, any unit vector serves.
Parameters are ordered `(v_1; w_1; v_2; w_2; ...)`.
"""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import Eigenspace, Spectrum, TheoryError
from .moments import conform
from .spaces import Coordinates, Slots, Span

HALF = 0.5**0.5


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root whose derivative at 0 is taken to be 0."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1.0).sqrt(), 0.0)


def outlier_pair(plus: Tensor, minus: Tensor, slope: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the two outliers of one product, larger first, from `|w + v|^2`, `|w - v|^2`, l' and l''.

    `T / 2 +- R` with `T = l'' (|w|^2 + |v|^2)` the trace and `R^2 = (l' + l'' c)^2 + (l'' |w + v| |w - v| / 2)^2`, which is
    [cracking] eq. 2: a sum of squares. The outlier of smaller magnitude is the product of both, `-l' (l' + 2 l'' c)`, over
    the other: a difference `T / 2 - R` would lose its digits.

    >>> one = torch.tensor(1.0, dtype=torch.float64)
    >>> outlier_pair(4 * one, 0 * one, 0 * one, one)    # w = v = 1, fitted
    (tensor(2., dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    c, trace = (plus - minus) / 4, curvature * (plus + minus) / 2
    radius = safe_sqrt((slope + curvature * c).square() + (curvature * plus) * (curvature * minus) / 4)
    rising = trace >= 0
    big = trace / 2 + torch.where(rising, radius, -radius)
    other = 0.0 - slope * (slope + 2 * curvature * c) / torch.where(big == 0, 1.0, big)  # 0.0 -: never a negative zero
    return torch.where(rising, big, other), torch.where(rising, other, big)


@dataclass(frozen=True, eq=False)
class Pairs:
    """G pairs of vectors (w_g, v_g), with the unit vectors along `p = w + v` and `q = w - v`.

    With a mask (*batch, G, m), all groups share one pair of parameter vectors of length m and each owns the coordinates of
    its mask; without one, each group has parameters of its own.
    """

    w: Float[Tensor, "*batch G m"]
    v: Float[Tensor, "*batch G m"]
    mask: Bool[Tensor, "*batch G m"] | None = None

    @classmethod
    def of(cls, w: Tensor, v: Tensor, batch: torch.Size, mask: Tensor | None = None) -> "Pairs":
        """Repeat the vectors, without copies, for a batch that may be larger than theirs."""
        shape = (*batch, *torch.broadcast_shapes(w.shape[-2:], v.shape[-2:]))
        return cls(w.expand(shape), v.expand(shape), None if mask is None else mask.expand(shape))

    @property
    def n(self) -> int:
        """Number of parameters."""
        groups, m = self.w.shape[-2:]
        return 2 * m if self.mask is not None else 2 * groups * m

    @property
    def sizes(self) -> Tensor:
        """Number of coordinates of each group, (*batch, G)."""
        if self.mask is not None:
            return self.mask.sum(-1)
        return torch.full(self.w.shape[:-1], self.w.shape[-1], device=self.w.device)

    @property
    def plus(self) -> Float[Tensor, "*batch G"]:
        """`|w + v|^2`."""
        return (self.w + self.v).square().sum(-1)

    @property
    def minus(self) -> Float[Tensor, "*batch G"]:
        """`|w - v|^2`."""
        return (self.w - self.v).square().sum(-1)

    def unit(self, sign: int) -> Float[Tensor, "*batch G m"]:
        """Unit vector along `w + sign v`, or the first of the group's own where that is zero."""
        u = self.w + sign * self.v
        own = torch.ones_like(u) if self.mask is None else self.mask.to(u.dtype)
        first = torch.zeros_like(u).scatter(-1, own.argmax(-1, keepdim=True), 1.0) * own
        size = u.abs().amax(-1, keepdim=True)  # scaling first: squares of tiny numbers would vanish
        u = torch.where(size > 0, u / torch.where(size > 0, size, 1.0), first)
        norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
        return u / torch.where(norm > 0, norm, 1.0)

    def embed(self, plus: Float[Tensor, "*batch G"], minus: Float[Tensor, "*batch G"]) -> Float[Tensor, "*batch n 1"]:
        """Sum over groups of `plus (p; p) / (|p| sqrt 2) + minus (q; -q) / (|q| sqrt 2)`, as one column."""
        even = HALF * plus.unsqueeze(-1) * self.unit(+1)
        odd = HALF * minus.unsqueeze(-1) * self.unit(-1)
        halves = torch.stack([even + odd, even - odd], -2)  # (*batch, G, 2, m)
        return (halves.sum(-3).flatten(-2) if self.mask is not None else halves.flatten(-3)).unsqueeze(-1)

    def bulk_spaces(self) -> list[Eigenspace]:
        """Eigenspaces of `+d_1, -d_1, +d_2, -d_2, ...`."""
        return [self._bulk_space(g, sign) for g in range(self.w.shape[-2]) for sign in (+1, -1)]

    def _bulk_space(self, g: int, sign: int) -> Eigenspace:
        mask = None if self.mask is None else self.mask[..., g, :]
        start = 0 if self.mask is not None else 2 * g * self.w.shape[-1]
        a = self.w.new_tensor([HALF, sign * HALF])
        own = Pairs(self.w[..., g : g + 1, :], self.v[..., g : g + 1, :], None if mask is None else mask.unsqueeze(-2))
        return Slots(a, own.unit(sign).mT, n=self.n, start=start, mask=mask)

    def bulk_counts(self) -> Tensor:
        """Multiplicities of `+d_1, -d_1, +d_2, ...`, (*batch, 2 G)."""
        return (self.sizes - 1).clamp(min=0).repeat_interleave(2, -1)


def interleave(a: Tensor, b: Tensor) -> Tensor:
    """`a_1, b_1, a_2, b_2, ...` along the last axis."""
    return torch.stack([a, b], -1).flatten(-2)


def separate_products(pairs: Pairs, slope: Float[Tensor, "*batch G"], curvature: Float[Tensor, "*batch G"]) -> Spectrum:
    """Return the spectrum where `d2l/dc2` is diagonal: two outliers and two bulk values per group, in closed form.

    Under a mask, the coordinates that no group owns come last, with the eigenvalue 0.
    """
    plus, minus, slope, curvature = torch.broadcast_tensors(pairs.plus, pairs.minus, slope, curvature)
    large, small = outlier_pair(plus, minus, slope, curvature)
    c = (plus - minus) / 4
    values = torch.cat([interleave(large, small), interleave(slope, 0.0 - slope)], -1)
    present = (pairs.sizes > 0).to(torch.int64)
    counts = torch.cat([present.repeat_interleave(2, -1), pairs.bulk_counts()], -1)
    # Jacobi's angle of [[l' + l'' P^2 / 2, l'' P Q / 2], [l'' P Q / 2, -l' + l'' Q^2 / 2]]
    angle = 0.5 * torch.atan2(curvature * safe_sqrt(plus * minus), 2 * (slope + curvature * c))
    cos, sin = angle.cos(), angle.sin()
    groups = slope.shape[-1]
    spaces: list[Eigenspace] = [
        Span(pairs.n, present[..., g], partial(pairs.embed, along_p * only, along_q * only))
        for g, only in enumerate(torch.eye(groups, dtype=slope.dtype, device=slope.device))
        for along_p, along_q in ((cos, sin), (-sin, cos))
    ]
    spaces += pairs.bulk_spaces()
    labels = _labels(groups)
    if pairs.mask is not None:
        free = ~pairs.mask.any(-2)
        values = torch.cat([values, torch.zeros_like(values[..., :1])], -1)
        counts = torch.cat([counts, 2 * free.sum(-1, keepdim=True)], -1)
        spaces, labels = [*spaces, Coordinates(torch.cat([free, free], -1))], (*labels, "zero")
    return finite(Spectrum(values, counts, labels, tuple(spaces)))


def coupled_products(pairs: Pairs, gradient: Float[Tensor, "*batch G"], hessian: Float[Tensor, "*batch G G"]) -> Spectrum:
    """Return the spectrum for any `d2l/dc2`: 2 G outliers of a small matrix, and the bulk."""
    lengths = HALF * interleave(safe_sqrt(pairs.plus), safe_sqrt(pairs.minus))
    bulk = interleave(gradient, 0.0 - gradient).expand_as(lengths)
    repeated = hessian.repeat_interleave(2, -1).repeat_interleave(2, -2)
    reduced = lengths.unsqueeze(-1) * repeated * lengths.unsqueeze(-2) + torch.diag_embed(bulk)
    outliers, vectors = (part.flip(-1) for part in torch.linalg.eigh(reduced))
    values = torch.cat([outliers, bulk], -1)
    once = torch.ones(outliers.shape, dtype=torch.int64, device=values.device)
    spaces = [
        Span(pairs.n, once[..., 0], partial(pairs.embed, vectors[..., 0::2, i], vectors[..., 1::2, i]))
        for i in range(outliers.shape[-1])
    ]
    counts = torch.cat([once, pairs.bulk_counts().broadcast_to(once.shape)], -1)
    return finite(Spectrum(values, counts, _labels(gradient.shape[-1]), (*spaces, *pairs.bulk_spaces())))


def _labels(groups: int) -> tuple[str, ...]:
    return ("outlier",) * (2 * groups) + ("bulk",) * (2 * groups)


def finite(spectrum: Spectrum) -> Spectrum:
    """Refuse a spectrum that overflowed although the inputs were finite."""
    if not bool(torch.isfinite(spectrum.values).all()):
        raise TheoryError("the spectrum overflows float64; expected smaller weights or data: divide them by their largest.")
    return spectrum


def scalar_products(
    w: Float[Tensor, "*batch G m"],
    v: Float[Tensor, "*batch G m"],
    gradient: Float[Tensor, "*batch G"],
    hessian: Float[Tensor, "*batch G G"],
) -> Spectrum:
    r"""Return the spectrum of any loss `l(c)`, `c_g = <w_g, v_g>`, from its gradient and Hessian with respect to c.

    `+d_g` and `-d_g` occur m - 1 times each; the 2 G outliers are the eigenvalues of `B^T C B + diag(d_1, -d_1, d_2, ...)`,
    where row g of B holds `|w_g + v_g| / sqrt 2` and `|w_g - v_g| / sqrt 2` in columns 2 g and 2 g + 1. Parameters are
    ordered `(v_1; w_1; v_2; w_2; ...)`. Twice differentiable but where a pair has `w_g = +-v_g` exactly; there, once.

    >>> one = torch.ones(1, 2)
    >>> scalar_products(one, one, torch.zeros(1), torch.ones(1, 1)).values.round(decimals=12)
    tensor([4., 0., 0., 0.], dtype=torch.float64)
    """
    shapes = {"w": "G m", "v": "G m", "gradient": "G", "hessian": "G G"}
    w, v, gradient, hessian = conform(shapes, w=w, v=v, gradient=gradient, hessian=hessian)
    gap, scale = (hessian - hessian.mT).abs().max().item(), hessian.abs().max().item()
    if gap > 1e-9 * scale:
        raise TheoryError(
            f"hessian is not symmetric: max |C - C^T| is {gap:.3g} where max |C| is {scale:.3g}; "
            "expected second derivatives, such as (C + C.mT) / 2."
        )
    batch = torch.broadcast_shapes(w.shape[:-2], v.shape[:-2], gradient.shape[:-1], hessian.shape[:-2])
    return coupled_products(Pairs.of(w, v, batch), gradient, hessian)
