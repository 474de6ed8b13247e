"""Figures of [spectral-view]: the worked example, rates of descent, trace estimation, and kinds of critical points."""

from .critical import CRITICAL
from .example import EXAMPLE
from .rates import RATES
from .traces import TRACES

FIGURES = (EXAMPLE, RATES, TRACES, CRITICAL)

__all__ = ["FIGURES"]
