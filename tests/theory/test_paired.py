"""Paired outliers: the closed form where its conditions hold, and that they are told apart from where they do not."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_same_spectrum, hessians
from strategies import normal, random_stream, seeds
from torch.testing import assert_close
from two_factor_cases import several

from eigenscape.core import TheoryError
from eigenscape.theory.paired import paired_conditions, paired_outliers
from eigenscape.theory.two_layer import two_layer_linear

BATCH = 25
sizes = st.sampled_from([(1, 1), (1, 3), (2, 2), (2, 5), (3, 4), (4, 6), (5, 5)])  # D, m
targets = st.sampled_from(["along the map", "decorrelated", "fitted", "off the map"])
scales = st.sampled_from(["equal", "different", "some zero"])


def dense(w, V, X, y):
    D, m = V.shape[-1], w.shape[-1]

    def loss(theta, X, y):
        return 0.5 * (X @ (theta[: m * D].reshape(m, D).T @ theta[m * D :]) - y).square().mean()

    return hessians(loss, torch.cat([V.flatten(1), w], -1), X, y)


def draw(size, data, columns, target, axis, seed):
    """Networks that meet the conditions: orthogonal columns and inputs on joint axes, w in a chosen relation to them."""
    (D, m), g = size, random_stream(seed)
    n = D + 2
    along = {
        "equal": lambda: torch.ones(BATCH, D, dtype=torch.float64) * normal(g, BATCH, 1).abs(),
        "different": lambda: normal(g, BATCH, D).abs(),
        "some zero": lambda: normal(g, BATCH, D).abs() * (torch.rand(BATCH, D, generator=g) > 0.4),
    }
    R = torch.linalg.qr(normal(g, BATCH, D, D)).Q
    X = torch.linalg.qr(normal(g, BATCH, n, D)).Q * n**0.5 * along[data]().unsqueeze(-2) @ R.mT
    frame = torch.linalg.qr(normal(g, BATCH, m, m)).Q
    V = frame[..., :D] * along[columns]().unsqueeze(-2) @ R.mT
    inside = {"mixed": normal(g, BATCH, 1), "none": torch.zeros(BATCH, 1, dtype=torch.float64)}[axis]
    w = (frame @ torch.cat([inside, torch.zeros(BATCH, D - 1), normal(g, BATCH, m - D)], -1).unsqueeze(-1)).squeeze(-1)
    fit = (X @ V.mT @ w.unsqueeze(-1)).squeeze(-1)
    first = (X @ R[..., :1]).squeeze(-1)
    noise = normal(g, BATCH, n)
    noise = noise - (X @ torch.linalg.pinv(X) @ noise.unsqueeze(-1)).squeeze(-1)
    y = {"along the map": 0.4 * fit + noise, "decorrelated": noise, "fitted": fit, "off the map": 1.7 * first + noise}[target]
    return w, V, X, y


def check(*case):
    w, V, X, y = draw(*case)
    assert paired_conditions(w, V, X, y).closed_form.all()
    assert_same_spectrum(paired_outliers(w, V, X, y), dense(w, V, X, y))


axes = st.sampled_from(["mixed", "mixed", "none"])


@settings(max_examples=40, deadline=None)
@given(sizes, scales, scales, targets, axes, seeds())
def test_spectrum_where_the_conditions_hold(size, data, columns, target, axis, seed):
    check(size, data, columns, target, axis, seed)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(sizes, scales, scales, targets, axes, seeds())
def test_spectrum_in_three_thousand_cases(size, data, columns, target, axis, seed):
    check(size, data, columns, target, axis, seed)


@settings(max_examples=20, deadline=None)
@given(sizes, targets, seeds())
def test_pair_and_triples_sum_to_the_trace_over_inputs(size, target, seed):
    w, V, X, y = draw(size, "equal", "equal", target, "mixed", seed)
    found, spectrum = paired_conditions(w, V, X, y), paired_outliers(w, V, X, y)
    assert found.pair_sums_to_trace_over_inputs.all()
    share = spectrum.trace / size[0]
    assert_close(spectrum.values[:, :2].sum(-1), share, atol=1e-11, rtol=1e-11)
    triples = spectrum.values[:, 2 : 3 * size[0] - 1].unflatten(-1, (size[0] - 1, 3)).sum(-1) if size[0] > 1 else share[:, None]
    assert_close(triples, share[:, None].expand_as(triples), atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("broken", ["target", "inputs", "columns"])
def test_conditions_see_what_is_broken(broken):
    w, V, X, y = draw((3, 7), "equal", "equal", "along the map", "mixed", 5)
    g = random_stream(6)
    if broken == "target":
        y = normal(g, *y.shape)
    if broken == "inputs":
        X = X + normal(g, *X.shape)
    if broken == "columns":
        V = V + normal(g, *V.shape)
    found = paired_conditions(w, V, X, y)
    assert not found.closed_form.any()
    with pytest.raises(
        TheoryError, match=r"off by .*; expected at most tol = 1\.0e-09: use two_layer_linear\(w\[None\], V, X, Y\)"
    ):
        paired_outliers(w, V, X, y)
    values = two_layer_linear(w.unsqueeze(-2), V, X, y.unsqueeze(-1)).expand()
    share = values.sum(-1) / 3
    sums = (values.unsqueeze(-1) + values.unsqueeze(-2)).flatten(1)
    assert ((sums - share[:, None]).abs().amin(-1) > 1e-9).all()  # no pair sums to the trace over D


def test_different_variances_pair_up_but_not_to_the_trace():
    w, V, X, y = draw((3, 7), "different", "different", "along the map", "mixed", 8)
    found, spectrum = paired_conditions(w, V, X, y), paired_outliers(w, V, X, y)
    assert found.closed_form.all()
    assert not found.pair_sums_to_trace_over_inputs.any()
    assert ((spectrum.values[:, :2].sum(-1) - spectrum.trace / 3).abs() > 1e-6).all()


def test_one_network_is_one_of_the_batch():
    w, V, X, y = draw((2, 5), "equal", "different", "decorrelated", "mixed", 9)
    assert_close(paired_outliers(w[3], V[3], X[3], y[3]).values, paired_outliers(w, V, X, y).values[3])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"V": torch.ones(3, 2)}, r"V has shape \(3, 2\); expected \(\.\.\., m, D\) with m = 4 as in w\."),
        ({"y": torch.ones(2)}, r"y has shape \(2,\); expected \(\.\.\., n\) with n = 5 as in X\."),
        ({"X": torch.ones(0, 2), "y": torch.ones(0)}, r"X has shape \(0, 2\), which is empty along n"),
        ({"w": torch.full((4,), torch.nan)}, "w holds NaN or infinity"),
        ({"w": torch.ones(1), "V": torch.ones(1, 2)}, "the width is 1 and there are 2 inputs; expected m >= D"),
        ({}, r"have no common axes with V\^T w: off by"),
    ],
)
def test_refusals(change, sentence):
    X, V = several(1, (5, 2), (4, 2))
    y = X @ torch.linalg.solve(X.T @ X, V.T @ torch.ones(4, dtype=torch.float64))  # mean y x along V^T w
    good = {"w": torch.ones(4), "V": V, "X": X, "y": y}
    with pytest.raises(TheoryError, match=sentence):
        paired_outliers(**(good | change))
