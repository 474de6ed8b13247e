"""The linear network of one input with a hidden bias, `f(x) = w . (v x + b)`: for any data, and in radicals for some."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import Spectrum, TheoryError
from .bias_frame import bias_spectrum
from .moments import ScalarMoments, conform
from .scalar_products import outlier_pair, safe_sqrt

SHAPES = {"w": "m", "v": "m", "b": "m", "x": "n", "y": "n"}


def scalar_linear_bias(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    b: Float[Tensor, "*batch m"],
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*batch n"],
    *,
    strict: bool = False,
) -> Spectrum:
    r"""Return the Hessian spectrum of `1/(2n) sum (w . (v x + b) - y)^2`, with no assumption on weights or data.

    With `dx = mean x (f - y)` and `db = mean (f - y)`: five outliers (three at m = 1), `+r` and `-r` with
    `r = sqrt(dx^2 + db^2)`, m - 2 times each, and 0, m - 1 times. `strict=True` asks for the radicals of [cracking] Theorem
    B.1 and refuses where its assumptions do not hold. Parameters are ordered `(w; v; b)`, as there in eq. 82. The outliers
    can be differentiated once.

    >>> one = torch.ones(1)
    >>> s = scalar_linear_bias(one, one, 0 * one, one, one)      # fitted: the gradient of f is (1, 1, 1)
    >>> s.expand().round(decimals=9).tolist()
    [0.0, 0.0, 3.0]
    """
    if strict:
        return scalar_linear_bias_radicals(w, v, b, x, y).spectrum
    w, v, b, x, y = conform(SHAPES, w=w, v=v, b=b, x=x, y=y)
    data = ScalarMoments.of(x, y)
    return bias_spectrum(w, v, b, data, _residuals(w, v, b, data))


def _residuals(w: Tensor, v: Tensor, b: Tensor, data: ScalarMoments) -> Float[Tensor, "*batch 2"]:
    """`(dx, db)`: the residual averaged against x and against 1."""
    c1, c2 = (w * v).sum(-1), (w * b).sum(-1)
    dx, db = c1 * data.s2 + c2 * data.mean_x - data.yx, c1 * data.mean_x + c2 - data.mean_y
    return torch.stack([dx, db], -1)


@dataclass(frozen=True, eq=False)
class BiasRadicals:
    """The five outliers in radicals. The pair is centred at a quarter of the trace, the triple at a sixth.

    `assumptions` says for each condition which members of the batch meet it; all that the formula needs are met. The last
    one is not needed: it is what the printed theorem asks for instead of the one before.
    """

    spectrum: Spectrum
    pair: Float[Tensor, "*batch 2"]
    triple: Float[Tensor, "*batch 3"]
    triple_reach: Float[Tensor, "*batch"]
    """The triple lies within this distance of its centre."""
    assumptions: dict[str, Bool[Tensor, "*batch"]]


PARALLEL = "(mean yx, mean y) is parallel to (<w, v>, <w, b>)"
UNCORRELATED = "mean yx = 0 and mean y = 0"


def bias_assumptions(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    b: Float[Tensor, "*batch m"],
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*batch n"],
    *,
    tol: float = 1e-10,
) -> dict[str, Bool[Tensor, "*batch"]]:
    """Say which assumptions of [cracking] Theorem B.1 hold up to a relative `tol`.

    The last, of the printed theorem, leaves nothing to learn; the one before it is enough.

    >>> e = torch.eye(2)
    >>> x, y = torch.tensor([1.0, -1.0]), torch.tensor([3.0, -1.0])
    >>> {name: bool(met) for name, met in bias_assumptions(e[0], e[0], e[1], x, y).items()}
    {'mean x^2 = 1': True, 'mean x = 0': True, '<v, b> = 0': True, '|v| = |b|': True,
     '(mean yx, mean y) is parallel to (<w, v>, <w, b>)': False, 'mean yx = 0 and mean y = 0': False}
    """
    w, v, b, x, y = conform(SHAPES, w=w, v=v, b=b, x=x, y=y)
    data = ScalarMoments.of(x, y)
    k1, k2, vb = (w * v).sum(-1), (w * b).sum(-1), (v * b).sum(-1)
    w_norm, v_norm, b_norm = (t.norm(dim=-1) for t in (w, v, b))
    k_norm, scale = torch.hypot(k1, k2), w_norm * torch.maximum(v_norm, b_norm)
    y_norm, y_scale = torch.hypot(data.yx, data.mean_y), y.square().mean(-1).sqrt()
    cross = (k1 * data.mean_y - k2 * data.yx).abs()
    nothing = y_norm <= tol * y_scale
    return {
        "mean x^2 = 1": (data.s2 - 1).abs() <= tol,
        "mean x = 0": data.mean_x.abs() <= tol,
        "<v, b> = 0": vb.abs() <= tol * v_norm * b_norm,
        "|v| = |b|": (v_norm - b_norm).abs() <= tol * torch.maximum(v_norm, b_norm),
        PARALLEL: (cross <= tol * k_norm * y_norm) | (k_norm <= tol * scale) | nothing,
        UNCORRELATED: nothing,
    }


def scalar_linear_bias_radicals(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    b: Float[Tensor, "*batch m"],
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*batch n"],
    *,
    tol: float = 1e-10,
) -> BiasRadicals:
    r"""Return the spectrum of the network with a bias in radicals: [cracking] Theorem B.1, extended.

    It needs `mean x = 0`, `mean x^2 = 1`, `<v, b> = 0`, `|v| = |b|`, and `(mean yx, mean y)` parallel to
    `k = (<w, v>, <w, b>)`; the printed theorem wants both means 0. With `T = |v|^2 + |w|^2` and omega the residual along k: the
    pair `T / 2 +- sqrt(T^2 / 4 + omega^2 + 2 omega |k|)`, the roots of `l^3 - T l^2 - omega^2 l + omega^2 |w|^2`, then
    `+-|omega|`, m - 2 times each, and 0, m - 1 times. Refuses, naming the first assumption that fails.

    >>> e = torch.eye(2)
    >>> x, y = torch.tensor([1.0, -1.0]), torch.tensor([0.0, 0.0])
    >>> r = scalar_linear_bias_radicals(e[0], e[0], e[1], x, y)
    >>> r.pair.tolist(), r.triple.round(decimals=6).tolist()
    ([3.0, -1.0], [2.24698, 0.554958, -0.801938])
    """
    met = bias_assumptions(w, v, b, x, y, tol=tol)
    for name, members in met.items():
        if name != UNCORRELATED and not bool(members.all()):
            who = f" in {int((~members).sum())} of {members.numel()} members" if members.ndim else ""
            raise TheoryError(
                f"the radicals were asked for, but their assumption {name!r} does not hold{who}; "
                "expected all of bias_assumptions(...), or use strict=False, which needs none."
            )
    w, v, b, x, y = conform(SHAPES, w=w, v=v, b=b, x=x, y=y)
    data = ScalarMoments.of(x, y)
    omega = _residuals(w, v, b, data)
    general = bias_spectrum(w, v, b, data, omega)
    k = torch.stack([(w * v).sum(-1), (w * b).sum(-1)], -1)
    signed = torch.linalg.vector_norm(omega, dim=-1).copysign((omega * k).sum(-1))
    W, V = w.square().sum(-1), (v.square().sum(-1) + b.square().sum(-1)) / 2
    reach = 2 * torch.linalg.vector_norm(k, dim=-1)
    pair = torch.stack(outlier_pair(W + V + reach, (W + V - reach).clamp(min=0), signed, torch.ones_like(signed)), -1)
    triple = _triple(W, V, signed.square())
    # a single neuron leaves room for W only: there v = b = 0, and the other two of the triple are +-|omega|
    outliers = torch.cat([pair, triple if w.shape[-1] > 1 else W.expand_as(signed).unsqueeze(-1)], -1)
    values = torch.cat([outliers.sort(-1, descending=True).values, general.values[..., outliers.shape[-1] :]], -1)
    bound = 2 / 3 * ((W + V).square() + 3 * signed.square()).sqrt()
    return BiasRadicals(replace(general, values=values), pair, triple, bound, met)


def _triple(W: Tensor, V: Tensor, o2: Tensor) -> Float[Tensor, "*batch 3"]:
    r"""Return the roots of `(l - W) (l^2 - omega^2) = V l^2`, descending: Viete's formula for one of them, then a quadratic.

    The cosine of the larger root in magnitude forgives the arccosine its lost digits; the other two, which may coincide,
    come from their sum and product, whose difference of squares is written without a cancellation.
    """
    W, V, o2 = torch.broadcast_tensors(W, V, o2)
    T = W + V
    p = -o2 - T.square() / 3
    q = -2 / 27 * T**3 - V * o2 / 3 + 2 / 3 * W * o2
    nonzero = p < 0
    safe_p = torch.where(nonzero, p, -1.0)
    cosine = torch.where(nonzero, 1.5 * q / safe_p * (-3 / safe_p).sqrt(), 1.0).clamp(-1, 1)
    top = cosine >= 0
    angle = cosine.arccos() / 3
    angle = torch.where(top, angle, angle - 4 * torch.pi / 3)
    pivot = T / 3 + 2 * (-p / 3).sqrt() * angle.cos()
    l = torch.where(nonzero, pivot, 1.0)
    half_sum, product = -o2 * (l - W) / (2 * l.square()), -o2 * W / l
    spread = torch.where(top, half_sum.square() - product, o2 * ((l + W).square() + V * (W - l)) / (4 * l.square()))
    big = half_sum + safe_sqrt(spread).copysign(half_sum)
    other = torch.where(big == 0, 0.0, product / torch.where(big == 0, 1.0, big))
    roots = torch.stack([pivot, big, other], -1)
    return roots.sort(-1, descending=True).values
