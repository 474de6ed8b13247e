"""Figures of what training does to curvature: known phenomena on real digits, watched by the monitor."""

from .catapult import CATAPULT
from .edge import EDGE_FIGURE
from .flattening import FLATTENING
from .subspace import SUBSPACE
from .thresholds import THRESHOLDS

FIGURES = (EDGE_FIGURE, THRESHOLDS, CATAPULT, FLATTENING, SUBSPACE)

__all__ = ["FIGURES"]
