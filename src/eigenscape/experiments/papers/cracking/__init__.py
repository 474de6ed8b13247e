"""Figures of [cracking]: what its closed forms look like, and how far they carry."""

from . import (
    attention_edge_figure,
    attention_norms,
    attention_sink,
    data_scale,
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
    data_scale.FIGURE,
    pair_in_training.FIGURE,
    attention_edge_figure.FIGURE,
    subspace.FIGURE,
    phases.FIGURE,
)

__all__ = ["FIGURES"]
