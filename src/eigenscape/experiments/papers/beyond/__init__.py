"""Figures beyond the papers: what the closed forms say that nobody has drawn."""

from . import gap, imbalance, phases_figure

FIGURES = (phases_figure.FIGURE, imbalance.FIGURE, gap.FIGURE)

__all__ = ["FIGURES"]
