"""The scalar two-layer linear network f(x) = <w, v> x, random and degenerate, with its Hessian by autograd."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from . import oracle
from .core import Profile
from .oracle import kind_mask, normal

WIDTHS, SIZES = (1, 2, 3, 7), (1, 2, 6)
# What a case of each kind has to survive. "opposite" data have a negative target slope, "solved" ones no residual slope.
KINDS = (
    "random", "w = v", "w = -v", "w = 0", "v = 0", "all 0", "parallel", "orthogonal", "equal norms", "solved",
    "solved, w = v", "x = 0", "some x = 0", "ties", "shifted", "large x", "small x", "opposite",
)  # fmt: skip


def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Half the mean squared error of `<w, v> x`, with theta = (v, w)."""
    v, w = theta.chunk(2)
    return ((w @ v) * x - y).square().mean() / 2


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product along the last axis."""
    return (a * b).sum(-1)


@dataclass(frozen=True)
class Scalar:
    """A batch of networks and data sets of one shape; letters as in the papers, `d` for the residual covariance."""

    w: Float[Tensor, "b m"]
    v: Float[Tensor, "b m"]
    x: Float[Tensor, "b n"]
    y: Float[Tensor, "b n"]

    @cached_property
    def theta(self) -> Float[Tensor, "b p"]:
        """Parameters in the order (v, w)."""
        return torch.cat([self.v, self.w], -1)

    @cached_property
    def H(self) -> Float[Tensor, "b p p"]:
        """Hessian by autograd."""
        return oracle.hessians(loss, self.theta, self.x, self.y)

    @cached_property
    def unit(self) -> Float[Tensor, "b"]:
        """Return max(1, spectral radius)."""
        return oracle.scale(self.H)

    @cached_property
    def gradient(self) -> Float[Tensor, "b p"]:
        """Gradient by autograd."""
        return oracle.gradients(loss, self.theta, self.x, self.y)

    @cached_property
    def loss(self) -> Float[Tensor, "b"]:
        """Loss by the network itself."""
        return oracle.values(loss, self.theta, self.x, self.y)

    @property
    def m(self) -> int:
        """Width."""
        return self.w.shape[-1]

    @cached_property
    def c(self) -> Tensor:
        """<w, v>."""
        return dot(self.w, self.v)

    @cached_property
    def W(self) -> Tensor:
        """|w|^2."""
        return dot(self.w, self.w)

    @cached_property
    def V(self) -> Tensor:
        """|v|^2."""
        return dot(self.v, self.v)

    @cached_property
    def s2(self) -> Tensor:
        """Mean of x^2."""
        return self.x.square().mean(-1)

    @cached_property
    def yx(self) -> Tensor:
        """Mean of x y."""
        return (self.x * self.y).mean(-1)

    @cached_property
    def d(self) -> Tensor:
        """Mean of x delta."""
        return (self.x * (self.c.unsqueeze(-1) * self.x - self.y)).mean(-1)

    @cached_property
    def true_outliers(self) -> tuple[Tensor, Tensor]:
        """Return the largest eigenvalue, and what it leaves of the trace (the bulk sums to zero)."""
        top = torch.linalg.eigvalsh(self.H).amax(-1)
        return top, self.H.diagonal(dim1=-2, dim2=-1).sum(-1) - top

    def of_kind(self, *names: str) -> Tensor:
        """Members of the batch (as `draw` made it) that are of one of these kinds."""
        masks = [kind_mask(self.w.shape[0], KINDS, name) for name in names]
        return torch.stack(masks).any(0)

    def kept(self, mask: Tensor) -> "Scalar":
        """Return the cases in the mask."""
        return Scalar(self.w[mask], self.v[mask], self.x[mask], self.y[mask])


def pair(W: Tensor, V: Tensor, c: Tensor, s2: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """The two outliers as printed, [cracking] eq. 1."""
    half = s2 * (W + V) / 2
    root = (s2.square() * (W + V).square() + 4 * (d.square() + 2 * s2 * d * c)).clamp(min=0.0).sqrt() / 2
    return half + root, half - root


def printed_outliers(case: Scalar) -> tuple[Tensor, Tensor]:
    """[cracking] eq. 1 for a batch of networks."""
    return pair(case.W, case.V, case.c, case.s2, case.d)


def with_bulk(case: Scalar, top: Tensor, low: Tensor) -> Float[Tensor, "b p"]:
    """Spectrum made of two outliers and m - 1 eigenvalues of either sign."""
    bulk = oracle.repeat(case.d, case.m - 1)
    return torch.cat([torch.stack([top, low], -1), bulk, -bulk], -1)


def draw(generator: torch.Generator, batch: int, m: int, n: int) -> Scalar:
    """Random cases; member i is of kind i modulo the number of kinds."""
    w, v, x, y = (normal(generator, batch, k) for k in (m, m, n, n))

    def where(name: str, changed: Tensor, old: Tensor) -> Tensor:
        return torch.where(kind_mask(batch, KINDS, name).unsqueeze(-1), changed, old)

    v = where("w = v", w, where("solved, w = v", w, where("w = -v", -w, where("parallel", -2 * w, v))))
    v = where("orthogonal", v - w * (dot(w, v) / dot(w, w)).unsqueeze(-1), v)
    v = where("equal norms", v * (w.norm(dim=-1) / v.norm(dim=-1)).unsqueeze(-1), v)
    zero = torch.zeros_like(w)
    w, v = where("w = 0", zero, where("all 0", zero, w)), where("v = 0", zero, where("all 0", zero, v))
    x = where("some x = 0", x * (torch.arange(n) % 2), where("x = 0", 0 * x, where("ties", x[:, :1].expand_as(x), x)))
    x = where("shifted", x + 3, where("large x", 30 * x, where("small x", x / 30, x)))
    y = where("opposite", -3 * dot(w, v).unsqueeze(-1) * x + 0.1 * y, y)
    fit = ((dot(w, v) * dot(x, x) - dot(x, y)) / dot(x, x).clamp(min=1e-300)).unsqueeze(-1) * x
    y = where("solved", y + fit, where("solved, w = v", y + fit, y))
    return Scalar(w, v, x, y)


def cases(generator: torch.Generator, profile: Profile) -> Iterator[Scalar]:
    """One batch per width and number of samples, every kind in each."""
    for m in WIDTHS:
        for n in SIZES:
            yield draw(generator, profile.batch * len(KINDS), m, n)


def generic(generator: torch.Generator, profile: Profile, widths: tuple[int, ...] = WIDTHS) -> Iterator[Scalar]:
    """Batches of cases without degeneracy."""
    for m in widths:
        for n in SIZES:
            sizes = (m, m, n, n)
            yield Scalar(*(normal(generator, profile.batch * len(KINDS), k) for k in sizes))
