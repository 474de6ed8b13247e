"""Eigenspaces that are known by a few vectors of the width of the network; a basis is formed only on demand."""

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..core import Eigenspace, TheoryError


class Counted(Eigenspace):
    """A subspace of R^n per member of a batch; `dims` holds each member's dimension."""

    def __init__(self, n: int, dims: Int[Tensor, "*batch"]):
        self.n, self.dims = n, dims

    @property
    def dim(self) -> int:
        """The dimension, where all members agree."""
        found = self.dims.unique().tolist()
        if len(found) > 1:
            raise TheoryError(
                f"the members of the batch have eigenspaces of dimensions {found}; expected one for all: see dims."
            )
        return found[0]

    def project(self, v: Float[Tensor, "*batch n k"]) -> Float[Tensor, "*batch n k"]:
        """Orthogonal projection of a vector `(n,)`, or of columns `(*batch, n, k)`."""
        axis = -1 if v.ndim == 1 else -2
        if v.ndim == 0 or v.shape[axis] != self.n:
            raise TheoryError(
                f"the vector has shape {tuple(v.shape)}; expected ({self.n},), ({self.n}, k) or (*batch, {self.n}, k)."
            )
        v = v.to(dtype=torch.float64, device=self.dims.device)
        return self._project(v.unsqueeze(-1)).squeeze(-1) if v.ndim == 1 else self._project(v)

    @abstractmethod
    def _project(self, V: Float[Tensor, "*batch n k"]) -> Float[Tensor, "*batch n k"]: ...


class Span(Counted):
    """The columns that `make` returns when they are first needed: orthonormal, or zero for a member that has none."""

    def __init__(self, n: int, dims: Int[Tensor, "*batch"], make: Callable[[], Float[Tensor, "*batch n k"]]):
        super().__init__(n, dims)
        self.make = make

    @cached_property
    def columns(self) -> Float[Tensor, "*batch n k"]:
        """The columns, made once."""
        return self.make()

    def _project(self, V: Tensor) -> Tensor:
        return self.columns @ (self.columns.mT @ V)

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """Orthonormal basis, as columns."""
        return self.columns[..., : self.dim]


class Slots(Counted):
    r"""All `(a_1 n; a_2 n; ...; a_S n)` with n in R^m orthogonal to the orthonormal columns of `avoid`, for a unit vector a.

    The S slots of size m lie one after the other from position `start`. With a mask, n is zero where the mask is.
    Projection costs O(n k) and the basis, by Householder reflections, O(n m).

    >>> e = torch.eye(3, dtype=torch.float64)
    >>> pairs = Slots(torch.tensor([0.5, 0.5]).double().sqrt(), e[:, :1], n=6)     # (n; n) / sqrt 2, n orthogonal to e_1
    >>> pairs.dim, pairs.project(torch.tensor([5.0, 1.0, 0.0, 7.0, 3.0, 0.0])).round(decimals=9).tolist()
    (2, [0.0, 2.0, 0.0, 0.0, 2.0, 0.0])
    """

    def __init__(
        self,
        a: Float[Tensor, "*batch S"],
        avoid: Float[Tensor, "*batch m r"],
        *,
        n: int,
        start: int = 0,
        mask: Bool[Tensor, "*batch m"] | None = None,
    ):
        m, r = avoid.shape[-2:]
        sizes = torch.full(avoid.shape[:-2], m, device=avoid.device) if mask is None else mask.sum(-1)
        super().__init__(n, (sizes - r).clamp(min=0))
        self.a, self.avoid, self.mask = a, avoid, mask
        self.part = slice(start, start + a.shape[-1] * m)

    def _place(self, N: Float[Tensor, "*batch m k"]) -> Float[Tensor, "*batch n k"]:
        """Repeat n in all slots, with zeros outside of them."""
        slots = self.a[..., :, None, None] * N.unsqueeze(-3)
        out = N.new_zeros(*slots.shape[:-3], self.n, N.shape[-1])
        out[..., self.part, :] = slots.flatten(-3, -2)
        return out

    def _project(self, V: Tensor) -> Tensor:
        slots = V[..., self.part, :].unflatten(-2, (self.a.shape[-1], -1))
        N = (self.a[..., :, None, None] * slots).sum(-3)
        N = N if self.mask is None else N * self.mask.unsqueeze(-1)
        return self._place(N - self.avoid @ (self.avoid.mT @ N))

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """Orthonormal basis, as columns."""
        m, r = self.avoid.shape[-2:]
        if self.mask is None:
            return self._place(complement(self.avoid))
        inside = self.dim + r if self.dim else 0
        if not inside:
            return self.avoid.new_zeros(*self.avoid.shape[:-2], self.n, 0)
        rows = self.mask.nonzero()[:, -1].reshape(*self.mask.shape[:-1], inside, 1)
        small = complement(self.avoid.take_along_dim(rows, -2))
        N = small.new_zeros(*small.shape[:-2], m, small.shape[-1])
        return self._place(N.scatter(-2, rows.expand_as(small), small))


def complement(Q: Float[Tensor, "*batch m r"]) -> Float[Tensor, "*batch m rest"]:
    """Orthonormal basis of the orthogonal complement of orthonormal columns, by Householder reflections.

    >>> complement(torch.eye(3)[:, :2]).T
    tensor([[0., 0., 1.]])
    """
    return torch.linalg.qr(Q, mode="complete").Q[..., Q.shape[-1] :]


class Coordinates(Counted):
    """The coordinates that a mask picks.

    >>> Coordinates(torch.tensor([True, False, True])).basis().T
    tensor([[1., 0., 0.],
            [0., 0., 1.]], dtype=torch.float64)
    """

    def __init__(self, mask: Bool[Tensor, "*batch n"]):
        super().__init__(mask.shape[-1], mask.sum(-1))
        self.mask = mask

    def _project(self, V: Tensor) -> Tensor:
        return V * self.mask.unsqueeze(-1)

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """Unit vectors, as columns."""
        rows = self.mask.nonzero()[:, -1].reshape(*self.mask.shape[:-1], 1, self.dim)
        position = torch.arange(self.n, device=rows.device).unsqueeze(-1)
        return (position == rows).to(torch.float64)


class Permuted(Eigenspace):
    """A subspace in another order of the coordinates: entry i is entry `order[i]` of the given one.

    >>> space = Permuted(Coordinates(torch.tensor([True, False, False])), torch.tensor([2, 1, 0]))
    >>> space.project(torch.tensor([4.0, 5.0, 6.0]))
    tensor([0., 0., 6.], dtype=torch.float64)
    """

    def __init__(self, space: Eigenspace, order: Int[Tensor, "n"]):
        self.space, self.order, self.inverse = space, order, order.argsort()

    @property
    def dim(self) -> int:
        """Dimension of the subspace."""
        return self.space.dim

    def project(self, v: Float[Tensor, "*batch n k"]) -> Float[Tensor, "*batch n k"]:
        """Permute, project, permute back."""
        v, axis = v.to(self.order.device), -1 if v.ndim == 1 else -2
        return self.space.project(v.index_select(axis, self.inverse)).index_select(axis, self.order)

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """The basis with its rows permuted."""
        return self.space.basis().index_select(-2, self.order)
