"""The figures of the scalar network: measured by autograd, drawn, and judged as the closed forms say."""

import pytest
import torch
from drawn import agreements, check_figure, judged, table

from eigenscape.experiments.ledger.oracle import hessians
from eigenscape.experiments.papers.closed_form import CELLS, FIGURES, HIGH_RATES, OUTLIERS, PAIRING, SCALING
from eigenscape.experiments.papers.closed_form.cells import corollary
from eigenscape.experiments.papers.closed_form.high_rates import ending, features
from eigenscape.experiments.papers.closed_form.nets import loss, wedge
from eigenscape.experiments.papers.closed_form.outliers import poster


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.id)
def test_every_figure_is_measured_drawn_and_judged(figure):
    check_figure(figure)


def test_brute_force_and_closed_form_are_the_same_numbers():
    assert agreements(SCALING) == ["agrees", "partly", "partly"]
    assert agreements(CELLS) == ["agrees", "partly", "agrees"]
    assert agreements(PAIRING)[0] == "agrees"
    assert agreements(OUTLIERS) == ["disagrees", "agrees"]


def test_scaling_by_hand():
    # f = w v x at w = v = 1 on x = k, y = k: dx = 0, so the spectrum is {2 k^2, 0}.
    theta = torch.ones(1, 2, dtype=torch.float64)
    for k in (0.5, 1.0, 3.0):
        x = torch.full((1, 4), k, dtype=torch.float64)
        assert torch.linalg.eigvalsh(hessians(loss("linear"), theta, x, x))[0].tolist() == pytest.approx([0.0, 2 * k * k])


def test_every_eigenvector_of_a_relu_network_has_a_cell():
    rows = table(CELLS)
    assert ((rows["share"] < 1e-9) | (rows["share"] > 1 - 1e-9)).all()
    inner = rows.where(positive=6)
    share = inner["share"] > 0.5
    assert share.sum() == 2 * 6 * len(inner) / 20


def test_the_corollary_refuses_an_empty_cell():
    w, v, x = torch.ones(3), torch.ones(3), torch.tensor([1.0, -1.0])
    assert corollary(w, v, x, x) == [None] * 6


def test_momentum_makes_the_second_outlier_swing():
    verdict = judged(PAIRING)["it converges to zero from above"]
    assert "with momentum 0.9: 0 of 4" in verdict.ours


def test_a_symmetric_wedge_teaches_the_linear_network_nothing():
    x, y = wedge("V", 10, torch.Generator().manual_seed(0))
    assert abs(float((x * y).mean())) < 1e-15
    assert "0 of 2 runs" in judged(PAIRING)["which wedge was used"].ours


def test_endings_are_read_off_the_sign():
    t = torch.arange(200, dtype=torch.float64)
    fall = 0.8**t
    assert ending(fall.numpy()) == "from above"
    assert ending(-fall.numpy()) == "from below"
    assert ending(((-1) ** t * fall).numpy()) == "both sides"
    assert ending(torch.where(t > 100, torch.nan, fall).numpy()) == "diverges"
    assert ending((torch.sin(t) + 0.5).numpy()) == "still moving"
    told = torch.cat([torch.tensor([-0.1, -0.5, 0.3, -0.2, 0.1]), -0.05 * fall])
    assert features(told.numpy()) == (True, True, True, True)


def test_the_exact_map_is_gradient_descent():
    assert agreements(HIGH_RATES)[-1] == "agrees"


def test_the_posters_formula_by_hand():
    # w = v = 1, x = 2, y = 0: f = 2, H = [[4, 8], [8, 4]], so 12; the poster has 4 + sqrt(0 + 0 + 4 * 4) / 2... = 6.
    one, x = torch.ones(1), torch.tensor([2.0])
    assert poster(one, one, x, 0 * x) == pytest.approx(6.0)
