"""The two-layer linear network of one input, `f(x) = <w, v> x`: its spectrum, and what its sharpness is made of."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum
from .moments import ScalarMoments, check_finite, conform
from .scalar_products import Pairs, safe_sqrt, separate_products

SHAPES = {"w": "m", "v": "m", "x": "n", "y": "n"}


def scalar_linear(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*batch n"],
) -> Spectrum:
    r"""Return the Hessian spectrum of `1/(2n) sum (<w, v> x - y)^2`, [cracking] Theorems 3.1 to 3.3, at any point.

    With `c = <w, v>`, `s2 = mean x^2` and `dx = mean x (c x - y)`: two outliers
    `s2 (|w|^2 + |v|^2) / 2 +- sqrt(s2^2 (|w|^2 + |v|^2)^2 / 4 + dx^2 + 2 s2 dx c)`, then `+dx` and `-dx`, m - 1 times each.
    Parameters are ordered `(v; w)`, as in the paper and in `Sequential(Linear(1, m), Linear(m, 1))`. The eigenvectors
    form a complete orthonormal basis also where those of Theorem 3.2 vanish (`w = +-v`, `dx = 0`), and follow the sign
    of dx where Theorem 3.3 does not.

    >>> s = scalar_linear(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0]), torch.ones(1), torch.tensor([1.0]))
    >>> s.values.round(decimals=6).tolist(), s.multiplicities.tolist()
    ([5.854102, -0.854102, 1.0, -1.0], [1, 1, 1, 1])
    """
    w, v, x, y = conform(SHAPES, w=w, v=v, x=x, y=y)
    data = ScalarMoments.of(x, y)
    return _spectrum(w, v, (w * v).sum(-1) * data.s2 - data.yx, data.s2)


def scalar_linear_loss(
    w: Float[Tensor, "*batch m"], v: Float[Tensor, "*batch m"], loss: Callable[[Tensor], Tensor]
) -> Spectrum:
    r"""Return the Hessian spectrum of any twice differentiable loss `l(c)` of `c = <w, v>`: `l''` for s2 and `l'` for dx.

    `loss` maps c, of the shape of the batch, to a tensor of that shape, each entry on its own; its derivatives are taken by
    autograd. Parameters are ordered `(v; w)`. Where the derivatives are known, use `scalar_linear_derivatives`.

    >>> w, v, x, t = torch.ones(2), torch.zeros(2), torch.tensor([2.0, 4.0]), torch.tensor([0.0, 1.0])
    >>> def logistic(c):
    ...     z = c.unsqueeze(-1) * x
    ...     return (torch.nn.functional.softplus(z) - t * z).mean(-1)
    >>> s = scalar_linear_loss(w, v, logistic)
    >>> s.trace.item()                                  # l'' (|w|^2 + |v|^2), l'' = mean x^2 p (1 - p)
    5.0
    """
    w, v = conform(SHAPES, w=w, v=v)
    slope, curvature = derivatives(loss, (w * v).sum(-1))
    check_finite(slope=slope, curvature=curvature)
    return _spectrum(w, v, slope, curvature)


def scalar_linear_derivatives(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    slope: Float[Tensor, "*batch"],
    curvature: Float[Tensor, "*batch"],
) -> Spectrum:
    r"""Return the Hessian spectrum of a loss `l(<w, v>)` from `slope = l'` and `curvature = l''` at `<w, v>`.

    Either may be negative or 0. Parameters are ordered `(v; w)`.

    >>> one = torch.ones(1)
    >>> scalar_linear_derivatives(one, one, torch.tensor(0.0), torch.tensor(-1.0)).expand().tolist()     # -g g^T, g = (1, 1)
    [-2.0, 0.0]
    """
    shapes = {"w": "m", "v": "m", "slope": "", "curvature": ""}
    w, v, slope, curvature = conform(shapes, w=w, v=v, slope=slope, curvature=curvature)
    return _spectrum(w, v, slope, curvature)


def derivatives(loss: Callable[[Tensor], Tensor], c: Float[Tensor, "*batch"]) -> tuple[Tensor, Tensor]:
    """Differentiate an elementwise function twice by autograd; the results can be differentiated further.

    >>> derivatives(torch.exp, torch.zeros(2))
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    with torch.enable_grad():
        at = c if c.requires_grad else c.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(at).sum(), at, create_graph=True, materialize_grads=True)
        if not slope.requires_grad:
            return slope, torch.zeros_like(slope)
        (curvature,) = torch.autograd.grad(slope.sum(), at, create_graph=True, materialize_grads=True)
    return (slope, curvature) if c.requires_grad else (slope.detach(), curvature.detach())


def _spectrum(w: Tensor, v: Tensor, slope: Tensor, curvature: Tensor) -> Spectrum:
    """Return the spectrum of one product from l' and l''."""
    batch = torch.broadcast_shapes(slope.shape, curvature.shape, w.shape[:-1], v.shape[:-1])
    pairs = Pairs.of(w.unsqueeze(-2), v.unsqueeze(-2), batch)
    return separate_products(pairs, slope.unsqueeze(-1), curvature.unsqueeze(-1))


@dataclass(frozen=True, eq=False)
class SharpnessParts:
    """The four things that make up the outliers, [cracking] eq. 2: `overall / 2 +- sqrt(sum of the other three) / 2`.

    Each of the three is a square, in units of an eigenvalue squared.
    """

    imbalance: Float[Tensor, "*batch"]
    """`s2^2 (|w|^2 - |v|^2)^2`: the layers differ in norm."""
    non_collinearity: Float[Tensor, "*batch"]
    """`4 s2^2 (|w|^2 |v|^2 - <w, v>^2)`: the layers differ in direction."""
    deviation: Float[Tensor, "*batch"]
    """`4 (2 s2 <w, v> - mean y x)^2`: the map differs from half the target (the poster lacks the first s2)."""
    overall: Float[Tensor, "*batch"]
    """`s2 (|w|^2 + |v|^2)`: the trace of the Hessian."""

    @property
    def sharpness(self) -> Float[Tensor, "*batch"]:
        """The larger outlier, which is the largest eigenvalue."""
        return self.overall / 2 + safe_sqrt(self.imbalance + self.non_collinearity + self.deviation) / 2


def scalar_linear_parts(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*batch n"],
) -> SharpnessParts:
    """Split the sharpness of `f(x) = <w, v> x` into imbalance, non-collinearity, deviation and overall norm.

    >>> parts = scalar_linear_parts(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]), torch.ones(1), torch.tensor([3.0]))
    >>> [p.item() for p in (parts.imbalance, parts.non_collinearity, parts.deviation, parts.overall)]
    [9.0, 16.0, 36.0, 5.0]
    """
    w, v, x, y = conform(SHAPES, w=w, v=v, x=x, y=y)
    data = ScalarMoments.of(x, y)
    c, vv = (w * v).sum(-1), v.square().sum(-1)
    across = w - (c / torch.where(vv > 0, vv, 1.0)).unsqueeze(-1) * v  # the part of w orthogonal to v: no cancellation
    return SharpnessParts(
        imbalance=(data.s2 * ((w + v) * (w - v)).sum(-1)).square(),
        non_collinearity=4 * data.s2.square() * vv * across.square().sum(-1),
        deviation=4 * (2 * data.s2 * c - data.yx).square(),
        overall=data.s2 * (w.square().sum(-1) + vv),
    )
