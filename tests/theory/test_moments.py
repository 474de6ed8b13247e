"""Inputs that do not fit are refused in a sentence; moments are plain averages."""

import pytest
import torch
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.moments import Moments, ScalarMoments, as_float64, conform

SHAPES = {"W": "K m", "V": "m D"}


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"W": [[1.0]], "V": torch.ones(1, 1)}, r"W is a list; expected a tensor: torch.as_tensor\(W\)."),
        ({"W": torch.ones(1, 1, dtype=torch.cfloat), "V": torch.ones(1, 1)}, "W has dtype torch.complex64; expected real"),
        ({"W": torch.ones(1, 1) > 0, "V": torch.ones(1, 1)}, "W has dtype torch.bool; expected real"),
        ({"W": torch.ones(1, 1), "V": torch.ones(1, 1, device="meta")}, "V is on meta and W on cpu; expected one device"),
        ({"W": torch.ones(3), "V": torch.ones(3, 1)}, r"W has shape \(3,\); expected \(..., K, m\)\."),
        ({"W": torch.ones(1, 3), "V": torch.ones(2, 2)}, r"V has shape \(2, 2\); expected \(..., m, D\) with m = 3 as in W\."),
        ({"W": torch.ones(0, 3), "V": torch.ones(3, 1)}, r"W has shape \(0, 3\), which is empty along K; expected at least"),
        ({"W": torch.tensor([[torch.nan]]), "V": torch.ones(1, 1)}, "W holds NaN or infinity; expected finite numbers"),
        ({"W": torch.ones(1, 1), "V": torch.tensor([[-torch.inf]])}, "V holds NaN or infinity; expected finite numbers"),
        (
            {"W": torch.ones(2, 1, 1), "V": torch.ones(3, 1, 1)},
            r"the leading axes \(2,\) of W, \(3,\) of V do not broadcast; expected one batch shape",
        ),
    ],
)
def test_refusals(inputs, sentence):
    with pytest.raises(TheoryError, match=sentence):
        conform(SHAPES, **inputs)


def test_promotes_and_keeps_the_gradient():
    w = torch.ones(2, dtype=torch.float32, requires_grad=True)
    (promoted,) = as_float64(w=w)
    promoted.sum().backward()
    assert promoted.dtype == torch.float64
    assert_close(w.grad, torch.ones(2))


def test_moments_are_averages_of_outer_products():
    X, Y = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 5, 2, dtype=torch.float64)
    moments = Moments.of(X, Y)
    for b in range(2):
        assert_close(moments.Sxx[b], sum(torch.outer(r, r) for r in X[b]) / 5)
        assert_close(moments.Syx[b], sum(torch.outer(s, r) for r, s in zip(X[b], Y[b])) / 5)
        assert_close(moments.Syy[b], sum(torch.outer(s, s) for s in Y[b]) / 5)


def test_floor_is_the_least_loss():
    x, y = torch.randn(7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    moments = ScalarMoments.of(x, y)
    losses = torch.stack([0.5 * (t * x - y).square().mean() for t in moments.target + torch.linspace(-1, 1, 201)])
    assert_close(losses.min(), moments.floor)
    assert losses.argmin() == 100


def test_zero_inputs_have_no_target():
    moments = ScalarMoments.of(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0]))
    assert (moments.s2, moments.yx, moments.target) == (0, 0, 0)
    assert_close(moments.floor, torch.tensor(14 / 6, dtype=torch.float64))


def test_overflow_is_refused():
    with pytest.raises(TheoryError, match="the squares of the data overflow float64; expected smaller numbers"):
        ScalarMoments.of(torch.tensor([1e200], dtype=torch.float64), torch.ones(1))
