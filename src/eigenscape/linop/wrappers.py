"""Wrappers: count products, project, stack."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import OperatorError
from .operator import Operator


class Counted(Operator):
    """Counts products: `num_matvecs` grows by one for each column (of each member of a stack together)."""

    def __init__(self, op: Operator):
        super().__init__(op.n, dtype=op.dtype, device=op.device, batch=op.batch, layout=op.layout)
        self.op, self.num_matvecs = op, 0

    def matmat(self, V):
        """Count, then multiply."""
        self.num_matvecs += V.shape[-1]
        return self.op.matmat(V)

    def prepare(self, products):
        """Pass it on."""
        self.op.prepare(products)

    def block_products(self, groups, vectors):
        """Count one product per block, then multiply."""
        self.num_matvecs += len(groups)
        return self.op.block_products(groups, vectors)

    @property
    def engine(self) -> str:
        """The wrapped engine."""
        return self.op.engine


class Projected(Operator):
    """`(I - Q Q^T) A (I - Q Q^T)` for orthonormal columns Q."""

    def __init__(self, op: Operator, Q: Float[Tensor, "*batch n k"]):
        super().__init__(op.n, dtype=op.dtype, device=op.device, batch=op.batch, layout=op.layout)
        self.op, self.Q = op, Q

    def _complement(self, V: Tensor) -> Tensor:
        return V - self.Q @ (self.Q.mT @ V)

    def matmat(self, V):
        """Project, multiply, project."""
        return self._complement(self.op.matmat(self._complement(V)))

    @property
    def engine(self) -> str:
        """The wrapped engine."""
        return f"projected ({self.op.engine})"


class Stack(Operator):
    """Operators of equal size as one stack along a new leading axis."""

    def __init__(self, ops: Sequence[Operator]):
        if not ops:
            raise OperatorError("the list of operators is empty; expected at least one to stack.")
        first = ops[0]
        for op in ops:
            if (op.shape, op.dtype, op.device) != (first.shape, first.dtype, first.device):
                raise OperatorError(f"operators differ: {first!r} and {op!r}; expected equal shape, dtype and device.")
        batch = (len(ops), *first.batch)
        super().__init__(first.n, dtype=first.dtype, device=first.device, batch=batch, layout=first.layout)
        self.ops = tuple(ops)

    def matmat(self, V):
        """One product per member."""
        return torch.stack([op.matmat(v) for op, v in zip(self.ops, V)])
