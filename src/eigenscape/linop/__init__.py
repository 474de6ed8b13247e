"""Symmetric matrices you can only multiply by, and their algebra."""

from .adapters import as_operator
from .blocks import Blocks, blocks
from .deep_linear import DeepLinear
from .matrices import Dense, Diagonal, Kronecker, LowRank
from .operator import Operator, Scaled, Shifted, Submatrix, Sum
from .wrappers import Counted, Projected, Stack

__all__ = [
    "Blocks",
    "Counted",
    "DeepLinear",
    "Dense",
    "Diagonal",
    "Kronecker",
    "LowRank",
    "Operator",
    "Projected",
    "Scaled",
    "Shifted",
    "Stack",
    "Submatrix",
    "Sum",
    "as_operator",
    "blocks",
]
