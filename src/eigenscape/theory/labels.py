"""Special cases that can be read off: white inputs, labels, and class proportions."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..core import Spectrum, TheoryError
from .balanced import hidden_widths
from .chain import Chain
from .modes import Modes, assemble
from .moments import conform
from .whitening import white_scale


def layer_sum(a: Float[Tensor, "*batch"], b: Float[Tensor, "*batch"], depth: int) -> Float[Tensor, "*batch"]:
    r"""Return `sum_{l=1}^L a^{2(L-l)} b^{2(l-1)}` with 0^0 = 1: [data] eq. 9a, without the division of eq. 9b.

    >>> layer_sum(torch.tensor(2.0), torch.tensor(1.0), 3), layer_sum(torch.tensor(2.0), torch.tensor(0.0), 3)
    (tensor(21.), tensor(16.))
    """
    return torch.stack([a.pow(2 * (depth - l)) * b.pow(2 * (l - 1)) for l in range(1, depth + 1)]).sum(0)


def pad_to(t: Float[Tensor, "*batch k"], size: int) -> Float[Tensor, "*batch size"]:
    """Append zeros.

    >>> pad_to(torch.ones(1), 3)
    tensor([1., 0., 0.])
    """
    return torch.nn.functional.pad(t, (0, size - t.shape[-1]))


def balanced_white(
    singular_values: Float[Tensor, "*batch k"],
    depth: int,
    *,
    inputs: int,
    outputs: int,
    width: int | Sequence[int] | None = None,
    s2: float = 1.0,
) -> Spectrum:
    r"""Return the Gauss-Newton spectrum of balanced layers with common singular values t, for white inputs.

    `s2 sum_l t_i^{2(L-l)} t_j^{2(l-1)}` for every i in [outputs] and j in [inputs], t padded by zeros; [data] eq. 9 stops at
    the narrowest width k and promises at most k^2 nonzero eigenvalues, but there are `r (inputs + outputs - r)` of them for r
    nonzero t and two layers or more.

    >>> s = balanced_white(torch.tensor([2.0]), depth=2, inputs=3, outputs=2, width=1)
    >>> s.expand()                                        # 2 t^2 once, t^2 for the others in its row and column
    tensor([0., 4., 4., 4., 8.], dtype=torch.float64)
    """
    (t,) = conform({"singular_values": "k"}, singular_values=singular_values)
    k = t.shape[-1]
    hidden = hidden_widths(width, depth, min(inputs, outputs))
    if k > min(inputs, outputs, *hidden):
        raise TheoryError(f"{k} singular values came for widths {[inputs, *hidden, outputs]}; expected none smaller than {k}.")
    rows, columns = (pad_to(t, size) for size in (outputs, inputs))
    grid = torch.broadcast_tensors(rows.unsqueeze(-1), columns.unsqueeze(-2))
    values = s2 * layer_sum(grid[0], grid[1], depth).flatten(-2)
    sizes = [inputs, *hidden, outputs]
    rest = sum(a * b for a, b in pairwise(sizes)) - inputs * outputs
    nonzero = values.detach() > 0
    zeros = rest + (~nonzero).sum(-1, keepdim=True)
    labels = ("outlier",) * values.shape[-1] + ("zero",)
    return Spectrum(torch.cat([values, 0 * values[..., :1]], -1), torch.cat([nonzero.long(), zeros], -1), labels)


def two_layer_white_ggn(
    W: Float[Tensor, "*batch K m"], V: Float[Tensor, "*batch m D"], *, s2: Float[Tensor, "*batch"] | float = 1.0
) -> Spectrum:
    r"""Return the Gauss-Newton spectrum of `f(x) = W V x` for white inputs at any point: `s2 (sigma_i^2(V) + sigma_j^2(W))`.

    For every i in [D] and j in [K], singular values padded by zeros: [data] eq. 15 runs to the width only and loses
    eigenvalues where m < D or m < K. The largest is `s2 (|V|_2^2 + |W|_2^2)`, eq. 10. Eigenvectors are `dW_l = S_l^T u_j v_i^T
    P_l^T` with the right singular vectors v_i of V and the left ones u_j of W, eq. 16. Parameters are flat in the order V, W.

    >>> two_layer_white_ggn(torch.tensor([[3.0]]), torch.tensor([[2.0, 0.0]])).expand()
    tensor([ 0.,  9., 13.], dtype=torch.float64)
    """
    W, V = conform({"W": "K m", "V": "m D"}, W=W, V=V)
    (s2,) = conform({"s2": ""}, s2=torch.as_tensor(s2, dtype=W.dtype, device=W.device))
    D, K = V.shape[-1], W.shape[-2]
    X = (D * s2).sqrt()[..., None, None] * torch.eye(D, dtype=W.dtype, device=W.device)
    chain = Chain.of([V, W], X)
    sigma, tau = (pad_to(torch.linalg.svdvals(A).square(), size) for A, size in ((V, D), (W, K)))
    values = s2[..., None, None] * (tau.unsqueeze(-1) + sigma.unsqueeze(-2))

    def vectors() -> Tensor:
        U = torch.linalg.svd(W.detach(), full_matrices=True)[0]
        Rh = torch.linalg.svd(V.detach(), full_matrices=True)[2]
        Z = torch.einsum("...aj,...ir->...jiar", U, Rh)
        return Z.flatten(-4, -3).unsqueeze(-3)

    return assemble(chain, [Modes(values.flatten(-2), 1, vectors)])


def class_proportions(labels: Int[Tensor, "*batch n"], classes: int | None = None) -> Float[Tensor, "*batch classes"]:
    """Share of the samples in each class; for one-hot Y these are the eigenvalues of `Y^T Y / n`, in class order.

    >>> class_proportions(torch.tensor([0, 2, 2, 2]))
    tensor([0.2500, 0.0000, 0.7500], dtype=torch.float64)
    """
    return one_hot(labels, classes).mean(-2)


def one_hot(labels: Int[Tensor, "*batch n"], classes: int | None = None) -> Float[Tensor, "*batch n classes"]:
    """Targets of a classification by regression, in float64.

    >>> one_hot(torch.tensor([1, 0]))
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.dtype == torch.bool or labels.numel() == 0:
        got = f"dtype {labels.dtype}, shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise TheoryError(f"labels are {got}; expected integer classes, one per sample: labels.long().")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or (classes is not None and high >= classes):
        top = "" if classes is None else f" to {classes - 1}"
        raise TheoryError(f"labels hold class {low if low < 0 else high}; expected classes from 0{top}.")
    return torch.nn.functional.one_hot(labels.long(), -1 if classes is None else classes).to(torch.float64)


def sharpness_from_labels(X: Float[Tensor, "*batch n d0"], Y: Tensor, depth: int) -> Float[Tensor, "*batch"]:
    r"""Return the sharpness at the balanced minimum for white inputs: `L s2 (|Y^T X|_2 / (n s2))^{2 - 2/L}`.

    [data] eq. 14 has `|Y|_2 / sqrt(n s2)` in place of `|Y^T X|_2 / (n s2)`, which is right only where the labels are linear
    functions of the inputs (a loss of zero), and up to 15 times too large where they are not. Y holds targets (n, d_L) or
    integer classes (n,), which are made one-hot. Inputs that are not white are refused: `balanced_minimum` takes any.

    >>> sharpness_from_labels(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([0, 0]), depth=2).item()
    2.0
    """
    Y = Y if Y.is_floating_point() else one_hot(Y)
    X, Y = conform({"X": "n d_0", "Y": "n d_L"}, X=X, Y=Y)
    hidden_widths(None, depth, 1)
    s2 = white_scale(X)
    s = torch.linalg.matrix_norm(Y.mT @ X, 2) / (X.shape[-2] * s2)
    return _balanced_sharpness(s, s2, depth)


def sharpness_from_proportions(
    proportions: Float[Tensor, "*batch classes"], depth: int, *, s2: Float[Tensor, "*batch"] | float = 1.0
) -> Float[Tensor, "*batch"]:
    r"""Return `L s2^{1/L} alpha_max^{1 - 1/L}`, the sharpness at an *interpolating* balanced minimum of one-hot labels.

    [data] Sec. 4, for white inputs. It is an upper bound where the labels are not linear functions of the inputs, as is
    usual with more samples than inputs; then the number of samples matters and `sharpness_from_labels` is exact.

    >>> sharpness_from_proportions(torch.tensor([0.0, 0.75, 0.25]), depth=2).item()     # 2 sqrt(3/4)
    1.732050807568877...
    """
    (alpha,) = conform({"proportions": "classes"}, proportions=proportions)
    if bool((alpha < 0).any()) or bool(((alpha.sum(-1) - 1).abs() > 1e-6).any()):
        raise TheoryError("proportions are negative or do not sum to 1; expected those of class_proportions(labels).")
    (s2,) = conform({"s2": ""}, s2=torch.as_tensor(s2, dtype=alpha.dtype, device=alpha.device))
    hidden_widths(None, depth, 1)
    return _balanced_sharpness((alpha.amax(-1) / s2).sqrt(), s2, depth)


def _balanced_sharpness(s: Tensor, s2: Tensor, depth: int) -> Tensor:
    """`L s2 s^{2 - 2/L}`, with 0^0 = 1."""
    return depth * s2 * s.pow(2 - 2 / depth)
