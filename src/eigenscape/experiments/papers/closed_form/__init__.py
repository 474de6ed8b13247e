"""Figures of [closed-form] and its [poster]: the scalar network, linear and ReLU."""

from .cells import CELLS
from .high_rates import HIGH_RATES
from .outliers import OUTLIERS
from .pairing import PAIRING
from .scaling import SCALING

FIGURES = (SCALING, CELLS, PAIRING, HIGH_RATES, OUTLIERS)

__all__ = ["FIGURES"]
