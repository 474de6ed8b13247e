"""Operator in, result with certificate out."""

from .extremal import eigsh
from .quadrature import density

__all__ = ["density", "eigsh"]
