"""Experiments as functions: cells become rows on disk, rows become a figure and verdicts on claims."""

from .experiment import Cell, Experiment, Row, stream
from .figure import Figure
from .plan import PROFILES, Plan
from .reproduce import publish, reproduce
from .rows import Rows
from .run import Backend, Standing, measure_missing
from .store import Store
from .verdict import Agreement, Verdict

__all__ = [
    "PROFILES",
    "Agreement",
    "Backend",
    "Cell",
    "Experiment",
    "Figure",
    "Plan",
    "Row",
    "Rows",
    "Standing",
    "Store",
    "Verdict",
    "measure_missing",
    "publish",
    "reproduce",
    "stream",
]
