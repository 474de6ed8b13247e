"""A positive semidefinite spectrum put together from modes in output space, with its parameter eigenvectors on demand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import Spectrum
from .chain import Chain
from .product_bulk import EPS
from .spaces import Counted, Span, complement


@dataclass(frozen=True, eq=False)
class Modes:
    """Eigenvalues of a Jacobian's Gram matrix, each `repeat` times, and their eigenvectors as matrices of outputs."""

    values: Float[Tensor, "*batch m"]
    repeat: int
    vectors: Callable[[], Float[Tensor, "*batch m repeat dL r"]]


def modes(
    matrix: Float[Tensor, "*batch g r r"], outputs: Callable[[], Float[Tensor, "*batch g repeat dL"]], repeat: int = 1
) -> Modes:
    """Modes `Z = u y^T` of g symmetric matrices: y an eigenvector of the g-th, u any of the g-th outputs (orthonormal)."""

    def vectors() -> Tensor:
        Y = torch.linalg.eigh(matrix.detach()).eigenvectors  # (*batch, g, r, i)
        Z = torch.einsum("...gao,...gri->...giaor", outputs(), Y)
        return Z.flatten(-5, -4)

    return Modes(torch.linalg.eigvalsh(matrix).flatten(-2), repeat, vectors)


class Remainder(Counted):
    """The orthogonal complement of orthonormal columns, some of which may be zero."""

    def __init__(self, n: int, used: Bool[Tensor, "*batch k"], make: Callable[[], Float[Tensor, "*batch n k"]]):
        super().__init__(n, n - used.sum(-1))
        self.used, self.make = used, make

    @cached_property
    def columns(self) -> Float[Tensor, "*batch n k"]:
        """The columns, made once."""
        return self.make()

    def _project(self, V: Tensor) -> Tensor:
        return V - self.columns @ (self.columns.mT @ V)

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """Orthonormal basis, as columns."""
        dim = self.dim
        flat = self.columns.reshape(-1, *self.columns.shape[-2:])
        used = self.used.reshape(-1, self.used.shape[-1])
        parts = [complement(Q[:, keep]) for Q, keep in zip(flat, used)]
        return torch.stack(parts).reshape(*self.columns.shape[:-2], self.n, dim)


class _Columns:
    """Orthonormal parameter eigenvectors of all nonzero modes, made together when the first is asked for."""

    def __init__(self, chain: Chain, parts: Sequence[Modes], used: Bool[Tensor, "*batch k"], sizes: Float[Tensor, "*batch k"]):
        self.chain, self.parts, self.used, self.sizes = chain, parts, used, sizes

    @cached_property
    def columns(self) -> Float[Tensor, "*batch p k"]:
        # The pull-back of an orthonormal eigenvector has the squared norm `value`. Small ones carry rounding from the large
        # ones, which Gram-Schmidt in the order of decreasing values takes away.
        Z = torch.cat([part.vectors().flatten(-4, -3) for part in self.parts], -3)
        rows = self.chain.pull_back(Z).detach()
        rows = rows / torch.where(self.used, self.sizes, 1.0).sqrt().unsqueeze(-1)
        order = self.sizes.argsort(-1, descending=True)
        Q = torch.linalg.qr(rows.take_along_dim(order.unsqueeze(-1), -2).mT).Q
        k = min(Q.shape[-1], order.shape[-1])  # more modes than parameters: the rest are zero
        place = order[..., None, :k].expand(*Q.shape[:-1], k)
        full = Q.new_zeros(*Q.shape[:-1], order.shape[-1]).scatter(-1, place, Q)
        return full * self.used.unsqueeze(-2)

    def slots(self, start: int, stop: int) -> Float[Tensor, "*batch p _"]:
        return self.columns[..., start:stop]

    def all(self) -> Float[Tensor, "*batch p k"]:
        return self.columns


def assemble(chain: Chain, parts: Sequence[Modes]) -> Spectrum:
    """Put modes together as the spectrum of the Gauss-Newton matrix; what is rounding of the largest counts as zero.

    Nonzero eigenvalues are outliers; the zeros are one space of the size that is left.
    """
    values = torch.cat([part.values for part in parts], -1)
    repeats = torch.tensor([part.repeat for part in parts for _ in range(part.values.shape[-1])], device=values.device)
    noise = EPS * max(30, values.shape[-1]) * values.detach().amax(-1, keepdim=True)
    present = values.detach() > noise
    counts = present * repeats
    zeros = chain.size - counts.sum(-1, keepdim=True)
    used = present.repeat_interleave(repeats, -1)
    columns = _Columns(chain, parts, used, values.detach().repeat_interleave(repeats, -1))
    ends = repeats.cumsum(0).tolist()
    spaces = [
        Span(chain.size, counts[..., i], partial(columns.slots, end - r, end))
        for i, (end, r) in enumerate(zip(ends, repeats.tolist()))
    ]
    return Spectrum(
        torch.cat([values, torch.zeros_like(values[..., :1])], -1),
        torch.cat([counts, zeros], -1),
        ("outlier",) * values.shape[-1] + ("zero",),
        (*spaces, Remainder(chain.size, used, columns.all)),
    )
