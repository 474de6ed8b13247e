"""Operators that hold their numbers: dense, diagonal, Kronecker product, low rank."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Layout, OperatorError
from .operator import Operator


class Dense(Operator):
    """A symmetric tensor of shape `(*batch, n, n)`; asymmetry beyond rounding is refused."""

    def __init__(self, A: Float[Tensor, "*batch n n"], layout: Layout | None = None):
        if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
            raise OperatorError(f"the tensor has shape {tuple(A.shape)}; expected (*batch, n, n).")
        super().__init__(A.shape[-1], dtype=A.dtype, device=A.device, batch=A.shape[:-2], layout=layout)
        gap, scale = (A - A.mT).abs().max().item(), A.abs().max().item()
        if gap > 1e3 * torch.finfo(A.dtype).eps * scale:
            raise OperatorError(
                f"the matrix is not symmetric: max |A - A^T| is {gap:.3g} where max |A| is {scale:.3g}; "
                "expected a symmetric matrix, such as (A + A.mT) / 2."
            )
        self.A = A

    def matmat(self, V):
        """Multiply by the tensor."""
        return self.A @ V


class Diagonal(Operator):
    """`diag(d)`, for d of shape `(*batch, n)`."""

    def __init__(self, d: Float[Tensor, "*batch n"], layout: Layout | None = None):
        super().__init__(d.shape[-1], dtype=d.dtype, device=d.device, batch=d.shape[:-1], layout=layout)
        self.d = d

    def matmat(self, V):
        """Scale the rows."""
        return self.d.unsqueeze(-1) * V


class Kronecker(Operator):
    """The Kronecker product of A and B, of row-major flattened matrices: `vec(Z) -> vec(A Z B)`."""

    def __init__(self, A: Operator, B: Operator):
        if A.batch or B.batch:
            raise OperatorError("a Kronecker factor is a stack; expected two single operators.")
        super().__init__(A.n * B.n, dtype=A.dtype, device=A.device)
        self.A, self.B = A, B

    def matmat(self, V):
        """Multiply by one factor along each axis."""
        k = V.shape[-1]
        Z = V.reshape(self.A.n, self.B.n * k)
        Z = self.A.matmat(Z).reshape(self.A.n, self.B.n, k)
        Z = self.B.matmat(Z.transpose(0, 1).reshape(self.B.n, -1)).reshape(self.B.n, self.A.n, k)
        return Z.transpose(0, 1).reshape(-1, k)


class LowRank(Operator):
    """`U diag(s) U^T`, for U of shape `(*batch, n, r)` and s of shape `(*batch, r)`."""

    def __init__(self, U: Float[Tensor, "*batch n r"], s: Float[Tensor, "*batch r"]):
        super().__init__(U.shape[-2], dtype=U.dtype, device=U.device, batch=U.shape[:-2])
        self.U, self.s = U, s

    def matmat(self, V):
        """Multiply by the factors, right to left."""
        return self.U @ (self.s.unsqueeze(-1) * (self.U.mT @ V))
