"""The one interface of this package: a real symmetric operator, and the algebra that keeps it one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Layout, OperatorError

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Operator(ABC):
    """A real symmetric matrix of shape `(*batch, n, n)`, known by its products.

    A subclass provides `matmat`; everything else is written here once. `layout`, where there is one, names the parts
    of a vector.

    >>> from eigenscape.linop import Diagonal
    >>> A = Diagonal(torch.tensor([1.0, 2.0]))
    >>> (2 * A + A.shift(1.0)) @ torch.ones(2)
    tensor([4., 7.])
    """

    def __init__(
        self,
        n: int,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        batch: Sequence[int] = (),
        layout: Layout | None = None,
    ):
        if n < 1:
            raise OperatorError(f"the operator has size {n}; expected at least 1.")
        if not dtype.is_floating_point:
            raise OperatorError(f"the operator has dtype {dtype}; expected a real floating-point dtype.")
        self.batch = tuple(batch)
        self.n = n
        self.dtype = dtype
        self.device = torch.device(device)
        self.layout = layout

    @abstractmethod
    def matmat(self, V: Float[Tensor, "*batch n k"]) -> Float[Tensor, "*batch n k"]:
        """Multiply the columns of V; shapes, dtype and device have been checked by `@`."""

    def prepare(self, products: int) -> None:  # noqa: B027 - to do nothing is right for most
        """Hear from a solver about how many products will follow: what pays only over many may then be set up at once."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as a (stack of) matrices, `(*batch, n, n)`."""
        return (*self.batch, self.n, self.n)

    @property
    def engine(self) -> str:
        """How the products are computed, in a few words."""
        return type(self).__name__

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        return f"<{type(self).__name__} {size}, {self.dtype}, {self.device}, engine: {self.engine}>"

    def __matmul__(self, v: Tensor) -> Tensor:
        self._check(v)
        if v.ndim == len(self.batch) + 1:
            return self.matmat(v.unsqueeze(-1)).squeeze(-1)
        return self.matmat(v)

    def _check(self, v: Tensor) -> None:
        if not isinstance(v, Tensor):
            raise OperatorError(f"a {type(v).__name__} was multiplied; expected a torch.Tensor (H.flatten(dict) makes one).")
        lead = len(self.batch)
        if v.ndim not in (lead + 1, lead + 2) or tuple(v.shape[: lead + 1]) != (*self.batch, self.n):
            one, many = (*self.batch, self.n), f"({', '.join(map(str, (*self.batch, self.n)))}, k)"
            raise OperatorError(f"the vector has shape {tuple(v.shape)}; expected {one} or {many}.")
        if v.dtype != self.dtype or v.device != self.device:
            raise OperatorError(
                f"the vector is {v.dtype} on {v.device}, the operator {self.dtype} on {self.device}; "
                "expected the same: v.to(H.device, H.dtype)."
            )

    def __add__(self, other: "Operator") -> "Operator":
        return Sum(self, other) if isinstance(other, Operator) else NotImplemented

    def __sub__(self, other: "Operator") -> "Operator":
        return Sum(self, Scaled(other, -1.0)) if isinstance(other, Operator) else NotImplemented

    def __mul__(self, scale: float) -> "Operator":
        return Scaled(self, float(scale)) if isinstance(scale, int | float) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> "Operator":
        return Scaled(self, -1.0)

    def shift(self, s: float) -> "Operator":
        """Return `A + s I`."""
        return Shifted(self, float(s))

    def block(self, choice: str | Sequence[str] | Callable[[str], bool]) -> "Operator":
        """Diagonal block of the parameters with these names or glob patterns, or that a predicate on the name picks."""
        return Submatrix(self, self._layout().select(choice))

    def block_products(self, groups: Sequence[Sequence[str]], vectors: Sequence[Tensor]) -> list[Tensor]:
        """Products of several diagonal blocks with a vector each, `[A[g, g] @ v for g, v in zip(groups, vectors)]`."""
        parts = [self._layout().indices(g, self.device) for g in groups]
        V = torch.zeros(self.n, len(parts), dtype=self.dtype, device=self.device)
        for column, (part, v) in enumerate(zip(parts, vectors)):
            V[part, column] = v
        W = self @ V
        return [W[part, column] for column, part in enumerate(parts)]

    def _layout(self) -> Layout:
        if self.layout is None:
            raise OperatorError("this operator has no named parameters; expected one made by es.hessian, es.ggn or es.fisher.")
        return self.layout

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, "n"]:
        """Concatenate named tensors into a vector of this operator."""
        return self._layout().flatten(tensors)

    def unflatten(self, vector: Float[Tensor, "*lead n"]) -> dict[str, Tensor]:
        """Cut a vector of this operator into named tensors."""
        return self._layout().unflatten(vector)

    def to_scipy(self) -> "LinearOperator":
        """Return a `scipy.sparse.linalg.LinearOperator` with the same products (through NumPy, on the CPU)."""
        from .adapters import to_scipy

        return to_scipy(self)


def _same_kind(a: Operator, b: Operator) -> None:
    if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        raise OperatorError(f"operators differ: {a!r} and {b!r}; expected equal shape, dtype and device.")


class Sum(Operator):
    """`A + B`."""

    def __init__(self, a: Operator, b: Operator):
        _same_kind(a, b)
        super().__init__(a.n, dtype=a.dtype, device=a.device, batch=a.batch, layout=a.layout or b.layout)
        self.a, self.b = a, b

    def matmat(self, V):
        """Add the products."""
        return self.a.matmat(V) + self.b.matmat(V)

    def prepare(self, products):
        """Tell both."""
        self.a.prepare(products)
        self.b.prepare(products)

    def block_products(self, groups, vectors):
        """Add the block products."""
        return [x + y for x, y in zip(self.a.block_products(groups, vectors), self.b.block_products(groups, vectors))]

    @property
    def engine(self) -> str:
        """Both engines."""
        return f"({self.a.engine}) + ({self.b.engine})"


class Scaled(Operator):
    """`s A`."""

    def __init__(self, op: Operator, scale: float):
        super().__init__(op.n, dtype=op.dtype, device=op.device, batch=op.batch, layout=op.layout)
        self.op, self.scale = op, scale

    def matmat(self, V):
        """Scale the product."""
        return self.scale * self.op.matmat(V)

    def prepare(self, products):
        """Pass it on."""
        self.op.prepare(products)

    def block_products(self, groups, vectors):
        """Scale the block products."""
        return [self.scale * x for x in self.op.block_products(groups, vectors)]

    @property
    def engine(self) -> str:
        """Scale and engine."""
        return f"{self.scale:g} * ({self.op.engine})"


class Shifted(Operator):
    """`A + s I`."""

    def __init__(self, op: Operator, s: float):
        super().__init__(op.n, dtype=op.dtype, device=op.device, batch=op.batch, layout=op.layout)
        self.op, self.s = op, s

    def matmat(self, V):
        """Add a multiple of the vector to the product."""
        return self.op.matmat(V) + self.s * V

    def prepare(self, products):
        """Pass it on."""
        self.op.prepare(products)

    def block_products(self, groups, vectors):
        """Add a multiple of each vector to its block product."""
        return [x + self.s * v for x, v in zip(self.op.block_products(groups, vectors), vectors)]

    @property
    def engine(self) -> str:
        """Engine and shift."""
        return f"({self.op.engine}) {self.s:+g} I"


class Submatrix(Operator):
    """The diagonal block of `A` that belongs to some of its named parameters."""

    def __init__(self, op: Operator, names: Sequence[str]):
        layout = op._layout()
        if not names:
            raise OperatorError("the block is empty: no parameter was selected.")
        self.op, self.names = op, tuple(n for n in layout.names if n in set(names))
        sub = layout.sub(self.names)
        super().__init__(sub.size, dtype=op.dtype, device=op.device, layout=sub)

    def matmat(self, V):
        """One block product per column."""
        return torch.stack([self.op.block_products([self.names], [v])[0] for v in V.unbind(-1)], -1)

    @property
    def engine(self) -> str:
        """Engine and block."""
        return f"block of ({self.op.engine})"
