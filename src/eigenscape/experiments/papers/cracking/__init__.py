"""Figures of [cracking]: what its closed forms look like, and how far they carry."""

from . import (
    attention_edge_figure,
    attention_norms,
    attention_sink,
    data_scale,
    depth_figures,
    norm_figures,
    pair_in_training,
    pairing_figures,
    phases,
    relu_cells,
    subspace,
)

FIGURES = (
    relu_cells.FIGURE,
    attention_norms.FIGURE,
    attention_sink.FIGURE,
    *pairing_figures.FIGURES,
    norm_figures.FIGURES[0],
    data_scale.FIGURE,
    pair_in_training.FIGURE,
    *norm_figures.FIGURES[1:-1],
    *depth_figures.FIGURES,
    norm_figures.FIGURES[-1],
    attention_edge_figure.FIGURE,
    subspace.FIGURE,
    phases.FIGURE,
)

__all__ = ["FIGURES"]
