"""A cheaper operator that stands in for another while its eigenvectors are sought."""

from typing import Any

from ..core import SolverError
from ..linop import Operator
from .products import Products

ROUGH = 0.1  # residual to which eigenvectors of the cheaper operator are sought before it is compared with the real one
NEAR = 10.0  # disagreement, in units of the tolerance, up to which its eigenvectors are worth a product each


def coarse_products(A: Products, coarse: Any) -> Products:
    """Products of the cheaper operator, which must multiply the same vectors."""
    if not isinstance(coarse, Operator):
        raise SolverError(
            f"coarse is a {type(coarse).__name__}; expected a cheaper operator of the same size, such as "
            "es.hessian(obj.subsample(0.1)): es.as_operator makes one of a matrix."
        )
    H = A.op
    if (coarse.shape, coarse.dtype, coarse.device) != (H.shape, H.dtype, H.device):
        raise SolverError(
            f"coarse is {coarse!r}, the operator {H!r}; expected equal shape, dtype and device: the same parameters of the "
            "same model."
        )
    return Products(coarse)


def spent_on(A: Products, B: Products) -> str:
    """What the products with B have cost, in words; in units of A where both operators know what they cost."""
    own, other = _cost(A.op), _cost(B.op)
    if own is None or other is None or own == other:
        return f" and {B.count} coarse ones"
    return f" and {B.count} coarse ones ({A.count + B.count * other / own:.3g} full ones in all)"


def _cost(op: Any) -> float | None:
    """The `cost` of an operator, or of the one that it wraps."""
    while op is not None and not hasattr(op, "cost"):
        op = getattr(op, "op", None)
    return None if op is None else float(op.cost)
