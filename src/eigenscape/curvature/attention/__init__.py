"""Attention with first and second derivatives in memory proportional to the length."""

from .function import attention
from .patch import TiledAttention

__all__ = ["TiledAttention", "attention"]
