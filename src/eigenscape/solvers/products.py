"""Products with a stack of symmetric operators, counted and checked, on vectors stored as rows."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import SolverError
from ..linop import Counted, Operator, as_operator

CHUNK = 1 << 18  # entries of a row that are multiplied at once: partial sums of float32 products are added in float64


class Products:
    """`A` on rows of shape `(b, k, n)`, with all leading axes of the operator flattened into b (1 for a single operator)."""

    def __init__(self, H: Any):
        op = as_operator(H)
        if op.dtype not in (torch.float32, torch.float64):
            raise SolverError(
                f"the operator has dtype {op.dtype}; expected float32 or float64: as_operator(H, dtype=torch.float32)."
            )
        self.op: Operator = op
        self.counted = Counted(op)
        self.n, self.batch, self.dtype, self.device = op.n, op.batch, op.dtype, op.device
        self.members = torch.Size(op.batch).numel()
        self.eps = torch.finfo(op.dtype).eps

    @property
    def count(self) -> int:
        """Number of products so far, as columns (all members of a stack together count once)."""
        return self.counted.num_matvecs

    def __call__(self, rows: Float[Tensor, "b k n"]) -> Float[Tensor, "b k n"]:
        """Multiply each row; numbers that are not finite are an error."""
        columns = rows.mT.reshape(*self.batch, self.n, rows.shape[-2])
        out = (self.counted @ columns).detach()
        self._finite(out)
        return out.reshape(self.members, self.n, rows.shape[-2]).mT

    def observe(self, product: Tensor) -> None:
        """Count and check a product that was made elsewhere, in a pass shared with other operators."""
        self.counted.num_matvecs += 1
        self._finite(product)

    def _finite(self, out: Tensor) -> None:
        if not bool(out.sum(dtype=torch.float64).isfinite()) and not bool(out.isfinite().all()):  # the sum takes a seventh
            raise SolverError(
                f"product number {self.count} is not finite (NaN or inf); expected finite products: look for NaN or inf "
                "in the weights, the data or the loss."
            )

    def restore(self, x: Tensor) -> Tensor:
        """Give a result with one leading axis the leading axes of the operator."""
        return x.reshape((*self.batch, *x.shape[1:]))


def inner(X: Float[Tensor, "b p n"], Y: Float[Tensor, "b q n"]) -> Float[Tensor, "b p q"]:
    """All inner products `X Y^T`, in float64 across chunks of the rows."""
    parts = [X[..., i : i + CHUNK] @ Y[..., i : i + CHUNK].mT for i in range(0, X.shape[-1], CHUNK)]
    total = parts[0].double()
    for part in parts[1:]:
        total += part
    return total


def lengths(X: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
    """Euclidean lengths of the rows, accumulated in float64."""
    return torch.linalg.vector_norm(X, dim=-1, dtype=torch.float64)


def normalised(X: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    """Rows divided by their lengths; zero rows stay zero."""
    size = lengths(X)
    return X / torch.where(size > 0, size, 1.0).to(X.dtype).unsqueeze(-1)
