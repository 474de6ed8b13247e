"""Aligned deep linear networks: the full Hessian at any loss falls into blocks of size 2 L at most."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import Spectrum, TheoryError
from .chain import Weights
from .labels import pad_to
from .modes import Remainder
from .moments import check_overflow, conform
from .product_bulk import EPS
from .spaces import Span

ALIGNED_TOL = 1e-12


def aligned_deep_linear(
    weights: Weights,
    X: Float[Tensor, "*batch n d0"],
    Y: Float[Tensor, "*batch n dL"],
    frames: Sequence[Float[Tensor, "*batch _ _"]],
    *,
    tol: float = ALIGNED_TOL,
) -> Spectrum:
    r"""Return the spectrum of the full Hessian of `1/(2n) sum_i |W_L ... W_1 x_i - y_i|^2` where everything is aligned.

    Needed are orthogonal `frames = [Q_0, ..., Q_L]` such that every `Q_l^T W_l Q_{l-1}`, `Q_0^T Sxx Q_0` and `Q_L^T Syx Q_0` is
    diagonal (rectangular): the setting of Saxe et al., which gradient descent keeps. Layers need not be balanced and the
    loss may be anything. The entries (i, j) and (j, i) of all layers, in these frames, then couple among themselves only: the
    Hessian is a direct sum of blocks of size 2 L (L for i = j), all solved together in `O(d^2 L^3)`.

    What is off diagonal by more than `tol`, relative to the whole, is refused. Parameters are flat in the order
    `W_1, ..., W_L`, each row-major. Labels are `"outlier"` and `"zero"`.

    >>> one = torch.ones(1, 1)
    >>> aligned_deep_linear([2 * one, 3 * one], X=one, Y=5 * one, frames=[one] * 3).expand()      # [[9, 7], [7, 4]]
    tensor([-0.9330, 13.9330], dtype=torch.float64)
    """
    names = range(1, len(weights) + 1)
    if not names or len(frames) != len(weights) + 1:
        raise TheoryError(f"{len(frames)} frames came with {len(weights)} weights; expected [Q_0, ..., Q_L], one more.")
    shapes = {"X": "n d_0", "Y": f"n d_{len(weights)}"} | {f"W_{l}": f"d_{l} d_{l - 1}" for l in names}
    shapes |= {f"Q_{l}": f"d_{l} d_{l}" for l in (0, *names)}
    given = {"X": X, "Y": Y} | {f"W_{l}": W for l, W in enumerate(weights, 1)}
    X, Y, *rest = conform(shapes, **given, **{f"Q_{l}": Q for l, Q in enumerate(frames)})
    Ws, Qs, n = rest[: len(weights)], rest[len(weights) :], X.shape[-2]
    for l, Q in enumerate(Qs):
        _check_orthogonal(l, Q)
    XQ, YQ = X @ Qs[0], Y @ Qs[-1]
    x, y = XQ.norm(dim=(-2, -1)), YQ.norm(dim=(-2, -1))
    layers = [_diagonal(f"W_{l}", Q.mT @ W @ P, W.norm(dim=(-2, -1)), tol) for l, W, (P, Q) in zip(names, Ws, pairwise(Qs))]
    inputs, cross = _diagonal("X^T X", XQ.mT @ XQ / n, x * x / n, tol), _diagonal("Y^T X", YQ.mT @ XQ / n, x * y / n, tol)
    return AlignedNet.of(layers, inputs, cross, [Q.shape[-1] for Q in Qs]).spectrum(Qs)


def _check_orthogonal(l: int, Q: Tensor) -> None:
    off = (Q @ Q.mT - torch.eye(Q.shape[-1], dtype=Q.dtype, device=Q.device)).abs().max().item()
    if off > 1e-10:
        raise TheoryError(f"Q_{l} Q_{l}^T is off the identity by {off:.2g}; expected orthogonal frames.")


def _diagonal(name: str, A: Tensor, size: Tensor, tol: float) -> Float[Tensor, "*batch d"]:
    """Diagonal of a matrix that must have nothing else beyond `tol` of `size`."""
    off = A.detach().clone()
    off.diagonal(dim1=-2, dim2=-1).zero_()
    gap = off.abs().amax((-2, -1))
    if bool((gap > tol * size.detach()).any()):
        raise TheoryError(
            f"{name} is not diagonal in the given frames: off by {gap.max().item():.2g} of {size.max().item():.2g}; expected "
            "aligned layers and data, or use linop.DeepLinear, which needs no alignment."
        )
    return A.diagonal(dim1=-2, dim2=-1)


@dataclass(frozen=True, eq=False)
class AlignedNet:
    """Diagonals of an aligned network, padded to d entries: layers a (*batch, L, d), inputs s and residual moments e."""

    a: Float[Tensor, "*batch L d"]
    s: Float[Tensor, "*batch d"]
    e: Float[Tensor, "*batch d"]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, layers: Sequence[Tensor], inputs: Tensor, cross: Tensor, widths: Sequence[int]) -> "AlignedNet":
        """Pad the diagonals; `e = a_L ... a_1 s - c`."""
        d = max(widths)
        padded = [pad_to(t, d) for t in (*layers, inputs, cross)]
        *parts, s, c = torch.broadcast_tensors(*padded)
        a = torch.stack(parts, -2)
        return cls(a, s, a.prod(-2) * s - c, tuple(widths))

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    @cached_property
    def coupling(self) -> tuple[Float[Tensor, "*batch d d L L"], Float[Tensor, "*batch d d L L"]]:
        """Blocks `(l, i, j) - (k, i, j)`, the Gauss-Newton part, and `(l, i, j) - (k, j, i)`, the rest."""
        a, L, one = self.a, self.depth, torch.ones_like(self.s)
        before, after = [one], [one]  # P_l = a_{l-1} ... a_1,  S_l = a_L ... a_{l+1}
        for l in range(L - 1):
            before.append(before[-1] * a[..., l, :])
            after.insert(0, after[0] * a[..., L - 1 - l, :])
        P, S = torch.stack(before, -1), torch.stack(after, -1)  # (*batch, d, L)
        left, right = S.unsqueeze(-1) * S.unsqueeze(-2), P.unsqueeze(-1) * P.unsqueeze(-2) * self.s[..., None, None]
        same = left.unsqueeze(-3) * right.unsqueeze(-4)
        rows = [[torch.zeros_like(same[..., 0, 0])] * L for _ in range(L)]
        for k in range(L):
            between = one
            for l in range(k + 1, L):
                M = (S[..., l] * self.e * P[..., k]).unsqueeze(-1) * between.unsqueeze(-2)  # (i, j)
                rows[l][k], rows[k][l] = M, M.mT
                between = between * a[..., l, :]
        return same, torch.stack([torch.stack(row, -1) for row in rows], -2)

    def present(self) -> Bool[Tensor, "d d L"]:
        """Which entries (l, i, j) exist: i < d_l and j < d_{l-1}."""
        index = torch.arange(max(self.widths), device=self.a.device)
        each = [(index < b).unsqueeze(-1) & (index < a).unsqueeze(-2) for a, b in pairwise(self.widths)]
        return torch.stack(each, -1)

    def blocks(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For i = j and for i < j: the matrices (*batch, g, b, b), which rows exist (g, b), and each row's (l, i, j)."""
        same, cross = self.coupling
        here, d, L = self.present(), max(self.widths), self.depth
        layer = torch.arange(L, device=self.a.device)
        k = torch.arange(d, device=self.a.device)
        single = torch.stack([layer.expand(d, L), k[:, None].expand(d, L), k[:, None].expand(d, L)], -1)
        found = [((same + cross)[..., k, k, :, :], here[k, k], single)]
        i, j = torch.triu_indices(d, d, 1, device=self.a.device)
        if len(i):
            top = torch.cat([same[..., i, j, :, :], cross[..., i, j, :, :]], -1)
            low = torch.cat([cross[..., j, i, :, :], same[..., j, i, :, :]], -1)
            I, J = (t[:, None].expand(-1, L) for t in (i, j))
            where = [torch.stack([layer.expand_as(I), A, B], -1) for A, B in ((I, J), (J, I))]
            found.append((torch.cat([top, low], -2), torch.cat([here[i, j], here[j, i]], -1), torch.cat(where, -2)))
        return found

    def spectrum(self, frames: Sequence[Tensor]) -> Spectrum:
        """Eigenvalues of all blocks; rows that do not exist are moved out of the way and not counted."""
        values, exists, makers = [], [], []
        for matrix, here, where in self.blocks():
            apart = 1 + 2 * matrix.detach().abs().sum(-1).amax(-1)  # beyond every eigenvalue of its block
            held = torch.where(here.unsqueeze(-1) & here.unsqueeze(-2), matrix, 0.0) + torch.diag_embed(
                (~here) * apart.unsqueeze(-1)
            )
            values.append(torch.linalg.eigvalsh(held).flatten(-2))
            size = here.sum(-1, keepdim=True)
            exists.append((torch.arange(here.shape[-1], device=here.device) < size).flatten())
            makers.append((held.detach(), where))
        found, there = torch.cat(values, -1), torch.cat(exists)
        found = torch.where(there, found, 0.0)
        check_overflow(found)
        noise = EPS * 8 * self.depth * found.detach().abs().amax(-1, keepdim=True)
        used = there & (found.detach().abs() > noise)
        columns = _Columns(makers, used, frames, self.widths)
        n = sum(a * b for a, b in pairwise(self.widths))
        spaces = [Span(n, used[..., i].long(), lambda i=i: columns.columns[..., i : i + 1]) for i in range(found.shape[-1])]
        counts = torch.cat([used.long(), n - used.sum(-1, keepdim=True)], -1)
        rest = Remainder(n, used, lambda: columns.columns)
        labels = ("outlier",) * found.shape[-1] + ("zero",)
        return Spectrum(torch.cat([found, torch.zeros_like(found[..., :1])], -1), counts, labels, (*spaces, rest))


@dataclass(frozen=True, eq=False)
class _Columns:
    """Eigenvectors of the blocks as parameters `dW_l = Q_l Z_l Q_{l-1}^T`, made together when the first is asked for."""

    blocks: list[tuple[Tensor, Tensor]]
    used: Bool[Tensor, "*batch k"]
    frames: Sequence[Tensor]
    widths: tuple[int, ...]

    @cached_property
    def columns(self) -> Float[Tensor, "*batch n k"]:
        parts = [self._block(matrix, where) for matrix, where in self.blocks]
        Z = torch.cat(parts, -4)  # (*batch, k, L, d, d)
        rows = []
        for l, (P, Q) in enumerate(pairwise(self.frames)):
            inner = Z[..., l, : Q.shape[-1], : P.shape[-1]]
            rows.append((Q.detach().unsqueeze(-3) @ inner @ P.detach().mT.unsqueeze(-3)).flatten(-2))
        return (torch.cat(rows, -1) * self.used.unsqueeze(-1)).mT

    def _block(self, matrix: Float[Tensor, "*batch g b b"], where: Tensor) -> Float[Tensor, "*batch gb L d d"]:
        vectors = torch.linalg.eigh(matrix).eigenvectors.mT  # (*batch, g, vector, row)
        g, b = where.shape[:2]
        Z = matrix.new_zeros(*matrix.shape[:-3], g, b, len(self.widths) - 1, max(self.widths), max(self.widths))
        at = torch.arange(g, device=where.device)
        for row in range(b):
            l, i, j = where[:, row].unbind(-1)
            Z[..., at, :, l, i, j] = vectors[..., row]
        return Z.flatten(-5, -4)
