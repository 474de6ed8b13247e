"""The threshold told is where the real optimizer, run on a quadratic, turns from shrinking to growing."""

import pytest
import torch
from torch import nn

from eigenscape.core import CurvatureError, Layout
from eigenscape.dynamics.rules import group_rule, preconditioner, unwrapped, view
from eigenscape.linop import Dense


def grows(optimizer, p, curvature, steps=400):
    """|p| after steps with gradients curvature @ p, or when it has grown a hundredfold."""
    start = float(p.detach().norm())
    for _ in range(steps):
        p.grad = curvature @ p.detach() if isinstance(curvature, torch.Tensor) else curvature * p.detach()
        optimizer.step()
        if float(p.detach().norm()) > 100 * start:
            break
    return float(p.detach().norm())


SGDS = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.5, "dampening": 0.3},
    {"momentum": 0.8, "nesterov": True},
    {"weight_decay": 0.7},
    {"momentum": 0.9, "weight_decay": 0.7},
]


@pytest.mark.parametrize("options", SGDS, ids=str)
def test_sgd_turns_at_its_threshold(options):
    for factor, grown in ((0.98, False), (1.02, True)):
        p = nn.Parameter(torch.ones(1, dtype=torch.float64))
        optimizer = torch.optim.SGD([p], lr=0.05, **options)
        rule = group_rule(optimizer, optimizer.param_groups[0])
        size = grows(optimizer, p, factor * rule.threshold - rule.coupled)
        assert (size > 10) == grown
        assert (size < 0.1) == (not grown)


ADAMS = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"betas": (0.5, 0.999), "weight_decay": 0.3}),
    (torch.optim.AdamW, {"weight_decay": 0.3, "betas": (0.8, 0.999)}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.RMSprop, {"momentum": 0.6}),
    (torch.optim.RMSprop, {"weight_decay": 0.2}),
    (torch.optim.RMSprop, {"centered": True}),
]


@pytest.mark.parametrize(("kind", "options"), ADAMS, ids=lambda x: str(x))
def test_adaptive_methods_turn_at_their_threshold_with_a_frozen_preconditioner(kind, options):
    for factor, grown in ((0.98, False), (1.02, True)):
        p = nn.Parameter(torch.full((2,), 1e-6, dtype=torch.float64))
        optimizer = kind([p], lr=0.05, **options)
        p.grad = torch.zeros_like(p)
        optimizer.step()
        held = torch.tensor([4.0, 9.0], dtype=torch.float64)  # so large that small gradients never move it
        group, state = optimizer.param_groups[0], optimizer.state[p]
        with torch.no_grad():
            p.fill_(1e-6)
        for name in ("exp_avg_sq", "max_exp_avg_sq", "square_avg"):
            if name in state:
                state[name].copy_(held)
        if "betas" in group:
            group["betas"] = (group["betas"][0], 1 - 1e-12)
            state["step"].fill_(1e15)  # bias corrections are over
        else:
            group["alpha"] = 1.0
        P = preconditioner(optimizer, group, p)
        torch.testing.assert_close(P, held.sqrt(), rtol=1e-3, atol=0)
        layout = Layout(("p",), ((2,),))
        seen = view(optimizer, {"p": p}, layout)
        H = torch.diag(P)  # P^-1/2 H P^-1/2 = 1, plus decay
        low, high = 0.0, 10 * seen.threshold
        for _ in range(60):  # the multiple of H that stands at the threshold
            mid = (low + high) / 2
            top = float(torch.linalg.eigvalsh(seen.operator(Dense(mid * H)) @ torch.eye(2, dtype=torch.float64))[-1])
            low, high = (mid, high) if top < seen.threshold else (low, mid)
        start = float(p.detach().norm())
        size = grows(optimizer, p, factor * low * H, steps=800) / start
        assert (size > 3) == grown
        assert (size < 1) == (not grown)


def test_groups_with_their_own_rates_are_seen_together():
    torch.manual_seed(0)
    A = torch.randn(5, 5, dtype=torch.float64)
    H = A @ A.T
    for factor, grown in ((0.99, False), (1.01, True)):
        a, b = nn.Parameter(torch.ones(2, dtype=torch.float64)), nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = torch.optim.SGD([{"params": [a], "lr": 0.3}, {"params": [b], "lr": 0.02}], momentum=0.5)
        seen = view(optimizer, {"a": a, "b": b}, Layout(("a", "b"), ((2,), (3,))))
        top = float(torch.linalg.eigvalsh(seen.operator(Dense(H)) @ torch.eye(5, dtype=torch.float64))[-1])
        scaled = factor * seen.threshold / top * H
        for _ in range(3000):
            g = scaled @ torch.cat([a.detach(), b.detach()])
            a.grad, b.grad = g[:2].clone(), g[2:].clone()
            optimizer.step()
        assert bool(torch.cat([a, b]).norm() > 1) == grown


def test_plain_gradient_descent_sees_the_hessian_itself():
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.5)
    seen = view(optimizer, {"p": p}, Layout(("p",), ((3,),)))
    H = Dense(torch.eye(3))
    assert seen.plain
    assert seen.threshold == pytest.approx(38.0)
    torch.testing.assert_close(seen.operator(H) @ torch.ones(3), torch.full((3,), 1.5))


def test_an_optimizer_without_a_rule_or_a_step_has_no_view():
    p = nn.Parameter(torch.ones(3))
    layout = Layout(("p",), ((3,),))
    assert view(torch.optim.Adagrad([p]), {"p": p}, layout) is None
    assert view(torch.optim.Adam([p]), {"p": p}, layout) is None
    assert view(torch.optim.SGD([p], lr=0.1, maximize=True), {"p": p}, layout) is None


def test_errors_say_what_to_type():
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    with pytest.raises(CurvatureError, match="'q', which the optimizer does not move; expected params="):
        view(torch.optim.SGD([p], lr=0.1), {"q": q}, Layout(("q",), ((3,),)))
    with pytest.raises(CurvatureError, match=r"optimizer is a int; expected a torch\.optim\.Optimizer"):
        unwrapped(3)


def test_wrapped_optimizers_are_found():
    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer

    sgd = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    assert unwrapped(Wrapper(Wrapper(sgd))) is sgd
