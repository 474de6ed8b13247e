"""The largest stable rate is where the real optimizer stops converging; the range keeps its promises."""

import math

import pytest
import torch
from torch import nn

from eigenscape.core import CurvatureError
from eigenscape.curvature import Objective, hessian
from eigenscape.dynamics import lr_range, max_stable_lr


def regression(seed=0):
    """Least squares: a quadratic loss, so that stability here is stability everywhere."""
    torch.manual_seed(seed)
    model = nn.Linear(5, 2, bias=False).double()
    x, y = torch.randn(30, 5).double() * torch.arange(1, 6), torch.randn(30, 2).double()
    return model, Objective(model, nn.MSELoss(), (x, y))


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"momentum": 0.7, "nesterov": True}, {"weight_decay": 0.5}], ids=str
)
def test_descent_converges_below_and_diverges_above(options):
    for factor, stable in ((0.97, True), (1.03, False)):
        model, obj = regression()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, **options)
        found = max_stable_lr(obj, optimizer)
        assert found.lower <= found.value <= found.upper
        optimizer.param_groups[0]["lr"] = factor * float(found)
        start = float(obj.loss())
        for _ in range(1500):
            optimizer.zero_grad()
            for p, g in zip(model.parameters(), obj.layout.unflatten(obj.gradient()).values()):
                p.grad = g
            optimizer.step()
            if not float(obj.loss()) < 1e3 * start:
                break
        assert (float(obj.loss()) < start) == stable


def test_adam_needs_a_step_and_then_has_its_own_rate():
    model, obj = regression()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with pytest.raises(CurvatureError, match="Adam has no known edge of stability here; expected SGD, or Adam"):
        max_stable_lr(obj, optimizer)
    obj_gradient = obj.layout.unflatten(obj.gradient())
    model.weight.grad = obj_gradient["weight"]
    optimizer.step()
    P = (1 - 0.9) * (obj_gradient["weight"].abs().reshape(-1) + 1e-8)
    H = hessian(obj) @ torch.eye(10).double()
    top = torch.linalg.eigvalsh(H / (P[:, None] * P[None]).sqrt())[-1]
    assert float(max_stable_lr(obj, optimizer)) == pytest.approx(2 * 19 / float(top), rel=1e-6)


def test_without_positive_curvature_no_rate_is_too_large():
    model = nn.Linear(1, 1, bias=False)
    obj = Objective(model, lambda out, target: -(out**2).mean(), (torch.ones(3, 1), torch.zeros(3, 1)))
    assert float(max_stable_lr(obj, torch.optim.SGD(model.parameters(), lr=0.1))) == math.inf


def test_the_range_on_a_quadratic():
    model, obj = regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = lr_range(obj, optimizer)
    H, g = hessian(obj) @ torch.eye(10).double(), obj.gradient()
    best = float(g @ g / (g @ H @ g))
    top = float(torch.linalg.eigvalsh(H)[-1])
    assert found.high == pytest.approx(2 / top, rel=1e-3)
    assert found.critical == pytest.approx(2 * best, rel=1e-2)  # a parabola is back at its start at twice its minimum
    assert found.low <= min(0.293 * best, 1 / top) * 1.001
    assert found.low < found.high <= found.critical
    assert len(found.reasons) == 4
    assert str(found).startswith(f"learning rates from {found.low:.3g} to {found.high:.3g}:")
    won = [float(obj.loss()) - _after(model, obj, rate, g) for rate in (0.293 * best, best)]
    assert won[0] == pytest.approx(won[1] / 2, rel=1e-2)


def _after(model, obj, rate, g):
    with torch.no_grad():
        old = model.weight.clone()
        model.weight -= rate * g.reshape(model.weight.shape)
        value = float(obj.loss())
        model.weight.copy_(old)
    return value
