"""The figures of [data]: measured on small images, drawn, and judged as numbers demand."""

import pytest
import torch
from drawn import agreements, check_figure, table

from eigenscape.core import DataError
from eigenscape.ensembles import initialise, sharpness, train
from eigenscape.experiments.machine import Rows
from eigenscape.experiments.papers.data import FIGURES, along_figures, counts, depth, pictures, spectrum, training
from eigenscape.experiments.papers.data.dense import chain_eigenvalues
from eigenscape.experiments.papers.data.pictures import NOISE, RAW, WHITE, Subset, samples
from eigenscape.theory import balanced_minimum, class_proportions, sharpness_from_proportions

NAMED = {figure.id: figure for figure in FIGURES}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.id)
def test_every_figure_is_measured_drawn_and_judged(figure):
    check_figure(figure)


def test_what_is_exact_agrees_and_what_is_not_does_not():
    assert agreements(spectrum.FIGURE) == ["partly", "agrees", "agrees"]
    assert agreements(depth.FIGURE) == ["agrees", "partly"]
    assert agreements(counts.FIGURE) == ["disagrees", "disagrees", "agrees", "agrees"]
    trace, top = along_figures.FIGURES
    assert agreements(trace) == ["agrees"]
    assert agreements(top)[:2] == ["agrees", "agrees"]
    assert agreements(NAMED["data/fig2-left"])[1:] == ["partly", "cannot be judged"]


def test_a_dense_hessian_by_hand():
    # f = w2 w1 x on x = 1: H = [[w2^2, 2 w1 w2 - y], [., w1^2]].
    one = torch.ones(1, 1, dtype=torch.float64)
    values = chain_eigenvalues([2 * one, one], one, 0 * one)
    assert torch.allclose(values, torch.linalg.eigvalsh(torch.tensor([[1.0, 4.0], [4.0, 4.0]]).double()))


def test_white_inputs_are_white_whatever_the_rank():
    X, Y = samples(Subset("mnist-5k", 180, 14, 0.5), WHITE)
    raw, _ = samples(Subset("mnist-5k", 180, 14, 0.5), RAW)
    assert X.shape[-1] == torch.linalg.matrix_rank(raw, rtol=1e-10) < raw.shape[-1]
    assert torch.allclose(X.T @ X / len(X), torch.eye(X.shape[-1], dtype=X.dtype), atol=1e-12)
    assert Y.mean(0).max() == 0.5


def test_as_many_features_as_samples_make_the_printed_formula_exact():
    for n, agrees in ((36, True), (360, False)):
        X, Y = samples(Subset(NOISE, n, 7, 0.5), WHITE)
        printed = float(sharpness_from_proportions(class_proportions(Y.argmax(-1), 10), 4))
        exact = float(balanced_minimum(X, Y, 4, width=64).sharpness)
        assert (abs(exact / printed - 1) < 1e-9) == agrees
        assert exact <= printed * (1 + 1e-9)


def test_descent_in_the_basis_of_what_is_seen_is_descent():
    X, Y = samples(Subset(NOISE, 90, 6, 0.5), WHITE)
    nets, _ = initialise("sp", [36, 8, 8, 10], 1, torch.Generator().manual_seed(0))
    small, narrow = training.narrowed(X, Y, nets)
    assert small.shape[-1] == 18
    runs = [train(e, A, Y, steps=200, lr=0.05) for e, A in ((nets, X), (narrow, small))]
    tops = [sharpness(run.ensemble, A, Y, tol=1e-10).values.item() for run, A in zip(runs, (X, small))]
    assert runs[0].losses[0, -1].item() == pytest.approx(runs[1].losses[0, -1].item(), rel=1e-10)
    assert tops[0] == pytest.approx(tops[1], rel=1e-8)
    dense = chain_eigenvalues([W[0] for W in runs[1].ensemble.weights], small, Y)[-1]
    assert tops[1] == pytest.approx(float(dense), rel=1e-8)


def test_trained_numbers_are_those_of_a_plain_loop():
    cell = training.Trained("mnist-5k", 90, 4, 0.5, inputs=RAW, steps=100)
    X, Y = samples(cell.cut, RAW)
    nets, _ = initialise("balanced", [X.shape[-1], 64, 64, 64, 10], 1, training.stream(cell))
    weights = [W[0].clone().requires_grad_() for W in nets.weights]

    def loss():
        return (torch.linalg.multi_dot([X, *(W.T for W in weights)]) - Y).square().sum() / (2 * len(X))

    for _ in range(cell.steps):
        for W, g in zip(weights, torch.autograd.grad(loss(), weights)):
            W.data -= cell.lr * g
    row = training.measure(cell, torch.device("cpu"))[0]
    assert row["loss"] == pytest.approx(loss().item(), rel=1e-9)
    assert row["imbalance"] < 1e-2


def test_a_set_that_is_not_here_says_so_and_the_others_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("EIGENSCAPE_DATA", str(tmp_path))
    pictures._published.cache_clear()
    with pytest.raises(DataError, match="Type 'eigenscape data get cifar-10'"):
        training.measure(training.Trained("cifar-10", 100, 8, 0.1), torch.device("cpu"))
    names = {cell.images for _, cell in NAMED["data/fig1-right"].cells("quick")}
    assert names == {"mnist-5k", "mnist", "fashion-mnist", "cifar-10"}


def test_verdicts_follow_the_numbers():
    figure = NAMED["data/fig1-right"]
    rows = table(figure)
    printed = Rows([row | {"sharpness": row["printed"]} for row in rows])
    assert [str(v.agreement) for v in figure.claims(printed)][0::2] == ["agrees", "agrees"]
    falling = Rows([row | {"sharpness": 1 / row["largest"]} for row in rows])
    assert [str(v.agreement) for v in figure.claims(falling)] == ["disagrees"] * 3
