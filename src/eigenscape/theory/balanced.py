"""Strongly balanced deep linear networks: everything about their Gauss-Newton matrix follows from the map and the data."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import Spectrum, TheoryError
from .chain import Chain, moment_factor
from .modes import Modes, assemble, modes
from .moments import check_finite, check_overflow, conform
from .spaces import complement
from .whitening import chain_factors, orthonormal

RANK_TOL = 1e-11
"""Singular values below this share of the largest are rounding: a power 2/L would make 1e-8 of 1e-16."""


@dataclass(frozen=True, eq=False)
class BalancedNet:
    """A map `W = U diag(t^L) V^T` as L balanced layers that share the singular values t, seen through its data."""

    weights: tuple[Float[Tensor, "*batch _ _"], ...]
    U: Float[Tensor, "*batch dL q"]
    t: Float[Tensor, "*batch q"]
    chain: Chain

    @classmethod
    def of(cls, W: Tensor, X: Tensor, hidden: Sequence[int], generator: torch.Generator | None) -> "BalancedNet":
        """Factorise the map; hidden widths below its rank are the caller's to exclude."""
        depth = len(hidden) + 1
        U, s, Vh = torch.linalg.svd(W, full_matrices=False)
        q = min(s.shape[-1], *hidden) if hidden else s.shape[-1]
        keep = s > RANK_TOL * s[..., :1]
        t = torch.where(keep, torch.where(keep, s, 1.0).pow(1 / depth), 0.0)[..., :q]
        between = [orthonormal(d, q, generator, W.shape[:-2], W.device) for d in hidden]
        weights = chain_factors([Vh[..., :q, :].mT, *between, U[..., :q]], t)
        return cls(tuple(weights), U[..., :q], t, Chain.of(weights, X))

    def output_matrix(self, t: Float[Tensor, "*batch j"]) -> Float[Tensor, "*batch j r r"]:
        """`sum_l t_j^{2(L-l)} F^T P_l^T P_l F`: the problem of an output direction with the singular value t_j; 0^0 = 1."""
        L = self.chain.depth
        powers = [t.pow(2 * (L - l)) for l in range(1, L + 1)]
        return sum(p[..., None, None] * gram.unsqueeze(-3) for p, gram in zip(powers, self.chain.grams))  # type: ignore[return-value]

    def sharpness(self) -> Float[Tensor, "*batch"]:
        """Largest eigenvalue, from the problem of the first output direction alone."""
        return torch.linalg.eigvalsh(self.output_matrix(self.t[..., :1]))[..., 0, -1]

    def spectrum(self) -> Spectrum:
        """All eigenvalues: one problem per output direction, and one for all directions that the map does not reach."""
        parts = [modes(self.output_matrix(self.t), lambda: self.U.detach().mT.unsqueeze(-2))]
        rest = self.chain.outputs - self.U.shape[-1]
        if rest:
            parts.append(self._unreached(rest))
        return assemble(self.chain, parts)

    def _unreached(self, rest: int) -> Modes:
        matrix = self.output_matrix(torch.zeros_like(self.t[..., :1]))
        return modes(matrix, lambda: complement(self.U.detach()).mT.unsqueeze(-3), rest)


def hidden_widths(width: int | Sequence[int] | None, depth: int, default: int) -> list[int]:
    """Widths of the depth - 1 hidden layers, from one for all or a list of them.

    >>> hidden_widths(None, 3, default=2), hidden_widths([5, 4], 3, default=2)
    ([2, 2], [5, 4])
    """
    if not isinstance(depth, int) or depth < 1:
        raise TheoryError(f"depth is {depth!r}; expected the number of layers, 1 or more.")
    hidden = [default if width is None else width] * (depth - 1) if width is None or isinstance(width, int) else list(width)
    if len(hidden) != depth - 1 or any(d < 1 for d in hidden):
        raise TheoryError(f"width is {width}; expected a positive width, or {depth - 1} of them for depth {depth}.")
    return hidden


def balanced_ggn(
    W: Float[Tensor, "*batch dL d0"],
    X: Float[Tensor, "*batch n d0"],
    depth: int,
    *,
    width: int | Sequence[int] | None = None,
) -> Spectrum:
    r"""Return the Gauss-Newton spectrum at any balanced factorisation of the map W into `depth` layers.

    With `W = U diag(s) V^T` (s padded by zeros) and `h(a, b) = sum_l a^{2(L-l)/L} b^{2(l-1)/L}`, `0^0 = 1`, it is the union
    over outputs j of the spectra of `F^T V diag_i(h(s_j, s_i)) V^T F`, where `F F^T = X^T X / n`. [data] eqs. 8 and 9 for
    inputs that need not be white, with i in [d_0] and j in [d_L]: printed ranges stop at the narrowest layer and miss the rest.

    width: of the hidden layers (one number, or a list), default the smallest that any map fits through. It changes the
    number of zeros only.

    >>> balanced_ggn(torch.tensor([[8.0]]), torch.tensor([[1.0]]), depth=3).values.round(decimals=9)    # 3 * 8^{4/3}
    tensor([48.,  0.], dtype=torch.float64)
    """
    W, X = conform({"W": "d_L d_0", "X": "n d_0"}, W=W, X=X)
    hidden = hidden_widths(width, depth, min(W.shape[-2:]))
    s = torch.linalg.svdvals(W.detach())
    rank = int((s > RANK_TOL * s[..., :1]).sum(-1).max())
    if hidden and min(hidden) < rank:
        raise TheoryError(f"width is {min(hidden)} for a map of rank {rank}; expected at least its rank.")
    return BalancedNet.of(W, X, hidden, None).spectrum()


@dataclass(frozen=True, eq=False)
class BalancedMinimum:
    """The balanced global minimum of a deep linear network, computed from data.

    `weights` is one representative `[W_1, ..., W_L]`; all others differ by rotations of the hidden layers and have the same
    spectrum. `exact` says for each member whether `spectrum` is that of the full Hessian, which fails at a bottleneck only.
    """

    net: BalancedNet
    loss: Float[Tensor, "*batch"]
    exact: Bool[Tensor, "*batch"]
    status: str

    @property
    def weights(self) -> tuple[Float[Tensor, "*batch _ _"], ...]:
        """The layers, the first one first."""
        return self.net.weights

    @cached_property
    def spectrum(self) -> Spectrum:
        """Spectrum of the Gauss-Newton matrix, which is that of the Hessian where `exact`."""
        return self.net.spectrum()

    @cached_property
    def sharpness(self) -> Float[Tensor, "*batch"]:
        """Largest eigenvalue, from one eigenproblem of size min(n, d_0)."""
        return self.net.sharpness()


def balanced_minimum(
    X: Float[Tensor, "*batch n d0"],
    Y: Float[Tensor, "*batch n dL"],
    depth: int,
    *,
    width: int | Sequence[int] | None = None,
    generator: torch.Generator | None = None,
) -> BalancedMinimum:
    r"""Predict the balanced global minimum of `1/(2n) sum_i |W_L ... W_1 x_i - y_i|^2` and its curvature from data alone.

    The map is `W* = Syx Sxx^+`, and with `s, V` its singular values and right vectors, padded by zeros, the sharpness is
    the largest eigenvalue of `F^T V diag_i(h(s_1, s_i)) V^T F` (see `balanced_ggn`). Gradient flow from a small balanced
    start goes there. Unlike [data] eqs. 12 to 14, neither white inputs nor a loss of zero is needed: the Hessian equals its
    Gauss-Newton matrix as soon as the residuals are uncorrelated with the inputs.

    At a bottleneck, a width k below the rank of W*, the map is `U_k U_k^T W*` with the first k left singular vectors of
    `W* F`; residuals then correlate with the inputs, `spectrum` is the Gauss-Newton part only, and a warning says so.

    Rows of X and Y are samples. For a bias of the first layer append ones to X (`with_ones`): it is the last column of the
    first weight. `generator` rotates the hidden layers at random; without one they are aligned with the axes.

    >>> m = balanced_minimum(torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0], [5.0]]), depth=2)
    >>> round(m.sharpness.item(), 9), round(m.loss.item(), 9), [round(W.item(), 9) for W in m.weights]
    (8.0, 0.5, [2.0, 2.0])
    """
    X, Y = conform({"X": "n d_0", "Y": "n d_L"}, X=X, Y=Y)
    X, Y = (A.expand(*torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2]), *A.shape[-2:]) for A in (X, Y))
    hidden = hidden_widths(width, depth, min(X.shape[-1], Y.shape[-1]))
    W = (torch.linalg.pinv(X, rtol=RANK_TOL) @ Y).mT
    check_finite(map=W)
    exact = torch.ones(W.shape[:-2], dtype=torch.bool, device=W.device)
    if hidden and min(hidden) < min(W.shape[-2:]):
        k = min(hidden)
        U, s, _ = torch.linalg.svd(W @ moment_factor(X), full_matrices=False)
        exact = (s > RANK_TOL * s[..., :1]).sum(-1) <= k
        W = U[..., :k] @ (U[..., :k].mT @ W)
    net = BalancedNet.of(W, X, hidden, generator)
    loss = (Y - X @ W.mT).square().sum((-2, -1)) / (2 * X.shape[-2])
    check_overflow(loss, net.t)
    status = "the full Hessian: residuals are uncorrelated with the inputs"
    if not bool(exact.all()):
        status = (
            f"a width of {min(hidden)} is below the rank of the best map, so the spectrum is that of the Gauss-Newton matrix "
            "and not of the Hessian"
        )
        warnings.warn(f"{status}; widen the layers, or see BalancedMinimum.exact.", RuntimeWarning, stacklevel=2)
    return BalancedMinimum(net, loss, exact, status)
