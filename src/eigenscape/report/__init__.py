"""Results become figures and a page; nothing is computed here."""

from .page import Fact, Page, Section, Table, render, write
from .spectra import cumulative, density, layers, overview, top_eigenvalues
from .style import inline_svg, png, svg, write_figures
from .training import training_curve

__all__ = [
    "Fact",
    "Page",
    "Section",
    "Table",
    "cumulative",
    "density",
    "inline_svg",
    "layers",
    "overview",
    "png",
    "render",
    "svg",
    "top_eigenvalues",
    "training_curve",
    "write",
    "write_figures",
]
