"""The two-layer linear network against autograd: any sizes, data, loss and point."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_eigenbasis, assert_same_spectrum, hessians
from strategies import normal, random_stream, seeds
from torch.func import jacrev, vmap
from torch.testing import assert_close
from two_factor_cases import (
    DATA,
    FACTORS,
    biases,
    criterion,
    derivatives_of,
    factors,
    network_loss,
    samples,
    several,
    sizes,
    targets,
)

from eigenscape.core import TheoryError
from eigenscape.theory.factors import FactorLayout
from eigenscape.theory.two_layer import two_layer_linear, two_layer_linear_ggn
from eigenscape.theory.two_layer_bounds import input_factor, squared_error_ggn, two_layer_linear_bounds

BATCH = 40
losses = st.sampled_from(["mse", "cross_entropy", "quartic", "swish"])


def draw(size, with_bias, seed, batch=BATCH):
    """Weights, data and targets; biases are random where asked for."""
    (K, m, D, n), g = size, random_stream(seed)
    W, V = factors(batch, K, m, D, g)
    X = samples(batch, n, D, g)
    b = normal(g, batch, m) if with_bias[0] else None
    c = normal(g, batch, K) if with_bias[1] else None
    fit = X @ V.mT if b is None else X @ V.mT + b.unsqueeze(-2)
    fit = fit @ W.mT if c is None else fit @ W.mT + c.unsqueeze(-2)
    return W, V, X, targets(fit, X, g), {"hidden_bias": b, "output_bias": c}


def layout_of(W, V, bias):
    sizes = W.shape[-2], W.shape[-1], V.shape[-1]
    return FactorLayout(*sizes, bias["hidden_bias"] is not None, bias["output_bias"] is not None)


def flat(W, V, bias):
    parts = [V.flatten(-2), bias["hidden_bias"], W.flatten(-2), bias["output_bias"]]
    return torch.cat([p for p in parts if p is not None], -1)


def dense(W, V, X, Y, bias, loss="half_mse"):
    return hessians(network_loss(layout_of(W, V, bias), loss), flat(W, V, bias), X, Y)


def dense_ggn(W, V, X, Y, bias, loss="half_mse"):
    """`mean J_i^T l''_i J_i` with both factors by autograd."""
    network = network_loss(layout_of(W, V, bias), "outputs")

    def ggn(theta, X, Y):
        f, J = network(theta, X, Y), jacrev(network)(theta, X, Y)
        h = vmap(jacrev(jacrev(lambda f, y: criterion(loss)(f[None], y[None]))))(f, Y)
        return (J.mT @ (h @ J)).mean(0)

    return vmap(ggn)(flat(W, V, bias), X, Y)


def check_squared_errors(size, with_bias, seed):
    W, V, X, Y, bias = draw(size, with_bias, seed)
    H, spectrum = dense(W, V, X, Y, bias), two_layer_linear(W, V, X, Y, **bias)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


def check_any_loss(size, with_bias, name, seed):
    (K, _, _, n), g = size, random_stream(seed)
    W, V, X, Y, bias = draw(size, with_bias, seed)
    if name == "cross_entropy":
        classes, weights = torch.randint(K, (BATCH, n), generator=g), normal(g, BATCH, n, K)
        Y = [classes, weights.softmax(-1), weights.abs()][seed % 3]
    loss = derivatives_of(name) if name in ("quartic", "swish") else name
    spectrum = two_layer_linear(W, V, X, Y, loss=loss, **bias)
    H = dense(W, V, X, Y, bias, name)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=50, deadline=None)
@given(sizes, biases, seeds())
def test_squared_errors(size, with_bias, seed):
    check_squared_errors(size, with_bias, seed)


@settings(max_examples=50, deadline=None)
@given(sizes, biases, losses, seeds())
def test_any_loss(size, with_bias, name, seed):
    check_any_loss(size, with_bias, name, seed)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sizes, biases, seeds())
def test_squared_errors_in_eight_thousand_cases(size, with_bias, seed):
    check_squared_errors(size, with_bias, seed)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sizes, biases, losses, seeds())
def test_any_loss_in_eight_thousand_cases(size, with_bias, name, seed):
    check_any_loss(size, with_bias, name, seed)


@settings(max_examples=15, deadline=None)
@given(sizes, biases, seeds())
def test_gauss_newton(size, with_bias, seed):
    """Two routes to the same eigenvalues: the small matrix, and K problems of size D."""
    W, V, X, Y, bias = draw(size, with_bias, seed)
    G, spectrum = dense_ggn(W, V, X, Y, bias), two_layer_linear_ggn(W, V, X, Y, **bias)
    assert_same_spectrum(spectrum, G)
    assert_eigenbasis(spectrum, G)
    assert_same_spectrum(squared_error_ggn(W, V, X, **bias), G)
    assert_same_spectrum(squared_error_ggn(W, V, X, loss="mse", **bias), G * 2 / W.shape[-2])


def test_gauss_newton_of_cross_entropy():
    W, V, X, _, bias = draw((3, 7, 2, 4), (True, True), 5)
    Y = torch.randint(3, (BATCH, 4), generator=random_stream(6))
    G = dense_ggn(W, V, X, Y, bias, "cross_entropy")
    spectrum = two_layer_linear_ggn(W, V, X, Y, loss="cross_entropy", **bias)
    assert_same_spectrum(spectrum, G)
    assert_eigenbasis(spectrum, G)


@settings(max_examples=25, deadline=None)
@given(sizes, biases, seeds())
def test_bounds(size, with_bias, seed):
    W, V, X, Y, bias = draw(size, with_bias, seed)
    spectrum, bounds = two_layer_linear(W, V, X, Y, **bias), two_layer_linear_bounds(W, V, X, Y, **bias)
    slack = 1e-11 * spectrum.max.clamp(min=1)
    low, high = bounds.largest
    assert (low <= spectrum.max + slack).all()
    assert (high >= spectrum.max - slack).all()
    assert ((bounds.trace - spectrum.trace).abs() <= slack * spectrum.n).all()
    assert ((bounds.ggn_max - two_layer_linear_ggn(W, V, X, Y, **bias).max).abs() <= slack).all()
    assert (bounds.residual <= bounds.residual_bound + slack).all()
    assert (spectrum.min >= bounds.smallest - slack).all()
    if size[1] >= size[0] + size[2] + with_bias[0]:
        assert ((spectrum.min - bounds.smallest).abs() <= slack).all()


def test_the_small_matrix_does_not_grow_with_the_width():
    K, D, n = 2, 3, 50
    for m in (20, 2000):
        W, V, X, Y = several(m, (K, m), (m, D), (n, D), (n, K))
        spectrum = two_layer_linear(W, V, X, Y)
        assert spectrum.labels.count("outlier") == 4 + 3 * K * D
        assert spectrum.n == m * (K + D)
        bulk = [i for i, label in enumerate(spectrum.labels) if label == "bulk"]
        assert spectrum.multiplicities[bulk].tolist() == [m - K - D] * 2 * K
    z = normal(random_stream(1), spectrum.n)
    assert_close(sum(spectrum.project(i, z) for i in range(len(spectrum.labels))), z)


def test_one_output_leaves_three_per_input_and_one():
    W, V, X, Y = several(2, (1, 30), (30, 5), (9, 5), (9, 1))
    spectrum = two_layer_linear(W, V, X, Y)
    assert spectrum.labels.count("outlier") == 3 * 5 + 1
    assert spectrum.multiplicities[-1] == (5 - 1) * (30 - 1)
    assert spectrum.labels[-1] == "zero"


def test_two_hundred_networks_in_one_call_equal_two_hundred_calls():
    W, V, X, Y = several(3, (200, 2, 8), (200, 8, 3), (200, 5, 3), (200, 5, 2))
    together = two_layer_linear(W, V, X, Y)
    assert together.values.shape[0] == 200
    alone = torch.stack([two_layer_linear(*member).expand() for member in zip(W, V, X, Y)])
    assert_close(together.expand(), alone, atol=1e-11, rtol=1e-11)
    H = dense(W, V, X, Y, {"hidden_bias": None, "output_bias": None})
    assert_same_spectrum(together, H)
    assert_eigenbasis(together, H)


def test_data_or_weights_may_be_shared_by_a_batch():
    W, V, X, Y = several(4, (4, 1, 2, 5), (3, 5, 2), (6, 2), (6, 2))
    spectrum = two_layer_linear(W, V, X, Y)
    assert spectrum.values.shape[:-1] == (4, 3)
    assert_close(spectrum.expand()[2, 1], two_layer_linear(W[2, 0], V[1], X, Y).expand(), atol=1e-11, rtol=1e-11)


def test_gradients_of_eigenvalues():
    W, V, X, Y = (A.requires_grad_() for A in several(7, (2, 6), (6, 2), (4, 2), (4, 2)))
    assert torch.autograd.gradcheck(lambda *a: two_layer_linear(*a).expand(), (W, V, X, Y), fast_mode=True)
    assert torch.autograd.gradcheck(
        lambda *a: two_layer_linear(*a, loss="cross_entropy").max, (W, V, X, Y.detach().softmax(-1))
    )
    b, c = torch.ones(6, dtype=torch.float64).requires_grad_(), torch.ones(2, dtype=torch.float64).requires_grad_()
    biased = lambda W, b, c: two_layer_linear(W, V, X, Y, hidden_bias=b, output_bias=c).max  # noqa: E731
    assert torch.autograd.gradcheck(biased, (W, b, c))
    assert torch.autograd.gradcheck(lambda W, V: squared_error_ggn(W, V, X.detach()).max, (W, V))


def test_a_second_derivative_raises_instead_of_being_wrong():
    W, V, X, Y = (A.requires_grad_() for A in several(8, (1, 4), (4, 2), (4, 2), (4, 1)))
    (g,) = torch.autograd.grad(two_layer_linear(W, V, X, Y).max, W, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_vectors_can_be_left_out():
    one = torch.ones(1, 1)
    with pytest.raises(TheoryError, match=r"carries no eigenvectors; ask for them where it is made \(vectors=True\)"):
        two_layer_linear(one, one, one, one, vectors=False).eigenspace(0)


def test_input_factor():
    for n in (2, 7):
        X = normal(random_stream(n), 3, n, 4)
        F = input_factor(X)
        assert F.shape[-2] == min(n, 4)
        assert_close(F.mT @ F, X.mT @ X / n)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"V": torch.ones(3, 2)}, r"V has shape \(3, 2\); expected \(\.\.\., m, D\) with m = 4 as in W\."),
        ({"X": torch.ones(5, 3)}, r"X has shape \(5, 3\); expected \(\.\.\., n, D\) with D = 2 as in V\."),
        ({"X": torch.ones(0, 2)}, r"X has shape \(0, 2\), which is empty along n; expected at least one\."),
        ({"X": torch.full((5, 2), torch.nan)}, "X holds NaN or infinity; expected finite numbers"),
        ({"Y": torch.full((5, 3), torch.inf)}, "Y holds NaN or infinity; expected finite numbers"),
        ({"Y": torch.ones(5, 2)}, r"Y has shape \(5, 2\); expected \(\.\.\., 5, 3\), one row per row of X\."),
        ({"Y": [[1.0]]}, r"Y is a list; expected a tensor: torch\.as_tensor\(Y\)\."),
        ({"loss": "hinge"}, "loss is 'hinge'; expected one of half_mse, mse, cross_entropy, or a function"),
        (
            {"loss": "cross_entropy", "Y": torch.tensor([0, 1, 2, 3, 0])},
            "Y holds class 3; expected classes from 0 to 2, as W has 3",
        ),
        ({"loss": "cross_entropy", "Y": torch.tensor([0, 1, 2, -1, 0])}, "Y holds class -1; expected classes from 0 to 2"),
        (
            {"loss": "cross_entropy", "Y": torch.tensor([0, 1])},
            r"Y has shape \(2,\) and dtype torch.int64; expected integer classes",
        ),
        ({"loss": lambda f, y: (f, f)}, r"the loss returned derivatives of shapes \(5, 3\) and \(5, 3\); expected"),
        ({"hidden_bias": torch.ones(5)}, r"hidden_bias has shape \(5,\); expected \(\.\.\., m\) with m = 4 as in W\."),
        ({"output_bias": torch.ones(2)}, r"output_bias has shape \(2,\); expected \(\.\.\., K\) with K = 3 as in W\."),
        (
            {"W": torch.ones(2, 3, 4), "V": torch.ones(5, 4, 2)},
            r"the leading axes .* do not broadcast; expected one batch shape",
        ),
        ({"W": torch.full((3, 4), 1e200, dtype=torch.float64)}, "overflow"),
    ],
)
def test_refusals(change, sentence):
    good = {"W": torch.ones(3, 4), "V": torch.ones(4, 2), "X": torch.ones(5, 2), "Y": torch.ones(5, 3)}
    with pytest.raises(TheoryError, match=sentence):
        two_layer_linear(**(good | change))


def test_other_refusals():
    one = torch.ones(1, 1)
    with pytest.raises(
        TheoryError, match="loss is 'cross_entropy'; expected half_mse or mse: for other losses use two_layer_linear"
    ):
        squared_error_ggn(one, one, one, loss="cross_entropy")
    with pytest.raises(TheoryError, match=r"the vector has shape \(3,\); expected \(2,\), \(2, k\)"):
        two_layer_linear(one, one, one, one).project(0, torch.ones(3))


def test_tables_cover_what_theorems_exclude():
    assert {"W zero", "V zero", "transposed", "rank one W", "orthogonal V", "unequal scales"} <= set(FACTORS)
    assert {"zero", "rank one", "white", "far from centred"} <= set(DATA)
