"""The two-layer ReLU network of one input, `f(x) = w . relu(v x)`: two linear networks that share nothing."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum
from .moments import check_overflow, conform
from .scalar_products import Pairs, separate_products


def scalar_relu(
    w: Float[Tensor, "*batch m"],
    v: Float[Tensor, "*batch m"],
    x: Float[Tensor, "*batch n"],
    y: Float[Tensor, "*batch n"],
) -> Spectrum:
    r"""Return the Hessian spectrum of `1/(2n) sum (w . relu(v x_i) - y_i)^2` by cells, [cracking] Theorem 3.4.

    Neurons with `v_j > 0` see the samples with `x > 0` only, those with `v_j < 0` the samples with `x < 0`. Each cell is a
    scalar linear network with `s2 = (1/n) sum x^2` and `dx = (1/n) sum x (c x - y)` over its own samples: two outliers,
    and `+dx` and `-dx` one time less than it has neurons. Corrections of the theorem: a cell without neurons has no
    eigenvalues at all, sums are over n and not the n of the cell, and neurons with `v_j = 0`, where autograd takes the
    derivative of the ReLU to be 0, add two zeros each.

    Values: outliers of the positive cell, of the negative cell, `+dx` and `-dx` of either, zero. Parameters are ordered
    `(v; w)`, as in `Sequential(Linear(1, m), ReLU(), Linear(m, 1))` without biases.

    >>> w, v = torch.tensor([1.0, 2.0]), torch.tensor([1.0, -1.0])
    >>> s = scalar_relu(w, v, torch.tensor([2.0, -2.0]), torch.tensor([2.0, 4.0]))
    >>> s.values.tolist(), s.multiplicities.tolist()
    ([4.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1, 1, 1, 1, 0, 0, 0, 0, 0])
    """
    w, v, x, y = conform({"w": "m", "v": "m", "x": "n", "y": "n"}, w=w, v=v, x=x, y=y)
    sign = torch.tensor([1.0, -1.0], dtype=x.dtype, device=x.device).unsqueeze(-1)
    own_neurons, own_samples = sign * v.unsqueeze(-2) > 0, sign * x.unsqueeze(-2) > 0  # (*batch, 2, m), (*batch, 2, n)
    s2 = (own_samples * x.square().unsqueeze(-2)).mean(-1)
    yx = (own_samples * (y * x).unsqueeze(-2)).mean(-1)
    check_overflow(s2, yx)
    slope = (own_neurons * (w * v).unsqueeze(-2)).sum(-1) * s2 - yx
    pairs = Pairs.of(own_neurons * w.unsqueeze(-2), own_neurons * v.unsqueeze(-2), slope.shape[:-1], own_neurons)
    return separate_products(pairs, slope, s2)
