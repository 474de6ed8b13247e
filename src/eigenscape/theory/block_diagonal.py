r"""Linear networks whose inputs or outputs have hidden neurons of their own, and diagonal linear networks.

These are the masked parametrisations of [cracking] App. B.4: the zeros of the block-diagonal matrices are not parameters. For
the full network at block-diagonal weights see `two_layer_linear`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Eigenspace, Spectrum, TheoryError
from .moments import Moments, check_overflow, conform
from .scalar_products import Pairs, coupled_products, separate_products
from .spaces import Permuted


def block_diagonal_inputs(
    w: Float[Tensor, "*batch D m"],
    v: Float[Tensor, "*batch D m"],
    X: Float[Tensor, "*batch n D"],
    y: Float[Tensor, "*batch n"],
    *,
    strict: bool = False,
    tol: float = 1e-12,
) -> Spectrum:
    r"""Return the Hessian spectrum of `1/(2n) sum (f(x_i) - y_i)^2`, `f(x) = sum_d <w_d, v_d> x_d`, for any data.

    With `c_d = <w_d, v_d>` and `dx = Sxx c - Syx` (uncentred moments): `+dx_d` and `-dx_d`, m - 1 times each, and the 2 D
    eigenvalues of `B^T Sxx B + diag(dx_1, -dx_1, dx_2, ...)`, where row d of B holds `|w_d + v_d| / sqrt 2` and
    `|w_d - v_d| / sqrt 2` in columns 2 d and 2 d + 1. Parameters are ordered `(v_1; w_1; v_2; w_2; ...)`.

    `strict=True` asks for [cracking] Corollary B.1, the union of D scalar networks in closed form, and refuses where
    `mean x_d x_e` is not 0 for some d != e: where it exceeds `tol` times the root mean squares of both.

    >>> ones = torch.ones(2, 1)
    >>> block_diagonal_inputs(ones, ones, torch.eye(2), torch.ones(2)).expand().round(decimals=9)
    tensor([0., 0., 1., 1.], dtype=torch.float64)
    """
    w, v, X, y = conform({"w": "D m", "v": "D m", "X": "n D", "y": "n"}, w=w, v=v, X=X, y=y)
    data = Moments.of(X, y.unsqueeze(-1))
    c = (w * v).sum(-1)
    slope = (data.Sxx @ c.unsqueeze(-1)).squeeze(-1) - data.Syx.squeeze(-2)
    pairs = Pairs.of(w, v, slope.shape[:-1])
    if not strict:
        return coupled_products(pairs, slope, data.Sxx)
    variances = data.Sxx.diagonal(dim1=-2, dim2=-1)
    _check_uncorrelated(data.Sxx, variances, tol)
    return separate_products(pairs, variances * c - data.Syx.squeeze(-2), variances)


def _check_uncorrelated(Sxx: Tensor, variances: Tensor, tol: float) -> None:
    """Refuse second moments with entries off the diagonal."""
    scale = (variances.unsqueeze(-1) * variances.unsqueeze(-2)).sqrt()
    off = (Sxx - torch.diag_embed(variances)).abs()
    if bool((off > tol * scale).any()):
        worst = float(torch.where(scale > 0, off / torch.where(scale > 0, scale, 1.0), 0.0).max())
        raise TheoryError(
            f"two inputs are correlated: mean x_d x_e reaches {worst:.2g} of the root mean squares, where strict=True asks for "
            "0 (uncentred); expected decorrelated inputs, or strict=False, which needs no assumption."
        )


def block_diagonal_outputs(
    w: Float[Tensor, "*batch K m"],
    v: Float[Tensor, "*batch K m"],
    x: Float[Tensor, "*batch n"],
    Y: Float[Tensor, "*batch n K"],
) -> Spectrum:
    r"""Return the Hessian spectrum of `1/(2n) sum_i sum_k (<w_k, v_k> x_i - y_ik)^2`, [cracking] Corollaries B.2 and B.3.

    The outputs share the data and nothing else: K scalar networks. Values: the outlier pairs of all outputs, then
    `+dx_k` and `-dx_k`. Parameters are ordered `(v_1; w_1; v_2; w_2; ...)`, as there.

    >>> ones = torch.ones(2, 1)
    >>> block_diagonal_outputs(ones, ones, torch.ones(1), torch.ones(1, 2)).values.tolist()
    [2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    w, v, x, Y = conform({"w": "K m", "v": "K m", "x": "n", "Y": "n K"}, w=w, v=v, x=x, Y=Y)
    s2, yx = x.square().mean(-1, keepdim=True), (Y * x.unsqueeze(-1)).mean(-2)
    check_overflow(s2, yx)
    slope = (w * v).sum(-1) * s2 - yx
    return separate_products(Pairs.of(w, v, slope.shape[:-1]), slope, s2)


def diagonal_linear(
    w: Float[Tensor, "*batch D"], v: Float[Tensor, "*batch D"], X: Float[Tensor, "*batch n D"], y: Float[Tensor, "*batch n"]
) -> Spectrum:
    r"""Return the Hessian spectrum of the diagonal linear network `f(x) = <w * v, x>`: 2 D outliers and no bulk.

    Parameters are ordered `(v; w)`.

    >>> s = diagonal_linear(torch.ones(2), torch.ones(2), torch.eye(2), torch.ones(2))
    >>> s.values.round(decimals=9)
    tensor([1., 1., 0., 0.], dtype=torch.float64)
    """
    w, v, X, y = conform({"w": "D", "v": "D", "X": "n D", "y": "n"}, w=w, v=v, X=X, y=y)
    return diagonal_linear_mixture(w.unsqueeze(-2), v.unsqueeze(-2), X, y)


def diagonal_linear_mixture(
    w: Float[Tensor, "*batch m D"],
    v: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    y: Float[Tensor, "*batch n"],
) -> Spectrum:
    r"""Return the Hessian spectrum of `f(x) = sum_i <w_i * v_i, x>`, m diagonal linear networks of equal weight.

    The sum over networks is a scalar product per input ([cracking] eq. 114), so this is `block_diagonal_inputs` with m
    neurons per input. Parameters are ordered `(v; w)`, each (m, D) row by row.

    >>> ones = torch.ones(2, 1)                          # two networks, one input: f(x) = <w, v> x
    >>> diagonal_linear_mixture(ones, ones, torch.ones(1, 1), 2 * torch.ones(1)).expand().abs().round(decimals=9)
    tensor([0., 0., 0., 4.], dtype=torch.float64)
    """
    w, v, X, y = conform({"w": "m D", "v": "m D", "X": "n D", "y": "n"}, w=w, v=v, X=X, y=y)
    spectrum = block_diagonal_inputs(w.mT, v.mT, X, y)
    m, D = w.shape[-2:]
    by_input = torch.arange(2 * m * D, device=w.device).reshape(D, 2, m)  # where (v_d; w_d) of each input lie
    order = by_input.permute(1, 2, 0).flatten()
    keep = slice(None) if m > 1 else slice(2 * D)
    spaces: list[Eigenspace] = [Permuted(space, order) for space in (spectrum.spaces or ())[keep]]
    return Spectrum(spectrum.values[..., keep], spectrum.multiplicities[..., keep], spectrum.labels[keep], tuple(spaces))
