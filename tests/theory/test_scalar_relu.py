"""The scalar ReLU network against autograd: empty cells, dead neurons, samples at 0."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_batch_is_loop, assert_eigenbasis, assert_eigenspaces, assert_same_spectrum, hessians
from strategies import inputs, normal, pairs, random_stream, seeds, targets
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.scalar import scalar_linear
from eigenscape.theory.scalar_relu import scalar_relu

BATCH = 25  # times 100 examples: 2,500 cases


def network(theta, x):
    v, w = theta.chunk(2)
    return w @ torch.relu(v[:, None] * x)


def loss(theta, x, y):
    return 0.5 * (network(theta, x) - y).square().mean()


def draw(m, n, seed):
    g = random_stream(seed)
    w, v = pairs(BATCH, m, g)
    x = inputs(BATCH, n, g)
    fit = torch.stack([network(torch.cat([a, b]), c) for a, b, c in zip(v, w, x)])
    return w, v, x, targets(fit, g)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 3, 6]), st.sampled_from([1, 2, 6]), seeds())
def test_spectrum_and_eigenvectors(m, n, seed):
    w, v, x, y = draw(m, n, seed)
    H = hessians(loss, torch.cat([v, w], -1), x, y)
    spectrum = scalar_relu(w, v, x, y)
    assert_same_spectrum(spectrum, H)
    assert_eigenspaces(spectrum, H)
    for i in range(2):
        assert_eigenbasis(scalar_relu(w[i], v[i], x[i], y[i]), H[i])


@pytest.mark.parametrize("positive", [0, 1, 2, 4])
@pytest.mark.parametrize("dead", [0, 1])
def test_every_way_to_fill_the_cells(positive, dead):
    g = random_stream(positive + 10 * dead)
    w, v, x, y = normal(g, 4), normal(g, 4).abs(), normal(g, 7), normal(g, 7)
    v[positive:] *= -1
    v[:dead] = 0
    H = hessians(loss, torch.cat([v, w])[None], x[None], y[None])[0]
    spectrum = scalar_relu(w, v, x, y)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)
    assert spectrum.multiplicities[-1] == 2 * dead
    assert spectrum.multiplicities[0] == (1 if positive > dead else 0)


def test_all_samples_on_one_side_leave_the_other_cell_flat():
    w, v, x, y = torch.ones(4), torch.tensor([1.0, 2.0, -1.0, -1.0]), torch.tensor([1.0, 3.0]), torch.tensor([0.0, 1.0])
    spectrum = scalar_relu(w, v, x, y)
    linear = scalar_linear(w[:2], v[:2], x, y)
    assert_close(spectrum.expand(), torch.cat([linear.expand(), torch.zeros(4, dtype=torch.float64)]).sort().values)


def test_cells_that_differ_within_a_batch():
    w, v, x, y = draw(4, 5, 2)
    spectrum = scalar_relu(w, v, x, y)
    assert_batch_is_loop(scalar_relu, w, v, x, y)
    with pytest.raises(
        TheoryError, match=r"the members of the batch have eigenspaces of dimensions \[.*\]; expected one for all"
    ):
        spectrum.eigenspace(4)


def test_gradients():
    g = random_stream(4)
    w, v, x, y = (normal(g, 2, 6).requires_grad_() for _ in range(4))
    assert torch.autograd.gradcheck(lambda *a: scalar_relu(*a).values, (w, v, x, y))
    assert torch.autograd.gradgradcheck(lambda *a: scalar_relu(*a).max, (w, v, x, y))


def test_a_million_neurons_cost_a_few_vectors():
    m = 10**6
    g = random_stream(1)
    w, v, z = normal(g, m), normal(g, m), normal(g, 2 * m)
    spectrum = scalar_relu(w, v, normal(g, 5), normal(g, 5))
    assert spectrum.n == 2 * m
    assert_close(sum(spectrum.project(i, z) for i in range(9)), z)


def test_refusal():
    with pytest.raises(TheoryError, match=r"v has shape \(3,\); expected \(..., m\) with m = 2 as in w\."):
        scalar_relu(torch.ones(2), torch.ones(3), torch.ones(1), torch.ones(1))
