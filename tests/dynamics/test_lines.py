"""The crossing of a line search lies in its bracket, within the number of passes it is given."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from eigenscape.curvature import Objective
from eigenscape.dynamics.lines import CLOSE, PASSES, crossing, loss_at


@given(st.floats(-4, 4), st.floats(0.3, 3))
def test_a_crossing_is_enclosed(exponent, power):
    root = 10**exponent
    calls = []

    def rise(s):
        calls.append(s)
        return s * ((s / root) ** power - 1)

    found = crossing(rise)
    assert found.lower <= root <= found.upper
    assert found.passes == len(calls) <= PASSES < 9


@given(st.floats(0.02, 50))
def test_a_quadratic_needs_few_passes(root):
    found = crossing(lambda s: s * (s - root))
    assert found.upper - found.lower <= 1.001 * CLOSE * found.lower
    assert found.value == pytest.approx(root, rel=1e-6)
    assert found.passes <= 7


def test_no_rise_and_no_fall_are_told():
    falling, rising = crossing(lambda s: -s), crossing(lambda s: s)
    assert falling.upper == math.inf
    assert falling.lower > 1
    assert rising.lower == 0
    assert crossing(lambda s: float("nan") if s > 2 else -s).upper == pytest.approx(2, rel=1)


def test_loss_at_moves_along_a_line_and_leaves_the_model():
    model = nn.Linear(2, 1, bias=False).double()
    obj = Objective(model, nn.MSELoss(), (torch.eye(2).double(), torch.zeros(2, 1).double()))
    old = model.weight.detach().clone()
    start, step = torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, 0.0]).double()
    at = loss_at(obj, start, step)
    assert [at(0.0), at(1.0), at(-1.0)] == pytest.approx([2.5, 4.0, 2.0])  # (w1^2 + w2^2) / 2
    assert torch.equal(model.weight, old)
