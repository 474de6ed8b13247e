"""Figures as tests see them: cells of a profile measured in this process, drawn, and judged."""

from dataclasses import asdict
from functools import cache

import torch
from matplotlib.figure import Figure as Drawing

from eigenscape.experiments.machine import Agreement, Figure, Rows, Verdict
from eigenscape.report.style import svg


@cache
def _rows(experiment, cell):
    return [asdict(cell) | row for row in experiment.measure(cell, torch.device("cpu"))]


def table(figure: Figure, profile: str = "smoke"):
    """What `draw` and `claims` read."""
    cells = figure.cells(profile)
    named = {e.name: Rows([row for other, cell in cells if other is e for row in _rows(e, cell)]) for e in figure.experiments}
    return figure.table(named)


def judged(figure: Figure, profile: str = "smoke") -> dict[str, Verdict]:
    """Verdicts by claim."""
    return {v.claim: v for v in figure.claims(table(figure, profile))}


def agreements(figure: Figure, profile: str = "smoke") -> list[str]:
    """How each claim stands, in order."""
    return [str(v.agreement) for v in figure.claims(table(figure, profile))]


def check_figure(figure: Figure, profile: str = "smoke") -> None:
    """Its cells can be measured, their rows are flat, the drawing renders, and every verdict says something."""
    cells = figure.cells(profile)
    assert cells, "no cells"
    assert len({e.key(c) for e, c in cells}) == len(cells), "a cell is listed twice"
    for e, c in cells:
        assert all(isinstance(v, int | float | str | bool | None) for row in _rows(e, c) for v in row.values())
    drawing = figure.draw(table(figure, profile))
    assert isinstance(drawing, Drawing)
    assert svg(drawing).startswith("<?xml")
    verdicts = figure.claims(table(figure, profile))
    assert verdicts
    assert all(isinstance(v.agreement, Agreement) and v.claim and v.source and v.paper and v.ours for v in verdicts)
    assert len({v.claim for v in verdicts}) == len(verdicts)
