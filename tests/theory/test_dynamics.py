"""The exact maps of the scalar net against trained weights, and against an integrator."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import hessians
from scipy.integrate import solve_ivp
from strategies import WEIGHTS, inputs, normal, pairs, random_stream, seeds, targets
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory import ScalarNet, dynamics, scalar_linear

BATCH = 50  # times 40 examples: 2,000 runs per map
ONE = torch.ones(1, dtype=torch.float64)


def moderate(w, v, x):
    """Scale the random tables down to where training makes sense."""
    return (w / (1 + w.norm(dim=-1, keepdim=True)), v / (1 + v.norm(dim=-1, keepdim=True)), x / (1 + x.abs()))


def draw(m, n, seed):
    g = random_stream(seed)
    w, v, x = moderate(*pairs(BATCH, m, g), inputs(BATCH, n, g))
    y = targets((w * v).sum(-1, keepdim=True) * x, g).clamp(-2, 2)
    return w, v, x, y, g


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([1, 2, 5]), st.sampled_from([1, 4]), seeds(), st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0, 0.1])
)
def test_descent_is_that_of_the_weights(m, n, seed, momentum, weight_decay):
    """What SGD of PyTorch does with the weights, the two numbers do without them."""
    w, v, x, y, g = draw(m, n, seed)
    lr = 0.5 * torch.rand(BATCH, generator=g, dtype=torch.float64)
    run = dynamics.gradient_descent(ScalarNet.of(w, v, x, y), lr, 15, momentum=momentum, weight_decay=weight_decay, every=5)
    assert run.times.tolist() == [0, 5, 10, 15]
    scale = lr.sqrt()[:, None]  # a learning rate per member: theta / sqrt(lr) at learning rate 1 sees lr times the loss
    theta = torch.cat([v / scale, w / scale], -1).requires_grad_()
    optimizer = torch.optim.SGD([theta], lr=1.0, momentum=momentum)
    for step in range(16):
        if step % 5 == 0:
            v, w = (scale * theta.detach()).chunk(2, -1)
            now = ScalarNet.of(w, v, x, y)
            for name in ("plus", "minus", "c", "sharpness", "trace"):
                assert_close(getattr(run.net, name)[step // 5], getattr(now, name), atol=1e-11, rtol=1e-9)
        v, w = (scale * theta).chunk(2, -1)
        loss = 0.5 * ((w * v).sum(-1, keepdim=True) * x - y).square().mean(-1) + weight_decay / 2 * (v**2 + w**2).sum(-1)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([1, 2, 5]), seeds())
def test_sharpness_along_the_way_is_that_of_autograd(m, seed):
    w, v, x, y, _ = draw(m, 3, seed)
    run = dynamics.gradient_descent(ScalarNet.of(w, v, x, y), 0.3, 20, every=20)
    for _ in range(20):
        dx = (x * ((w * v).sum(-1, keepdim=True) * x - y)).mean(-1, keepdim=True)
        w, v = w - 0.3 * dx * v, v - 0.3 * dx * w
    H = hessians(lambda t, x, y: 0.5 * ((t[:m] @ t[m:]) * x - y).square().mean(), torch.cat([v, w], -1), x, y)
    assert_close(run.net.sharpness[-1], torch.linalg.eigvalsh(H)[:, -1], atol=1e-12, rtol=1e-12)


def test_the_bulk_never_sees_training():
    """[cracking] Corollary 3.1: the bulk eigenspaces of the start stay, and the parameters stay out of them."""
    g = random_stream(3)
    w, v, x, y = normal(g, 6), normal(g, 6), normal(g, 4), normal(g, 4)
    start = scalar_linear(w, v, x, y)
    for _ in range(40):
        dx = (x * ((w @ v) * x - y)).mean()
        w, v = w - 0.05 * dx * v, v - 0.05 * dx * w
    end = scalar_linear(w, v, x, y)
    flipped = bool((start.values[2] > 0) != (end.values[2] > 0))
    for i in (2, 3):
        assert start.project(i, torch.cat([v, w])).abs().max() < 1e-12
        Q, R = start.eigenspace(i), end.eigenspace(i)
        assert_close(Q @ Q.mT, R @ R.mT, atol=1e-12, rtol=0)
    assert not flipped or end.values[2] * start.values[2] < 0


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([1, 3]), seeds())
def test_flow_against_an_integrator(m, seed):
    w, v, x, y, _ = draw(m, 3, seed)
    w, v, x, y = w[:8], v[:8], x[:8], y[:8]
    net = ScalarNet.of(w, v, x, y)
    times = torch.tensor([0.0, 0.3, 2.0, 20.0], dtype=torch.float64)
    s2, yx = (t.numpy()[:, None] for t in (net.data.s2, net.data.yx))

    def velocity(_, flat):
        w, v = flat.reshape(2, 8, m)
        dx = s2 * (w * v).sum(-1, keepdims=True) - yx
        return -(dx * torch.stack([torch.tensor(v), torch.tensor(w)]).numpy()).ravel()

    start = torch.stack([w, v]).numpy().ravel()
    solved = solve_ivp(velocity, (0, 20), start, "DOP853", times.numpy(), rtol=1e-13, atol=1e-14).y
    w, v = torch.tensor(solved.T).reshape(4, 2, 8, m).unbind(1)
    run = dynamics.gradient_flow(net, times)
    assert_close(run.net.plus, (w + v).square().sum(-1), atol=1e-9, rtol=1e-8)
    assert_close(run.net.minus, (w - v).square().sum(-1), atol=1e-9, rtol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([1, 2, 5]), st.sampled_from([1, 4]), seeds())
def test_facts_about_flow(m, n, seed):
    """It composes, keeps |w + v| |w - v|, lowers the loss, obeys its equation, and ends where it is said to end."""
    w, v, x, y, g = draw(m, n, seed)
    net = ScalarNet.of(w, v, x, y)
    s, t = torch.rand(2, 1, generator=g, dtype=torch.float64) * 10
    run = dynamics.gradient_flow(net, torch.cat([0 * s, s, s + t]))
    half = ScalarNet(run.net.plus[1], run.net.minus[1], net.data)
    assert_close(run.net.plus[0], net.plus)
    assert_close(dynamics.gradient_flow(half, t).net.plus[0], run.net.plus[2], atol=1e-13, rtol=1e-10)
    assert_close(run.net.plus * run.net.minus, (net.plus * net.minus).expand(3, -1), atol=1e-30, rtol=1e-12)
    assert (run.net.loss.diff(dim=0) <= 1e-12).all()
    assert not run.diverged.any()
    h = torch.tensor([0.0, 1e-5], dtype=torch.float64)
    small = dynamics.gradient_flow(net, h).net
    assert_close((small.trace[1] - small.trace[0]) / 1e-5, dynamics.trace_velocity(net), atol=1e-4, rtol=1e-4)
    end = dynamics.flow_limit(net)
    late = dynamics.gradient_flow(net, torch.tensor([1e9])).net
    fast = (net.data.s2 == 0) | (net.data.s2 * dynamics._radius(net) > 1e-6)
    assert_close(late.plus[0][fast], end.plus[fast], atol=1e-12, rtol=1e-9)
    assert_close(late.minus[0][fast], end.minus[fast], atol=1e-12, rtol=1e-9)


def test_flow_leaves_the_saddle_however_close_it_starts():
    """|w - v| of 1e-30 grows to what a negative target needs, and 0 stays 0."""
    minus = torch.tensor([1e-60, 0.0], dtype=torch.float64)
    net = ScalarNet.from_norms(torch.ones(2), minus, ONE, -ONE)
    assert_close(dynamics.flow_limit(net).c, torch.tensor([-1.0, 0.0], dtype=torch.float64))
    assert_close(dynamics.gradient_flow(net, torch.tensor([200.0])).net.c[0], torch.tensor([-1.0, 0.0], dtype=torch.float64))
    assert_close(dynamics.flow_limit(net).sharpness, torch.tensor([2.0, 1.0], dtype=torch.float64))


def test_flow_to_a_target_of_zero_is_slow():
    """R = 0: c decays like 1 / t, c' = -2 s2 c^2."""
    net = ScalarNet.from_norms(4 * ONE[0], 0 * ONE[0], ONE, 0 * ONE)
    assert_close(
        dynamics.gradient_flow(net, torch.tensor([0.0, 1.0, 10.0])).net.c, 1 / (1 + torch.tensor([0.0, 2, 20]).double())
    )
    assert dynamics.flow_limit(net).c == 0


@settings(max_examples=10, deadline=None)
@given(seeds())
def test_descent_ends_no_sharper_than_flow(seed):
    """While eta |dx| < sqrt 2, |w + v| |w - v| only shrinks, and with it the sharpness of the minimum."""
    w, v, x, y, _ = draw(3, 4, seed)
    net = ScalarNet.of(w, v, x, y)
    run = dynamics.gradient_descent(net, 0.5, 1000, every=1000)
    path = dynamics.gradient_descent(net, 0.5, 200).net
    product = path.plus * path.minus
    assert (product[1:] <= product[:-1] * (1 + 1e-12)).all()
    assert_close(product[1], product[0] * (1 - (0.5 * path.slope[0]) ** 2) ** 2, atol=1e-300, rtol=1e-9)
    there = run.net.slope[-1].abs() < 1e-12
    flow = dynamics.flow_limit(net).sharpness
    assert (run.net.sharpness[-1][there] <= flow[there] * (1 + 1e-9) + 1e-11).all()


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_threshold_of_stability(momentum):
    """Next to a minimum of sharpness S, learning rates below 2 (1 + beta) / S return to it and those above do not."""
    x, y = ONE, ONE  # c = 1
    plus = torch.tensor([4.0, 5.0, 10.0], dtype=torch.float64)
    minimum = ScalarNet.from_norms(plus, plus - 4, x, y)
    near = ScalarNet(plus * (1 + 1e-7), plus - 4, minimum.data)
    critical = 2 * (1 + momentum) / minimum.sharpness
    assert_close(dynamics.stability_threshold(critical, momentum), minimum.sharpness)
    below = dynamics.gradient_descent(near, 0.98 * critical, 400, momentum=momentum).net.slope.abs()
    above = dynamics.gradient_descent(near, 1.02 * critical, 400, momentum=momentum).net.slope.abs()
    assert (below[-1] < 1e-2 * below[0]).all()
    assert (above.nan_to_num(torch.inf).amax(0) > 10 * above[0]).all()


def test_no_minimum_is_stable_beyond_the_largest_learning_rate():
    g = random_stream(7)
    x, y = normal(g, 5), normal(g, 5)
    w, v = 0.1 * normal(g, 500, 3), 0.1 * normal(g, 500, 3)
    largest = dynamics.largest_learning_rate(x, y)
    assert_close(largest, 2 / dynamics.flattest_sharpness(x, y))
    lr = largest * torch.tensor([[0.9], [1.1], [1.5]])
    run = dynamics.gradient_descent(ScalarNet.of(w, v, x, y), lr, 5000, every=5000)
    converged = (run.net.slope[-1].abs() < 1e-9).sum(-1)
    assert converged.tolist() == [500, 0, 0]
    minima = ScalarNet.from_norms(torch.linspace(4, 50, 100), torch.linspace(4, 50, 100) - 4, ONE, ONE)
    assert (minima.sharpness >= dynamics.flattest_sharpness(ONE, ONE)).all()
    assert dynamics.largest_learning_rate(ONE, 0 * ONE) == torch.inf


def test_a_million_trajectories_are_arrays():
    lr = torch.linspace(0.01, 1.2, 1000, dtype=torch.float64)[:, None]
    start = torch.linspace(0.0, 80.0, 1000, dtype=torch.float64)
    net = ScalarNet.from_norms(start, 0 * start + 0.5, ONE, ONE)
    run = dynamics.gradient_descent(net, lr, 20, every=20)
    assert run.net.sharpness.shape == (2, 1000, 1000)
    one = ScalarNet.from_norms(start[20], torch.tensor(0.5), ONE, ONE)
    assert_close(run.net.plus[-1, 400, 20], dynamics.gradient_descent(one, lr[400, 0], 20).net.plus[-1])
    assert 0 < run.diverged.sum() < 10**6


def test_diverged_runs_are_marked():
    net = ScalarNet.from_norms(torch.tensor([4.0, 400.0]), torch.zeros(2), ONE, ONE)
    run = dynamics.gradient_descent(net, 0.5, 100)
    assert run.diverged.tolist() == [False, True]
    assert run.net.sharpness[-1, 1].isnan()
    assert run.net.sharpness[:, 0].isfinite().all()


def test_gradients():
    g = random_stream(2)
    w, v, x, y = (0.5 * normal(g, 3) for _ in range(4))
    tensors = tuple(t.requires_grad_() for t in (w, v, x, y))
    lr = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    of = lambda lr, *t: dynamics.gradient_descent(ScalarNet.of(*t), lr, 4, momentum=0.5).net.sharpness  # noqa: E731
    assert torch.autograd.gradcheck(of, (lr, *tensors))
    times = torch.tensor([0.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, *t: dynamics.gradient_flow(ScalarNet.of(*t), s).net.sharpness, (times, *tensors))
    assert torch.autograd.gradcheck(lambda *t: dynamics.flow_limit(ScalarNet.of(*t)).sharpness, tensors)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda net: dynamics.gradient_descent(net, 0.1, 0), "steps is 0 and every is 1; expected both to be 1 or more"),
        (lambda net: dynamics.gradient_descent(net, -0.1, 5), "lr is negative; expected 0 or more"),
        (lambda net: dynamics.gradient_descent(net, torch.tensor(torch.nan), 5), "lr holds NaN or infinity"),
        (lambda net: dynamics.gradient_flow(net, -ONE), "times has to be one row of times from 0 on"),
        (lambda net: dynamics.gradient_flow(net, torch.ones(2, 2)), "times has to be one row of times from 0 on"),
        (lambda net: dynamics.stability_threshold(0.1, -0.5), "momentum is negative"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(TheoryError, match=sentence):
        call(ScalarNet.from_norms(ONE, ONE, ONE, ONE))


def test_tables_cover_the_degenerate_starts():
    assert {"equal", "opposite", "w zero", "both zero", "orthogonal"} <= set(WEIGHTS)
