"""What training descends: gradients and losses of the members that still train, from samples or from their moments alone."""

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .ensemble import Ensemble
from .passes import Pass

TABLE = 1 << 19  # entries of a table of outer products: beyond it, sums of its rows are slower than products of samples
BLOCK = 1 << 23  # entries of minibatches that are laid out at once


class Task(Protocol):
    """Gradients and losses for stacked weights. A minibatch is whatever `gradients` understands."""

    whole: Any

    def minibatches(self, rows: Int[Tensor, "A s"], sizes: list[int]) -> Iterator[Any]:
        """Cut rows of samples, one list per member, into minibatches."""
        ...

    def gradients(self, weights: list[Tensor], batch: Any) -> list[Tensor]:
        """Gradient of every member on its minibatch (or on `whole`)."""
        ...

    def losses(self, weights: list[Tensor]) -> Float[Tensor, "A"]:
        """Loss of every member on all of its samples."""
        ...

    def select(self, kept: Bool[Tensor, "A"]) -> "Task":
        """Return the same for some of the members."""
        ...


class SampleTask:
    """Any activation: samples are fed forward and backward."""

    def __init__(self, ensemble: Ensemble, X: Tensor, Y: Tensor, scale: float):
        self.ensemble, self.X, self.Y, self.scale = ensemble, X, Y, scale
        self.whole = (X, Y)

    def minibatches(self, rows, sizes):
        """Gather the samples of one minibatch after the other."""
        rows = rows.to(self.X.device)
        for part in rows.split(sizes, -1):
            yield _gather(self.X, part), _gather(self.Y, part)

    def gradients(self, weights, batch):
        """Forward and backward."""
        X, Y = batch
        run = self._run(weights, X)
        return run.gradients((run.outputs - Y) * (self.scale / X.shape[-2]))

    def losses(self, weights):
        """Forward, in groups of members that fit into memory."""
        n, widest = self.X.shape[-2], max(self.ensemble.widths)
        group = max(1, BLOCK // (n * widest))
        parts = []
        for i in range(0, len(weights[0]), group):
            X, Y = (A if A.ndim == 2 else A[i : i + group] for A in (self.X, self.Y))
            rest = self._run([W[i : i + group] for W in weights], X).outputs - Y
            parts.append(rest.square().sum((-2, -1)) * (self.scale / (2 * n)))
        return torch.cat(parts)

    def select(self, kept):
        """Keep the samples of the members that are kept."""
        X, Y = (A if A.ndim == 2 else A[kept] for A in (self.X, self.Y))
        return SampleTask(self.ensemble, X, Y, self.scale)

    def _run(self, weights, X):
        return Pass.of(weights, self.ensemble.multipliers, self.ensemble.activation, X)


class MomentTask:
    r"""Linear networks: `E = W_L ... W_1 Sxx - Syx` is all that a gradient sees of a minibatch, and `S_l^T E P_l^T` is the
    gradient of layer l. The multipliers, whose product c is all that matters, are moved into the inputs."""

    def __init__(self, X: Tensor, Y: Tensor, scale: float):
        self.X, self.Y, self.scale = X, Y, scale
        self.inputs, self.n = X.shape[-1], X.shape[-2]
        self.samples = torch.cat([A.expand(*_lead(X, Y), *A.shape[-2:]) for A in (X, Y)], -1)
        self.shared = self.samples.ndim == 2
        R = torch.linalg.qr(self.samples / self.n**0.5, mode="r").R
        D = self.inputs
        self.factor, self.target = R[..., :D, :D], R[..., :D, D:]  # |F W^T - T|^2 + |rest|^2 = mean |W x - y|^2
        self.floor = R[..., D:, D:].square().sum((-2, -1))
        self.whole = (scale * self.factor.mT @ self.factor, scale * self.target.mT @ self.factor)
        self._table = self._outer_products()

    def _outer_products(self) -> Tensor | None:
        """`(x; y) x^T` of every sample as a row, where members share the samples and the table is small."""
        D, K = self.inputs, self.samples.shape[-1] - self.inputs
        if not self.shared or self.n * D * (D + K) > TABLE or self.samples.device.type != "cpu":
            return None
        return (self.samples.unsqueeze(-1) * self.X.unsqueeze(-2)).flatten(1)

    def minibatches(self, rows, sizes):
        """Add up the moments of one group of minibatches after the other."""
        D, width = self.inputs, self.samples.shape[-1]
        per_step = len(rows) * sizes[0] * width if self._table is None else len(rows) * width * D
        group = max(1, BLOCK // per_step)
        at = 0
        for i in range(0, len(sizes), group):
            part = sizes[i : i + group]
            for size, count in _runs(part):
                moments = self._moments(rows[:, at : at + size * count].reshape(len(rows), count, size))
                at += size * count
                yield from ((S[:, :D], S[:, D:]) for S in moments.unbind(1))

    def _moments(self, rows: Int[Tensor, "A s b"]) -> Float[Tensor, "A s _ D"]:
        """`mean (x; y) x^T` over each list of rows, times the scale of the loss."""
        A, s, b = rows.shape
        D = self.inputs
        if self._table is not None:
            sums = _row_sums(rows.reshape(-1, b), self._table).reshape(A, s, -1, D)
        else:
            rows = rows.to(self.samples.device)
            Z = _gather(self.samples, rows.reshape(A, -1)).reshape(A * s, b, -1)
            sums = (Z.mT @ Z[..., :D]).reshape(A, s, -1, D)
        return sums.mul_(self.scale / b)

    def gradients(self, weights, batch):
        """`S_l^T E P_l^T` for each layer, without forming any P_l."""
        Sxx, Syx = batch
        suffixes: list[Tensor | None] = [None]
        for W in reversed(weights[1:]):
            last = suffixes[-1]
            suffixes.append(W if last is None else last @ W)
        suffixes.reverse()
        first = suffixes[0]
        product = weights[0] if first is None else first @ weights[0]
        B = product @ Sxx - Syx
        gradients = []
        for W, S in zip(weights, suffixes):
            gradients.append(B if S is None else S.mT @ B)
            if S is not None:
                B = B @ W.mT
        return gradients

    def losses(self, weights):
        """From the compressed samples, so that a loss of zero is zero up to rounding of the outputs."""
        P = self.factor.mT
        for W in weights:
            P = W @ P
        rest = (P.mT - self.target).square().sum((-2, -1)) + self.floor
        return rest * (self.scale / 2)

    def select(self, kept):
        """Keep the samples of the members that are kept."""
        if self.shared:
            return self
        X, Y = (A if A.ndim == 2 else A[kept] for A in (self.X, self.Y))
        return MomentTask(X, Y, self.scale)


def _lead(*samples: Tensor) -> torch.Size:
    return torch.broadcast_shapes(*(A.shape[:-2] for A in samples))


def _gather(A: Tensor, rows: Int[Tensor, "A b"]) -> Tensor:
    """Rows of shared samples, or of each member's own."""
    if A.ndim == 2:
        return A.index_select(0, rows.reshape(-1)).reshape(*rows.shape, -1)
    return A.take_along_dim(rows.unsqueeze(-1), 1)


def _runs(sizes: list[int]) -> list[tuple[int, int]]:
    """Equal neighbours with their number."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size:
            runs[-1][1] += 1
        else:
            runs.append([size, 1])
    return [(size, count) for size, count in runs]


def _row_sums(rows: Int[Tensor, "s b"], table: Float[Tensor, "n c"]) -> Float[Tensor, "s c"]:
    """Sum of the listed rows of the table, for every list: a product with a sparse matrix of ones."""
    s, b = rows.shape
    ones = torch.ones(s * b, dtype=table.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse matrices call themselves beta
        counts = torch.sparse_csr_tensor(torch.arange(0, s * b + 1, b), rows.reshape(-1), ones, (s, len(table)))
    return counts @ table
