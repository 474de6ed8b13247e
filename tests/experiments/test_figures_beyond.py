"""The figures beyond the papers: measured, drawn, and judged as numbers demand."""

import pytest
import torch
from drawn import agreements, check_figure, table

from eigenscape.ensembles import Ensemble
from eigenscape.experiments.machine import Rows
from eigenscape.experiments.papers.beyond import FIGURES, gap, imbalance, phases
from eigenscape.experiments.papers.beyond.phases_figure import FIGURE as PHASES
from eigenscape.experiments.papers.beyond.phases_figure import outcomes

CPU = torch.device("cpu")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.id)
def test_every_figure_is_measured_drawn_and_judged(figure):
    check_figure(figure)


def test_verdicts():
    assert agreements(PHASES) == ["agrees", "agrees", "agrees", "agrees", "partly", "agrees"]
    assert agreements(imbalance.FIGURE)[:2] == ["agrees", "agrees"]
    assert agreements(gap.FIGURE) == ["agrees", "agrees", "partly", "agrees"]


def test_outcomes_of_runs_that_are_known():
    # <w, v> goes to 1, where the flattest minimum has sharpness 2: rates below 1 may converge, above 2 small nets diverge.
    lr = torch.tensor([0.5, 0.5, 0.1, 1.1, 2.1, 0.01], dtype=torch.float64)
    norm = torch.tensor([0.5, 50.0, 15.0, 0.5, 0.5, 0.5], dtype=torch.float64)
    found = [phases.OUTCOMES[i] for i in phases.run(norm, lr, 400).outcome.tolist()]
    assert found == ["converges", "diverges", "converges", "edge", "diverges", "slow"]


def test_a_catapult_ends_flatter_than_it_began():
    lr, norm = torch.tensor(0.3, dtype=torch.float64), torch.tensor(9.0, dtype=torch.float64)
    ends = phases.run(norm, lr, 400)
    assert phases.OUTCOMES[int(ends.outcome)] == "catapults"
    start = phases.scalar_net(norm).sharpness
    assert start > 2 / lr > ends.sharpness * 2 / lr


def test_strips_cover_the_grid_once():
    cells = phases.strips("smoke")
    rates = torch.cat([cell.grid()[0] for cell in cells])
    assert len(rates) == cells[0].rates
    assert (rates.diff() > 0).all()
    assert outcomes(table(PHASES)[phases.MAP.name]).shape == (cells[0].norms, cells[0].rates)


def test_beyond_the_largest_rate_small_networks_swing_between_two_points():
    # at minus = 0 the map is p <- (1 - lr (p / 4 - 1))^2 p, whose cycle of two at lr = 1.1 is found by iterating it.
    p = 0.1
    for _ in range(5000):
        p = (1 - 1.1 * (p / 4 - 1)) ** 2 * p
    q = (1 - 1.1 * (p / 4 - 1)) ** 2 * p
    expected = sorted(1.1 / 2 * max(c / 2 + (c / 4 - 1), abs(c / 4 - 1)) for c in (p, q))
    row = table(PHASES)[phases.LADDER.name].where(lambda r: abs(r["lr"] - 1.1) < 1e-9)[0]
    assert row["period"] == 2
    assert sorted({float(v) for v in row["late"].split()}) == pytest.approx(expected, abs=2e-5)


def test_a_gap_by_hand():
    # w = v = 1, x = 1, y = 0: H = [[1, 2], [2, 1]], of which Gauss-Newton is [[1, 1], [1, 1]]; the residual covariance is 1.
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    (row,) = gap.compared(Ensemble((one, one)), one, 0 * one)
    assert {k: pytest.approx(v) for k, v in row.items()} == {"member": 0, "top": 3, "bottom": -1, "ggn": 2, "bound": 1}


def test_relu_networks_are_differentiated_as_relu_networks():
    V, W = torch.tensor([[[1.0], [-1.0]]]).double(), torch.tensor([[[1.0, 5.0]]]).double()
    x = torch.tensor([[[2.0]]]).double()  # the second neuron is dead; the first has w = v = 1
    (row,) = gap.compared(Ensemble((V, W), "relu"), x, 0 * x)
    assert row["top"] == pytest.approx(12)
    assert row["ggn"] == pytest.approx(8)
    assert row["bound"] == pytest.approx(4)


def test_verdicts_follow_the_numbers():
    rows = table(imbalance.FIGURE)
    off = Rows([row | {"sharpness": 2 * row["predicted"]} for row in rows])
    assert str(imbalance.claims(off)[0].agreement) == "disagrees"
    broken = Rows([row | {"top": row["top"] + 10 * row["bound"]} for row in table(gap.FIGURE)])
    assert str(gap.claims(broken)[0].agreement) == "disagrees"
