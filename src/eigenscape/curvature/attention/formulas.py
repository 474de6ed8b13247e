"""Attention, its gradient and their derivatives as formulas on one tile: some rows of queries against some columns of keys.

Per head, with the scale s and the mask B: S = s Q K^T + B, P = exp(S - M - l), O = P V. M is the row maximum, a constant that
keeps the exponentials finite, and l = log sum exp(S - M), so that P has unit rows; a row that sees no key has M = 0, l = inf
and P = 0, as in torch. With an incoming G and D = rowsum(G * O) the gradient is dS = P * (G V^T - D), dQ = s dS K,
dK = s dS^T Q, dV = P^T G. Tangents are marked with a `t`. Statistics of rows have shape (..., rows, 1).

Each formula takes the tensors that have rows, then those that have columns, and returns its outputs in the same two groups;
outputs along rows are complete, outputs along columns are this tile's share of a sum over rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Outputs = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Tile:
    """Rows from `start` on, all columns from zero on: what they see of each other."""

    mask: Tensor | None
    causal: bool
    scale: float
    start: int = 0

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """`S = s Q K^T + B`, with -inf where the mask hides a key."""
        S = self.product(q, k)
        if self.mask is not None:
            S = S.masked_fill(~self.mask, -torch.inf) if self.mask.dtype == torch.bool else S + self.mask
        if self.causal:
            rows = torch.arange(self.start, self.start + S.shape[-2], device=S.device)
            S = S.masked_fill(torch.arange(S.shape[-1], device=S.device) > rows[:, None], -torch.inf)
        return S

    def product(self, q: Tensor, k: Tensor) -> Tensor:
        """`s Q K^T`, without the mask."""
        return (self.scale * q) @ k.mT

    def probabilities(self, q: Tensor, k: Tensor, M: Tensor, l: Tensor) -> Tensor:
        """`P = exp(S - M - l)`."""
        return (self.scores(q, k) - M - l).exp()


def forward(tile: Tile, q: Tensor, k: Tensor, v: Tensor) -> Outputs:
    """`O = P V` with the statistics l and M."""
    S = tile.scores(q, k)
    M = S.amax(-1, keepdim=True)
    M = M.masked_fill(M.isneginf(), 0.0)
    E = (S - M).exp()
    total = E.sum(-1, keepdim=True)
    empty = total == 0
    O = (E @ v) / total.masked_fill(empty, 1.0)
    return (O, total.log().masked_fill(empty, torch.inf), M), ()


def forward_tangent(
    tile: Tile, q: Tensor, O: Tensor, l: Tensor, M: Tensor, qt: Tensor, k: Tensor, v: Tensor, kt: Tensor, vt: Tensor
) -> Outputs:
    """`m = rowsum(P * St)`, which is the tangent of l, and `Ot = (P * St) V - m O + P Vt`."""
    P = tile.probabilities(q, k, M, l)
    Y = P * (tile.product(qt, k) + tile.product(q, kt))
    m = Y.sum(-1, keepdim=True)
    return (Y @ v - m * O + P @ vt, m), ()


def backward(tile: Tile, q: Tensor, l: Tensor, M: Tensor, D: Tensor, G: Tensor, k: Tensor, v: Tensor) -> Outputs:
    """`dQ`, and shares of `dK` and `dV`."""
    P = tile.probabilities(q, k, M, l)
    dS = tile.scale * P * (G @ v.mT - D)
    return (dS @ k,), (dS.mT @ q, P.mT @ G)


def backward_tangent(
    tile: Tile,
    q: Tensor,
    l: Tensor,
    M: Tensor,
    D: Tensor,
    G: Tensor,
    qt: Tensor,
    lt: Tensor,
    Dt: Tensor,
    Gt: Tensor,
    k: Tensor,
    v: Tensor,
    kt: Tensor,
    vt: Tensor,
) -> Outputs:
    """Tangents of `dQ`, `dK`, `dV`: `Pt = P * (St - lt)`, `dSt = Pt * (A - D) + P * (At - Dt)` with `A = G V^T`."""
    P = tile.probabilities(q, k, M, l)
    Pt = P * (tile.product(qt, k) + tile.product(q, kt) - lt)
    A = G @ v.mT - D
    dS = tile.scale * P * A
    dSt = tile.scale * (Pt * A + P * (Gt @ v.mT + G @ vt.mT - Dt))
    return (dSt @ k + dS @ kt,), (dSt.mT @ q + dS.mT @ qt, Pt.mT @ G + P.mT @ Gt)


def backward_cotangent(
    tile: Tile,
    q: Tensor,
    l: Tensor,
    M: Tensor,
    D: Tensor,
    G: Tensor,
    qc: Tensor,
    k: Tensor,
    v: Tensor,
    kc: Tensor,
    vc: Tensor,
) -> Outputs:
    """Gradients of `f = <qc, dQ> + <kc, dK> + <vc, dV>` for q, l, D, G and shares of those for k, v.

    With `T = s (qc K^T + Q kc^T)` and `A = G V^T - D`, f is the sum over the entries of `P * (A * T + G vc^T)`; hence
    `df/dS = U = P * (A * T + G vc^T)`, `df/dA = Y = P * T`, `df/dl = -rowsum(U)` and `df/dD = -rowsum(Y)`.
    """
    P = tile.probabilities(q, k, M, l)
    A = G @ v.mT - D
    Y = P * (tile.product(qc, k) + tile.product(q, kc))
    U = A * Y + P * (G @ vc.mT)
    dS = tile.scale * P * A
    Us = tile.scale * U
    rows = (Us @ k + dS @ kc, -U.sum(-1, keepdim=True), -Y.sum(-1, keepdim=True), Y @ v + P @ vc)
    return rows, (Us.mT @ q + dS.mT @ qc, Y.mT @ G)


@dataclass(frozen=True)
class Formula:
    """A formula, how many of its tensors have rows, and what each output is like: a query, a key, a value or a statistic."""

    tile: Callable[..., Outputs]
    rows: int
    row_outputs: str
    column_outputs: str = ""

    def split(self, tensors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Cut a list of tensors into those with rows and those with columns."""
        return tensors[: self.rows], tensors[self.rows :]

    def shapes(self, tensors: Sequence[Tensor], mask: Tensor | None) -> list[tuple[int, ...]]:
        """Shapes of the outputs: all have the common leading axes."""
        rows, columns = self.split(tensors)
        lead = torch.broadcast_shapes(*(t.shape[:-2] for t in tensors), *([] if mask is None else [mask.shape[:-2]]))
        width = {"q": rows[0].shape[-1], "v": columns[1].shape[-1], "1": 1}
        lengths = [rows[0].shape[-2]] * len(self.row_outputs) + [columns[0].shape[-2]] * len(self.column_outputs)
        return [(*lead, n, width[like]) for n, like in zip(lengths, self.row_outputs + self.column_outputs)]


FORMULAS = {
    "forward": Formula(forward, 1, "v11"),
    "forward_tangent": Formula(forward_tangent, 5, "v1"),
    "backward": Formula(backward, 5, "q", "qv"),
    "backward_tangent": Formula(backward_tangent, 9, "q", "qv"),
    "backward_cotangent": Formula(backward_cotangent, 6, "q11v", "qv"),
}
