"""Every column of the matrix: what small problems are solved with, exactly."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import EigenPairs, Enclosure, SolverError
from .products import Products
from .selection import Selection

BYTES = 1 << 28  # of one block of unit vectors


def columns(A: Products) -> Float[Tensor, "b n n"]:
    """Multiply the identity, in blocks of columns; float64, symmetric. Asymmetry beyond rounding is an error."""
    width = max(1, min(A.n, BYTES // (A.members * A.n * A.op.dtype.itemsize)))
    M = torch.empty(A.members, A.n, A.n, dtype=torch.float64, device=A.device)
    for i in range(0, A.n, width):
        rows = torch.arange(i, min(i + width, A.n), device=A.device)
        unit = torch.zeros(A.members, len(rows), A.n, dtype=A.dtype, device=A.device)
        unit[:, torch.arange(len(rows), device=A.device), rows] = 1
        M[:, rows] = A(unit).double()
    gap, size = (M - M.mT).abs().amax(), M.abs().amax()
    if bool(gap > A.eps**0.5 * size):
        raise SolverError(
            f"the operator is not symmetric: max |A - A^T| is {float(gap):.3g} where max |A| is {float(size):.3g}; "
            "expected a symmetric operator, with the same products at every call."
        )
    return (M + M.mT) / 2


def rounding(A: Products, values: Float[Tensor, "b n"]) -> Float[Tensor, "b"]:
    """Error of a computed eigenvalue that rounding can explain: `eps |A|` for each of about sqrt(n) additions."""
    return 4 * A.eps * A.n**0.5 * values.abs().amax(-1)


def complete_pairs(A: Products, wanted: Selection, M: Float[Tensor, "b n n"]) -> EigenPairs:
    """Pick the wanted pairs from the full decomposition; the enclosures hold for certain."""
    values, vectors = torch.linalg.eigh(M)
    noise = rounding(A, values)
    order = wanted.order(values.cpu())[:, : wanted.count].to(values.device)
    order = order.gather(-1, wanted.final(values.gather(-1, order)))
    t = values.gather(-1, order)
    X = vectors.gather(-1, order.unsqueeze(-2).expand(-1, A.n, -1)).to(A.dtype)
    residuals = torch.linalg.vector_norm(M @ X.double() - t.unsqueeze(-2) * X.double(), dim=-2) + noise.unsqueeze(-1)
    ends = {end: values[:, -1 if end > 0 else 0] for end in wanted.ends}
    enclosures = {e: Enclosure(A.restore(v - noise), A.restore(v + noise), 1.0) for e, v in ends.items()}
    return EigenPairs(
        values=A.restore(t),
        vectors=A.restore(X),
        residual_norms=A.restore(residuals),
        intervals=A.restore(torch.stack([t - residuals, t + residuals], -1)),
        num_matvecs=A.count,
        status=f"all {wanted.count} pairs exact to rounding: every column was multiplied, {A.count} products",
        converged=True,
        top=enclosures.get(1),
        bottom=enclosures.get(-1),
    )
