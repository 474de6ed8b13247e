"""Networks whose inputs or outputs own their neurons, against autograd: any data, and decorrelated inputs in closed form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_batch_is_loop, assert_eigenbasis, assert_same_spectrum, hessians
from strategies import inputs, normal, pairs, random_stream, seeds, targets
from torch.testing import assert_close

import eigenscape as es
from eigenscape.core import TheoryError
from eigenscape.theory import block_diagonal_inputs, block_diagonal_outputs, diagonal_linear, diagonal_linear_mixture

BATCH = 25  # times 100 examples: 2,500 cases per closed form
groups = st.sampled_from([1, 2, 3])
widths = st.sampled_from([1, 2, 4])
samples = st.sampled_from([1, 2, 6])


def weights(D, m, g):
    """D pairs per member, each in a relation of its own."""
    return (t.reshape(BATCH, D, m) for t in pairs(BATCH * D, m, g))


def correlated(D, n, g):
    """Each coordinate of a kind of its own, so that some are always 0 and some equal."""
    X = inputs(BATCH * D, n, g).reshape(BATCH, D, n).mT
    X[::5, :, -1] = X[::5, :, 0]
    return X


def decorrelated(D, n, g):
    """Orthogonal columns, uncentred; some of them zero."""
    Q = torch.linalg.qr(normal(g, BATCH, max(n, D), D)).Q
    Q[::2] = torch.eye(max(n, D), D, dtype=torch.float64)
    return Q * normal(g, BATCH, 1, D) * (torch.rand(BATCH, 1, D, generator=g) < 0.8)


def loss_of_inputs(theta, X, y):
    v, w = theta.reshape(X.shape[-1], 2, -1).unbind(1)
    return 0.5 * (X @ (w * v).sum(-1) - y).square().mean()


def loss_of_outputs(theta, x, Y):
    v, w = theta.reshape(Y.shape[-1], 2, -1).unbind(1)
    return 0.5 * (x[:, None] * (w * v).sum(-1) - Y).square().sum(-1).mean()


def loss_of_mixture(theta, X, y):
    v, w = theta.reshape(2, -1, X.shape[-1])
    return 0.5 * (X @ (w * v).sum(0) - y).square().mean()


def flat(w, v):
    """(v_1; w_1; v_2; w_2; ...) for each member."""
    return torch.stack([v, w], -2).flatten(1)


@settings(max_examples=100, deadline=None)
@given(groups, widths, samples, seeds())
def test_inputs_for_any_data(D, m, n, seed):
    g = random_stream(seed)
    w, v = weights(D, m, g)
    X = correlated(D, n, g)
    y = targets((X @ (w * v).sum(-1, keepdim=True)).squeeze(-1), g)
    H, spectrum = hessians(loss_of_inputs, flat(w, v), X, y), block_diagonal_inputs(w, v, X, y)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=100, deadline=None)
@given(groups, widths, samples, seeds())
def test_decorrelated_inputs_are_separate_networks(D, m, n, seed):
    g = random_stream(seed)
    w, v = weights(D, m, g)
    X = decorrelated(D, n, g)
    y = targets((X @ (w * v).sum(-1, keepdim=True)).squeeze(-1), g)
    H, spectrum = hessians(loss_of_inputs, flat(w, v), X, y), block_diagonal_inputs(w, v, X, y, strict=True)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)
    alone = [es.theory.scalar_linear(w[:, d], v[:, d], X[..., d], y).expand() for d in range(D)]
    together = torch.cat(alone, -1).sort(-1).values
    assert_close(spectrum.expand(), together, atol=1e-12 * float(together.abs().max().clamp(min=1)), rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(groups, widths, samples, seeds())
def test_outputs(K, m, n, seed):
    g = random_stream(seed)
    w, v = weights(K, m, g)
    x = inputs(BATCH, n, g)
    Y = targets(x.unsqueeze(-1) * (w * v).sum(-1).unsqueeze(-2), g)
    H, spectrum = hessians(loss_of_outputs, flat(w, v), x, Y), block_diagonal_outputs(w, v, x, Y)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=100, deadline=None)
@given(groups, widths, samples, seeds())
def test_mixtures_of_diagonal_networks(D, m, n, seed):
    g = random_stream(seed)
    w, v = (t.mT for t in weights(D, m, g))
    X = correlated(D, n, g)
    y = targets((X @ (w * v).sum(-2).unsqueeze(-1)).squeeze(-1), g)
    H = hessians(loss_of_mixture, torch.cat([v.flatten(1), w.flatten(1)], -1), X, y)
    spectrum = diagonal_linear_mixture(w, v, X, y)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)
    if m == 1:
        single = diagonal_linear(w[:, 0], v[:, 0], X, y)
        assert single.values.equal(spectrum.values)
        assert single.labels == ("outlier",) * 2 * D


def test_correlation_is_what_the_corollary_leaves_out():
    """Where inputs are correlated, the union of scalar networks is not the spectrum; the coupled one is."""
    g = random_stream(1)
    w, v, X, y = normal(g, 2, 3), normal(g, 2, 3), normal(g, 5, 2), normal(g, 5)
    H = hessians(loss_of_inputs, flat(w[None], v[None]), X[None], y[None])[0]
    union = torch.cat([es.theory.scalar_linear(w[d], v[d], X[:, d], y).expand() for d in range(2)]).sort().values
    assert (union - torch.linalg.eigvalsh(H)).abs().max() > 0.1
    assert_same_spectrum(block_diagonal_inputs(w, v, X, y), H)


def test_strict_refuses_correlated_inputs_unless_the_tolerance_allows():
    X = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    with pytest.raises(TheoryError, match=r"mean x_d x_e reaches 0\.51 of the root mean squares, where strict=True asks for 0"):
        block_diagonal_inputs(torch.ones(2, 1), torch.ones(2, 1), X, torch.ones(2), strict=True)
    nearly = torch.tensor([[1.0, 1e-6], [0.0, 1.0]])
    block_diagonal_inputs(torch.ones(2, 1), torch.ones(2, 1), nearly, torch.ones(2), strict=True, tol=1e-5)
    with pytest.raises(TheoryError, match="expected decorrelated inputs, or strict=False"):
        block_diagonal_inputs(torch.ones(2, 1), torch.ones(2, 1), nearly, torch.ones(2), strict=True)


@pytest.mark.parametrize(
    ("function", "change", "sentence"),
    [
        (block_diagonal_inputs, {"X": torch.ones(4, 3)}, r"X has shape \(4, 3\); expected \(..., n, D\) with D = 2 as in w\."),
        (block_diagonal_inputs, {"y": torch.ones(0)}, r"y has shape \(0,\), which is empty along n"),
        (diagonal_linear_mixture, {"v": torch.ones(3, 2)}, r"v has shape \(3, 2\); expected \(..., m, D\) with m = 2"),
        (diagonal_linear, {"w": torch.tensor([1.0, torch.nan]), "v": torch.ones(2)}, "w holds NaN or infinity"),
    ],
)
def test_refusals(function, change, sentence):
    good = {"w": torch.ones(2, 2), "v": torch.ones(2, 2), "X": torch.ones(4, 2), "y": torch.ones(4)}
    with pytest.raises(TheoryError, match=sentence):
        function(**(good | change))


def test_outputs_refuse_what_does_not_fit():
    with pytest.raises(
        TheoryError, match=r"Y has shape \(4, 3\); expected \(..., n, K\) with n = 4 as in x and K = 2 as in w\."
    ):
        block_diagonal_outputs(torch.ones(2, 1), torch.ones(2, 1), torch.ones(4), torch.ones(4, 3))


def test_batch_is_loop():
    g = random_stream(2)
    w, v, X, y = normal(g, 4, 2, 3), normal(g, 4, 2, 3), normal(g, 4, 5, 2), normal(g, 4, 5)
    assert_batch_is_loop(block_diagonal_inputs, w, v, X, y)
    assert_batch_is_loop(block_diagonal_outputs, w, v, y, X)
    assert_batch_is_loop(diagonal_linear_mixture, w.mT, v.mT, X, y)


def test_gradients():
    g = random_stream(3)
    w, v, X, y = (t.requires_grad_() for t in (normal(g, 2, 3), normal(g, 2, 3), normal(g, 5, 2), normal(g, 5)))
    assert torch.autograd.gradcheck(lambda *a: block_diagonal_inputs(*a).values, (w, v, X, y))
    assert torch.autograd.gradcheck(lambda *a: block_diagonal_outputs(*a).values, (w, v, y, X))
    assert torch.autograd.gradgradcheck(lambda *a: diagonal_linear(*a).max, (w[:, 0], v[:, 0], X, y))


def test_width_costs_a_few_vectors():
    g = random_stream(4)
    w, v, z = normal(g, 2, 10**5), normal(g, 2, 10**5), normal(g, 4 * 10**5)
    spectrum = block_diagonal_inputs(w, v, normal(g, 5, 2), normal(g, 5))
    assert_close(sum(spectrum.project(i, z) for i in range(8)), z)
