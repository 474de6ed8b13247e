"""The figures of [spectral-view]: measured, drawn, and judged."""

import pytest
import torch
from drawn import agreements, check_figure, table

from eigenscape.experiments.papers.spectral_view import CRITICAL, EXAMPLE, FIGURES, RATES, TRACES
from eigenscape.experiments.papers.spectral_view.critical import around_zero
from eigenscape.experiments.papers.spectral_view.rates import descend


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.id)
def test_every_figure_is_measured_drawn_and_judged(figure):
    check_figure(figure)


def test_verdicts():
    assert agreements(EXAMPLE) == ["agrees", "disagrees"]
    assert agreements(RATES) == ["agrees", "partly", "agrees", "partly"]
    assert agreements(TRACES) == ["agrees", "agrees", "agrees"]
    assert agreements(CRITICAL) == ["agrees", "partly", "cannot be judged"]


def test_descent_of_the_example_contracts_by_one_minus_lr_lambda():
    rows = table(EXAMPLE).where(lr=0.05, start="flat")
    assert rows["size"][1] / rows["size"][0] == pytest.approx(1 - 0.05 * (10 - 2 * 13**0.5))


def test_descent_stops_where_it_has_arrived():
    H = torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64))
    sizes, sides = descend(H, torch.ones(2, dtype=torch.float64), 0.5, 0.0, 100, torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert sizes[1].item() == 0.5
    assert sides[1].item() == 0.0
    assert len(sizes) < 101


@pytest.mark.parametrize("dimension", [2, 3])
def test_directions_cover_the_sphere(dimension):
    points = around_zero(dimension, 4000)
    assert torch.allclose(points.norm(dim=-1), torch.ones(4000, dtype=torch.float64))
    assert torch.allclose(points.T @ points / 4000, torch.eye(dimension, dtype=torch.float64) / dimension, atol=2e-3)
