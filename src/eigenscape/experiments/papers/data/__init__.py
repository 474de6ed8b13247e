"""Figures of [data]: how the Hessian spectrum of linear networks depends on data, and on labels above all."""

from . import along_figures, counts, depth, spectrum, trained_figures

FIGURES = (spectrum.FIGURE, depth.FIGURE, *trained_figures.FIGURES, *along_figures.FIGURES, counts.FIGURE)

__all__ = ["FIGURES"]
