"""The figures of [poster]: measured, drawn, and judged as numbers demand."""

import pytest
import torch
from drawn import agreements, check_figure, table

from eigenscape.experiments.machine import Rows
from eigenscape.experiments.papers.closed_form import CELLS
from eigenscape.experiments.papers.poster import FIGURES, MADE_OF, RELU, _shares, claims


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.id)
def test_every_figure_is_measured_drawn_and_judged(figure):
    check_figure(figure)


def test_verdicts_follow_the_numbers():
    assert agreements(MADE_OF) == ["agrees", "agrees"]
    off = Rows([row | {"norm": 0.6 * row["sharpness"], "measured": 1.01 * row["measured"]} for row in table(MADE_OF)])
    assert [str(v.agreement) for v in claims(off)] == ["disagrees", "disagrees"]


def test_the_relu_picture_shares_its_cells_with_the_paper():
    assert RELU.experiments == CELLS.experiments
    assert agreements(RELU) == ["agrees"]


def test_shares_by_hand():
    # squares 9, 16, 0 and a trace of 4: sharpness 2 + 5 / 2, of which the squares have 9/10 and 16/10.
    parts = (torch.tensor(p, dtype=torch.float64) for p in (9.0, 16.0, 0.0, 4.0))
    assert _shares(*parts).tolist() == pytest.approx([0.9, 1.6, 0.0, 2.0])
