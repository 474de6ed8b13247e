"""Gauss-Newton spectra of deep linear networks against the Jacobian, at every degenerate point."""

import pytest
import torch
from deep_nets import biased_layers, datasets, dense_ggn, dense_hessian, networks, samples, widths
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_eigenbasis, assert_same_spectrum
from strategies import normal, random_stream, seeds
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.deep_linear import deep_linear_bounds, deep_linear_ggn, deep_linear_trace

BATCH = 25
DTYPE = torch.float64


@st.composite
def shapes(draw):
    chosen = draw(widths)
    return chosen, draw(st.sampled_from([(), draw(biased_layers(chosen))]))


def draw(shape, n, seed, batch=BATCH):
    g = random_stream(seed)
    weights, biases = networks(*shape, batch, g)
    return weights, biases, datasets(n, shape[0][0], batch, g)


def member(i, weights, biases, X):
    own = None if biases is None else [b if b is None else b[i] for b in biases]
    return [W[i] for W in weights], own, X[i]


def check_spectrum(shape, n, seed):
    weights, biases, X = draw(shape, n, seed)
    spectrum = deep_linear_ggn(weights, X, biases=biases)
    assert_same_spectrum(spectrum, dense_ggn(*shape, weights, biases, X))
    assert (spectrum.values[spectrum.multiplicities > 0] >= 0).all()


def check_eigenvectors(shape, n, seed):
    drawn = draw(shape, n, seed, batch=4)
    for i, G in enumerate(dense_ggn(*shape, *drawn)):
        weights, biases, X = member(i, *drawn)
        assert_eigenbasis(deep_linear_ggn(weights, X, biases=biases), G)


@settings(max_examples=100, deadline=None)
@given(shapes(), samples, seeds())
def test_spectrum(shape, n, seed):
    check_spectrum(shape, n, seed)


@settings(max_examples=40, deadline=None)
@given(shapes(), samples, seeds())
def test_eigenvectors(shape, n, seed):
    check_eigenvectors(shape, n, seed)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(shapes(), samples, seeds())
def test_spectrum_and_eigenvectors_many(shape, n, seed):
    check_spectrum(shape, n, seed)
    check_eigenvectors(shape, n, seed)


@settings(max_examples=50, deadline=None)
@given(shapes(), samples, seeds())
def test_trace_and_bounds_hold_for_the_full_hessian_at_any_loss(shape, n, seed):
    weights, biases, X = draw(shape, n, seed)
    Y = normal(random_stream(seed), BATCH, n, shape[0][-1])
    H, spectrum = dense_hessian(*shape, weights, biases, X, Y), deep_linear_ggn(weights, X, biases=biases)
    trace, (low, high) = deep_linear_trace(weights, X, biases=biases), deep_linear_bounds(weights, X, biases=biases)
    size = 1e-12 * spectrum.max.clamp(min=1)
    assert_close(trace, H.diagonal(dim1=-2, dim2=-1).sum(-1), rtol=1e-12, atol=1e-12)
    assert_close(trace, spectrum.trace, rtol=1e-11, atol=1e-11)
    assert (low <= spectrum.max + size).all()
    assert (spectrum.max <= high + size).all()
    assert (low <= torch.linalg.eigvalsh(H)[:, -1] + size).all()


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([(2, 3, 2), (3, 2, 4), (2, 3, 3, 2), (3, 2, 2, 4)]), seeds())
def test_hessian_where_the_residual_is_orthogonal_to_the_inputs(widths, seed):
    """H = GGN needs `mean (f - y) x^T = 0`, not a small loss."""
    g = random_stream(seed)
    weights, _ = networks(widths, (), BATCH, g)
    X = datasets(7, widths[0], BATCH, g)
    noise = 3 * normal(g, BATCH, 7, widths[-1])
    fit = X
    for W in weights:
        fit = fit @ W.mT
    U, s, _ = torch.linalg.svd(X)
    reached = U[..., : s.shape[-1]] * (s > 1e-12 * s[..., :1]).unsqueeze(-2)
    Y = fit + noise - reached @ (reached.mT @ noise)
    assert_same_spectrum(deep_linear_ggn(weights, X), dense_hessian(widths, (), weights, None, X, Y))


def test_leading_axes_broadcast_between_layers_and_data():
    g = random_stream(0)
    V, M, W, X = normal(g, 5, 1, 3, 2), normal(g, 3, 3), normal(g, 4, 4, 3), normal(g, 6, 2)
    together = deep_linear_ggn([V, M, W], X)
    alone = deep_linear_ggn([V[3, 0], M, W[1]], X)
    assert together.values.shape[:-1] == (5, 4)
    assert_close(together.values[3, 1], alone.values)
    assert together.multiplicities[3, 1].equal(alone.multiplicities)
    assert deep_linear_ggn([W], normal(g, 6, 3)).expand().shape == (4, 12)


def test_eigenvectors_of_a_batch_are_those_of_its_members():
    g = random_stream(1)
    weights, X = [normal(g, 3, 2, 3), normal(g, 3, 4, 2)], normal(g, 5, 3)
    G = dense_ggn((3, 2, 4), (), weights, None, X.expand(3, -1, -1))
    assert_eigenbasis(deep_linear_ggn(weights, X), G)


@pytest.mark.parametrize("widths", [(2, 3, 2), (3, 2, 4), (2, 2, 2, 2), (2, 3, 1, 3), (2, 2)])
def test_differentiable_by_weights_and_data(widths):
    g = random_stream(2)
    weights, _ = networks(widths, (), 1, g)
    inputs = [normal(g, *W.shape[1:]).requires_grad_() for W in weights] + [normal(g, 5, widths[0]).requires_grad_()]

    def extremes(*args):
        spectrum = deep_linear_ggn(args[:-1], args[-1])
        return spectrum.max, spectrum.trace

    assert torch.autograd.gradcheck(extremes, inputs, atol=1e-6)


def test_float32_is_promoted():
    assert deep_linear_ggn([torch.ones(1, 1)], torch.ones(3, 1)).values.dtype == DTYPE


one = torch.ones(1, 1, dtype=DTYPE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: deep_linear_ggn([], one), r"list of weights is empty; expected at least one matrix: \[W_1, ..., W_L\]"),
        (
            lambda: deep_linear_ggn([one, torch.ones(2, 3)], one),
            r"W_2 has shape \(2, 3\); expected \(..., d_2, d_1\) with d_1 = 1",
        ),
        (lambda: deep_linear_ggn([one], torch.ones(2, 3)), r"W_1 has shape \(1, 1\); expected .* with d_0 = 3 as in X"),
        (lambda: deep_linear_ggn([one], torch.ones(0, 1)), r"X has shape \(0, 1\), which is empty along n"),
        (lambda: deep_linear_ggn([one * torch.nan], one), r"W_1 holds NaN or infinity"),
        (lambda: deep_linear_ggn([one], one, biases=[]), r"0 biases came with 1 weights; expected one each"),
        (lambda: deep_linear_bounds([one], one, biases=[torch.ones(2)]), r"b_1 has shape \(2,\); expected"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(TheoryError, match=message):
        call()
