"""Operator in, result with certificate out."""

from .estimators import diagonal, frobenius, trace
from .extremal import eigsh
from .quadrature import density
from .whole import dense

__all__ = ["dense", "density", "diagonal", "eigsh", "frobenius", "trace"]
