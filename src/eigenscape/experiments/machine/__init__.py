"""Experiments as functions: cells become rows on disk, rows become a figure and verdicts on claims."""

from .experiment import Cell, Experiment, Row, stream
from .figure import Figure
from .rows import Rows
from .verdict import Agreement, Verdict

__all__ = ["Agreement", "Cell", "Experiment", "Figure", "Row", "Rows", "Verdict", "stream"]
