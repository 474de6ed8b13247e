"""Balanced minima, predicted from data, against the actual network: Hessian, gradient, loss, and training."""

from itertools import pairwise

import pytest
import torch
from deep_nets import datasets, dense_ggn, dense_hessian, flatten, forward
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_eigenbasis, assert_same_spectrum
from strategies import normal, pick, random_stream, seeds
from torch.func import grad
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.balanced import balanced_ggn, balanced_minimum
from eigenscape.theory.chain import with_ones
from eigenscape.theory.labels import (
    balanced_white,
    class_proportions,
    one_hot,
    sharpness_from_labels,
    sharpness_from_proportions,
    two_layer_white_ggn,
)
from eigenscape.theory.whitening import sample_balanced_weights, white_scale, whiten

BATCH = 25
DTYPE = torch.float64
WIDE = [
    (2, 2),
    (1, 1, 1),
    (3, 2, 2),
    (2, 3, 3),
    (3, 5, 1),
    (1, 2, 3),
    (2, 3, 2, 2),
    (3, 2, 4, 2),
    (3, 1, 2, 1),
    (1, 2, 2, 1, 2),
]
NARROW = [(2, 1, 2), (3, 1, 3), (3, 2, 3), (2, 1, 3, 2), (3, 2, 2, 3), (2, 2, 1, 2, 2)]

TARGETS = {
    "generic": lambda Y, X: Y,
    "zero": lambda Y, X: 0 * Y,
    "rank one": lambda Y, X: Y[:, :1] @ Y[:1],
    "fitted": lambda Y, X: X @ Y[: X.shape[1]] if len(Y) >= X.shape[1] else Y,
    "one output": lambda Y, X: Y * (torch.arange(Y.shape[1]) == 0),
    "equal singular values": lambda Y, X: torch.linalg.qr(Y).Q if len(Y) >= Y.shape[1] else Y,
    "large": lambda Y, X: 10 * Y,
    "small": lambda Y, X: 1e-3 * Y,
}
MAPS = {
    "generic": lambda W: W,
    "zero": lambda W: 0 * W,
    "rank one": lambda W: W[:, :1] @ W[:1],
    "equal singular values": lambda W: torch.eye(*W.shape, dtype=DTYPE),
    "whole numbers": lambda W: W.round(),
    "large": lambda W: 10 * W,
    "nearly rank one": lambda W: W[:, :1] @ W[:1] + 1e-6 * W,
}


def problems(widths, n, seed):
    g = random_stream(seed)
    X = datasets(n, widths[0], BATCH, g)
    Y = torch.stack([pick(TARGETS, g)(normal(g, n, widths[-1]), x) for x in X])
    return X, Y, g


def minimum(widths, X, Y, **options):
    return balanced_minimum(X, Y, len(widths) - 1, width=list(widths[1:-1]), **options)


def gradients(widths, weights, X, Y):
    def loss(theta, x, y):
        return (forward(widths, (), theta, x) - y).square().sum() / (2 * len(x))

    return torch.stack([grad(loss)(t, x, y) for t, x, y in zip(flatten(weights), X, Y)])


def check_minimum(widths, n, seed):
    X, Y, g = problems(widths, n, seed)
    found = minimum(widths, X, Y, generator=g)
    H = dense_hessian(widths, (), found.weights, None, X, Y)
    assert found.exact.all()
    assert_same_spectrum(found.spectrum, H)
    assert_close(found.sharpness, torch.linalg.eigvalsh(H)[:, -1], rtol=1e-11, atol=1e-11)


@settings(max_examples=90, deadline=None)
@given(st.sampled_from(WIDE), st.sampled_from([1, 2, 3, 7]), seeds())
def test_spectrum_of_the_full_hessian_from_data_alone(widths, n, seed):
    check_minimum(widths, n, seed)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(WIDE), st.sampled_from([1, 2, 3, 7]), seeds())
def test_spectrum_of_the_full_hessian_from_data_alone_many(widths, n, seed):
    check_minimum(widths, n, seed)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(WIDE + NARROW), st.sampled_from([2, 7]), seeds())
@pytest.mark.filterwarnings("ignore:a width of")
def test_the_point_is_balanced_and_stationary_and_reaches_the_least_loss(widths, n, seed):
    X, Y, g = problems(widths, n, seed)
    found = minimum(widths, X, Y, generator=g)
    for W, V in zip(found.weights[1:], found.weights):
        assert_close(W.mT @ W, V @ V.mT, rtol=1e-12, atol=1e-12 * V.abs().max().square().item())
    slopes, size = gradients(widths, found.weights, X, Y), X.abs().amax().square() * (1 + flatten(found.weights).abs().amax())
    assert slopes.abs().amax() <= 1e-11 * size * (1 + Y.abs().amax())
    # The least loss of rank k: what the inputs do not reach, and the singular values of the reachable targets beyond k.
    U, s, _ = torch.linalg.svd(X, full_matrices=False)
    Q = U * (s > 1e-11 * s[..., :1]).unsqueeze(-2)
    lost = torch.linalg.svdvals(Q.mT @ Y)[..., min(widths) :].square().sum(-1)
    least = ((Y - Q @ (Q.mT @ Y)).square().sum((-2, -1)) + lost) / (2 * n)
    assert_close(found.loss, least, rtol=1e-10, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(NARROW), seeds())
@pytest.mark.filterwarnings("ignore:a width of")
def test_bottleneck_spectrum_is_the_gauss_newton_matrix(widths, seed):
    X, Y, _ = problems(widths, 7, seed)
    found = minimum(widths, X, Y)
    assert_same_spectrum(found.spectrum, dense_ggn(widths, (), found.weights, None, X))
    H = dense_hessian(widths, (), found.weights, None, X, Y)
    gap = (torch.linalg.eigvalsh(H) - found.spectrum.expand()).abs().amax(-1)
    assert (gap[found.exact] <= 1e-10 * found.sharpness[found.exact].clamp(min=1)).all()


def test_a_bottleneck_warns_and_says_so():
    g = random_stream(0)
    X, Y = normal(g, 9, 3), normal(g, 9, 3)
    with pytest.warns(RuntimeWarning, match=r"width of 1 is below the rank .* Gauss-Newton .*; widen the layers"):
        found = balanced_minimum(X, Y, 3, width=1)
    assert not found.exact
    assert "not of the Hessian" in found.status
    H = dense_hessian((3, 1, 1, 3), (), [W[None] for W in found.weights], None, X[None], Y[None])
    assert (torch.linalg.eigvalsh(H)[0] - found.spectrum.expand()).abs().max() > 1e-3


@pytest.mark.parametrize("widths", [(2, 3, 2), (3, 3, 4), (2, 2, 2, 2), (3, 4, 2)])
def test_eigenvectors(widths):
    g = random_stream(3)
    for kind in ("generic", "rank one", "equal singular values"):
        X = normal(g, 6, widths[0])
        Y = TARGETS[kind](normal(g, 6, widths[-1]), X)
        found = minimum(widths, X, Y, generator=g)
        H = dense_hessian(widths, (), [W[None] for W in found.weights], None, X[None], Y[None])[0]
        assert_eigenbasis(found.spectrum, H)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(WIDE), st.sampled_from([1, 2, 3, 7]), seeds())
def test_balanced_factorisations_of_any_map(widths, n, seed):
    g = random_stream(seed)
    X = datasets(n, widths[0], BATCH, g)
    W = torch.stack([pick(MAPS, g)(normal(g, widths[-1], widths[0])) for _ in range(BATCH)])
    spectrum = balanced_ggn(W, X, len(widths) - 1, width=list(widths[1:-1]))
    U, s, Vh = torch.linalg.svd(W, full_matrices=False)
    q = min(widths)
    t = torch.where(s > 1e-11 * s[:, :1], s, 0.0)[:, :q].pow(1 / (len(widths) - 1))
    frames = [Vh[:, :q].mT, *(torch.linalg.qr(normal(g, BATCH, d, q)).Q for d in widths[1:-1]), U[..., :q]]
    weights = [(B * t[:, None]) @ A.mT for A, B in pairwise(frames)]
    assert_same_spectrum(spectrum, dense_ggn(widths, (), weights, None, X))


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(WIDE + NARROW), st.floats(0.1, 4), st.sets(st.integers(0, 2)), seeds())
def test_white_inputs_with_sampled_balanced_weights(widths, s2, dead, seed):
    g = random_stream(seed)
    t = normal(g, BATCH, min(widths)).abs()
    t[:, [i for i in dead if i < t.shape[-1]]] = 0
    t[::3] = t[::3].round()  # repeated values
    weights = sample_balanced_weights(t, widths, generator=g)
    X = whiten(normal(g, BATCH, 9, widths[0]), s2)
    spectrum = balanced_white(t, len(widths) - 1, inputs=widths[0], outputs=widths[-1], width=list(widths[1:-1]), s2=s2)
    assert_same_spectrum(spectrum, dense_ggn(widths, (), weights, None, X))
    if len(widths) > 2:
        r = (t > 0).sum(-1)
        assert (spectrum.multiplicities[:, :-1].sum(-1) == r * (widths[0] + widths[-1] - r)).all()


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([w for w in WIDE + NARROW if len(w) == 3]), st.floats(0.1, 4), seeds())
def test_two_layers_and_white_inputs(widths, s2, seed):
    g = random_stream(seed)
    W, V = (torch.stack([pick(MAPS, g)(normal(g, b, a)) for _ in range(BATCH)]) for a, b in (widths[1:], widths[:2]))
    X = whiten(normal(g, BATCH, 6, widths[0]), s2)
    G = dense_ggn(widths, (), [V, W], None, X)
    spectrum = two_layer_white_ggn(W, V, s2=s2)
    assert_same_spectrum(spectrum, G)
    top = s2 * (torch.linalg.matrix_norm(W, 2).square() + torch.linalg.matrix_norm(V, 2).square())
    assert_close(spectrum.max, top, rtol=1e-12, atol=1e-12)
    alone = two_layer_white_ggn(W[0], V[0], s2=s2)
    assert_eigenbasis(alone, G[0])


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [5, 40])
def test_sharpness_from_labels_is_that_of_the_trained_point_and_proportions_bound_it(depth, n):
    g = random_stream(depth)
    X = whiten(normal(g, n, 5), 1.7)
    labels = (torch.rand(n, generator=g) * 3).long()
    labels[0] = 2
    found = sharpness_from_labels(X, labels, depth)
    assert_close(found, balanced_minimum(X, one_hot(labels), depth).sharpness, rtol=1e-12, atol=0)
    bound = sharpness_from_proportions(class_proportions(labels), depth, s2=white_scale(X))
    assert found <= bound * (1 + 1e-12)
    if n == 5:  # as many samples as inputs: the labels are interpolated
        assert_close(found, bound, rtol=1e-12, atol=0)


def test_proportions_are_the_eigenvalues_of_one_hot_labels():
    labels = torch.tensor([0, 1, 1, 3, 3, 3])
    Y = one_hot(labels)
    assert_close(torch.linalg.eigvalsh(Y.T @ Y / 6), class_proportions(labels).sort().values)


def test_gradient_descent_from_a_small_balanced_start_arrives():
    g = random_stream(4)
    X, noise = normal(g, 30, 3) @ torch.diag(torch.tensor([1.5, 1.0, 0.7], dtype=DTYPE)), normal(g, 30, 2)
    Y = X @ normal(g, 3, 2) + 0.5 * noise
    predicted = balanced_minimum(X, Y, 3)
    weights = sample_balanced_weights(torch.full((2,), 0.3, dtype=DTYPE), [3, 2, 2, 2], generator=g)
    Sxx, Syx, rate = X.T @ X / 30, Y.T @ X / 30, 0.04 / float(predicted.sharpness)
    for _ in range(5_000):
        A, B, C = weights
        E = C @ B @ A @ Sxx - Syx
        weights = [A - rate * (C @ B).T @ E, B - rate * C.T @ E @ A.T, C - rate * E @ (B @ A).T]
    H = dense_hessian((3, 2, 2, 2), (), [W[None] for W in weights], None, X[None], Y[None])[0]
    assert_close(torch.linalg.eigvalsh(H)[-1], predicted.sharpness, rtol=5e-3, atol=0)


def test_a_bias_of_the_first_layer_is_a_column_of_ones():
    g = random_stream(5)
    X, Y = normal(g, 20, 2) + 1, normal(g, 20, 2)
    found = balanced_minimum(with_ones(X), Y, 2)
    A, W = found.weights
    H = dense_hessian((2, 2, 2), (0,), [A[None, :, :2], W[None]], [A[None, :, 2], None], X[None], Y[None])[0]
    assert_close(torch.linalg.eigvalsh(H), found.spectrum.expand(), rtol=0, atol=1e-11)


def test_sharpness_can_be_differentiated_by_the_data():
    g = random_stream(6)
    inputs = [normal(g, 6, 3).requires_grad_(), normal(g, 6, 2).requires_grad_()]
    for depth in (1, 2, 3):
        assert torch.autograd.gradcheck(lambda X, Y, d=depth: balanced_minimum(X, Y, d).sharpness, inputs, atol=1e-6)


def test_leading_axes_broadcast():
    g = random_stream(7)
    X, Y = normal(g, 4, 1, 6, 3), normal(g, 5, 6, 2)
    together = balanced_minimum(X, Y, 3)
    assert together.sharpness.shape == (4, 5)
    assert_close(together.sharpness[2, 3], balanced_minimum(X[2, 0], Y[3], 3).sharpness)


@given(st.integers(1, 4), st.integers(0, 3), st.floats(0.1, 5), seeds())
@settings(max_examples=30, deadline=None)
def test_whitened_inputs_are_white_and_span_the_same_space(D, extra, s2, seed):
    X = normal(random_stream(seed), D + extra, D)
    white = whiten(X, s2)
    assert_close(white_scale(white), torch.tensor(s2, dtype=DTYPE))
    assert_close(white @ torch.linalg.lstsq(white, X).solution, X, rtol=1e-8, atol=1e-8)
    assert (white[:, 0] @ X[:, 0]) > 0


eye = torch.eye(2, dtype=DTYPE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: balanced_minimum(eye, eye, 0), r"depth is 0; expected the number of layers, 1 or more"),
        (lambda: balanced_minimum(eye, eye, 3, width=[2]), r"width is \[2\]; expected a positive width, or 2 of them"),
        (lambda: balanced_minimum(eye, eye[:1], 2), r"Y has shape \(1, 2\); expected .* with n = 2 as in X"),
        (lambda: balanced_ggn(eye, eye, 2, width=1), r"width is 1 for a map of rank 2; expected at least its rank"),
        (lambda: whiten(torch.ones(2, 3)), r"X has 2 samples of 3 inputs; expected at least as many samples"),
        (lambda: whiten(torch.ones(3, 2)), r"some inputs are linear combinations of others"),
        (lambda: whiten(eye, s2=0.0), r"s2 is 0.0; expected a positive second moment"),
        (lambda: sharpness_from_labels(torch.diag(torch.tensor([1.0, 2.0])), eye, 2), r"X is not white: .* whiten\(X\)"),
        (lambda: sharpness_from_proportions(torch.tensor([0.5, 0.6]), 2), r"proportions are negative or do not sum to 1"),
        (lambda: one_hot(torch.tensor([0, 5]), classes=3), r"labels hold class 5; expected classes from 0 to 2"),
        (lambda: one_hot(torch.tensor([0, -1])), r"labels hold class -1; expected classes from 0\."),
        (lambda: one_hot(torch.tensor([0.5])), r"labels are dtype torch.float32, shape \(1,\); expected integer classes"),
        (lambda: balanced_white(torch.ones(3), 2, inputs=2, outputs=4), r"3 singular values came for widths \[2, 2, 4\]"),
        (lambda: sample_balanced_weights(torch.ones(3), [2, 4]), r"widths are \[2, 4\] for 3 singular values"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(TheoryError, match=message):
        call()
