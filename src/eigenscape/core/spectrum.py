"""A whole spectrum: distinct eigenvalues with multiplicities and labels, and their eigenspaces on demand."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .errors import TheoryError

LABELS = ("outlier", "bulk", "zero")


class Eigenspace(ABC):
    """A subspace of R^n known by its action; the basis is formed only when asked for."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the subspace."""

    @abstractmethod
    def project(self, v: Float[Tensor, "n *k"]) -> Float[Tensor, "n *k"]:
        """Orthogonal projection of a vector, or of the columns of a matrix."""

    @abstractmethod
    def basis(self) -> Float[Tensor, "n dim"]:
        """Orthonormal basis, as columns."""


@dataclass(frozen=True)
class ExplicitSpace(Eigenspace):
    """A subspace given by an orthonormal basis.

    >>> ExplicitSpace(torch.eye(3)[:, :1]).project(torch.tensor([2.0, 3.0, 4.0]))
    tensor([2., 0., 0.])
    """

    Q: Float[Tensor, "n dim"]

    @property
    def dim(self) -> int:
        """Dimension of the subspace."""
        return self.Q.shape[-1]

    def project(self, v: Float[Tensor, "n *k"]) -> Float[Tensor, "n *k"]:
        """Orthogonal projection of a vector, or of the columns of a matrix."""
        return self.Q @ (self.Q.mT @ v)

    def basis(self) -> Float[Tensor, "n dim"]:
        """Orthonormal basis, as columns."""
        return self.Q


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All eigenvalues of a symmetric matrix of size n, closed form or dense, in one type.

    `values[..., i]` occurs `multiplicities[..., i]` times (0 means it does not occur) and is an `"outlier"`, part of the
    `"bulk"`, or `"zero"`. Leading axes are a batch. Values need not be sorted; `expand()` is.

    >>> s = Spectrum(torch.tensor([3.0, -1.0, 1.0]), torch.tensor([1, 2, 2]), ("outlier", "bulk", "bulk"))
    >>> s.expand()
    tensor([-1., -1.,  1.,  1.,  3.])
    >>> s.trace.item(), s.condition_number.item(), s.n
    (3.0, 3.0, 5)
    """

    values: Float[Tensor, "*batch r"]
    multiplicities: Int[Tensor, "*batch r"]
    labels: tuple[str, ...]
    spaces: tuple[Eigenspace, ...] | None = field(default=None, repr=False)

    def __post_init__(self):
        r = self.values.shape[-1]
        if len(self.labels) != r or any(label not in LABELS for label in self.labels):
            raise TheoryError(f"labels are {self.labels}; expected {r} of {LABELS}.")
        if self.spaces is not None and len(self.spaces) != r:
            raise TheoryError(f"{len(self.spaces)} eigenspaces came with {r} values; expected one each.")
        full = self.multiplicities.to(self.values.device).broadcast_to(self.values.shape)
        object.__setattr__(self, "multiplicities", full)
        totals = full.sum(-1)
        if totals.numel() and not bool((totals == totals.reshape(-1)[0]).all()):
            raise TheoryError("the members of a batch have different sizes; expected one n for all.")

    @cached_property
    def n(self) -> int:
        """Size of the matrix."""
        return int(self.multiplicities.sum(-1).reshape(-1)[0])

    def expand(self) -> Float[Tensor, "*batch n"]:
        """All n eigenvalues, repeated and ascending."""
        rows = self.values.reshape(-1, self.values.shape[-1])
        counts = self.multiplicities.reshape(rows.shape)
        full = torch.stack([row.repeat_interleave(m) for row, m in zip(rows, counts)])
        return full.sort(-1).values.reshape(*self.values.shape[:-1], -1)

    def _present(self, absent: float) -> Tensor:
        return torch.where(self.multiplicities > 0, self.values, torch.full_like(self.values, absent))

    @property
    def max(self) -> Float[Tensor, "*batch"]:
        """Largest eigenvalue."""
        return self._present(-torch.inf).amax(-1)

    @property
    def min(self) -> Float[Tensor, "*batch"]:
        """Smallest eigenvalue."""
        return self._present(torch.inf).amin(-1)

    @property
    def trace(self) -> Float[Tensor, "*batch"]:
        """Sum of all eigenvalues."""
        return (self.values * self.multiplicities).sum(-1)

    @property
    def condition_number(self) -> Float[Tensor, "*batch"]:
        """Largest over smallest magnitude; infinite for a singular matrix."""
        magnitude = self.values.abs()
        big = torch.where(self.multiplicities > 0, magnitude, torch.zeros_like(magnitude)).amax(-1)
        small = torch.where(self.multiplicities > 0, magnitude, torch.full_like(magnitude, torch.inf)).amin(-1)
        zero = small <= self.n * torch.finfo(self.values.dtype).eps * big
        return torch.where(zero, torch.full_like(big, torch.inf), big / torch.where(zero, torch.ones_like(small), small))

    def _space(self, i: int) -> Eigenspace:
        if self.spaces is None:
            raise TheoryError("this spectrum carries no eigenvectors; ask for them where it is made (vectors=True).")
        return self.spaces[i]

    def eigenspace(self, i: int) -> Float[Tensor, "n dim"]:
        """Orthonormal basis of the eigenspace of `values[i]`, as columns; for a large bulk prefer `project`."""
        return self._space(i).basis()

    def project(self, i: int, v: Float[Tensor, "n *k"]) -> Float[Tensor, "n *k"]:
        """Project vectors onto the eigenspace of `values[i]` without forming its basis."""
        return self._space(i).project(v)
