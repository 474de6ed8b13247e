r"""Training the scalar net `f(x) = <w, v> x`, exactly: two numbers per network, whatever its width.

Gradient descent multiplies `w + v` by `1 - eta dx` and `w - v` by `1 + eta dx`, with `dx` the slope of the loss in
`c = <w, v>`: both keep their directions, so `plus = |w + v|^2` and `minus = |w - v|^2` say everything, and a grid of learning
rates and initialisations is an array. Time is the leading axis of every result.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..core import TheoryError
from .moments import ScalarMoments, conform
from .scalar_net import ScalarNet
from .scalar_products import safe_sqrt

OVERFLOW = 1e100
"""Squared norms beyond this count as diverged: the closed form of the sharpness squares them once more."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The network at the recorded `times`: `net.sharpness`, `net.trace`, `net.loss`, ... have the shape (time, *batch).

    Where a run has diverged, all of them are NaN from then on.
    """

    times: Float[Tensor, "time"]
    net: ScalarNet

    @property
    def diverged(self) -> Bool[Tensor, "*batch"]:
        """Which runs left the floating-point numbers."""
        return self.net.plus[-1].isnan()


def gradient_descent(
    net: ScalarNet,
    lr: float | Float[Tensor, "*batch"],
    steps: int,
    *,
    momentum: float | Float[Tensor, "*batch"] = 0.0,
    weight_decay: float | Float[Tensor, "*batch"] = 0.0,
    every: int = 1,
) -> Trajectory:
    r"""Train with `torch.optim.SGD(lr, momentum, weight_decay)` and the full batch, from rest; record every so many steps.

    With `w + v = a p_0`, `w - v = b q_0` and decay mu: `a <- (1 + beta - eta (mu + dx)) a - beta a_old` and
    `b <- (1 + beta - eta (mu - dx)) b - beta b_old`; without momentum and decay, `plus <- (1 - eta dx)^2 plus` and
    `minus <- (1 + eta dx)^2 minus`. Leading axes broadcast: `lr` of shape (100, 1) against 50 networks gives a (100, 50) grid.

    >>> net = ScalarNet.from_norms(torch.tensor(4.0), torch.tensor(0.0), torch.ones(1), torch.tensor([2.0]))
    >>> run = gradient_descent(net, 0.5, 2)                      # c = 1, then (1 + 0.5)^2, then (1 - 0.125)^2 of that
    >>> run.net.c.tolist(), run.net.slope.tolist()
    ([1.0, 2.25, 1.72265625], [-1.0, 0.25, -0.27734375])
    """
    if steps < 1 or every < 1:
        raise TheoryError(f"steps is {steps} and every is {every}; expected both to be 1 or more.")
    eta, beta, mu = _numbers(net.plus, lr=lr, momentum=momentum, weight_decay=weight_decay)
    pull_plus, pull_minus, push = (
        eta * part / 4 for part in (net.data.s2 * net.plus, net.data.s2 * net.minus, 4 * net.data.yx)
    )
    shape = torch.broadcast_shapes(beta.shape, mu.shape, pull_plus.shape, push.shape)
    inertia = 1 + beta - eta * mu
    a = b = a_old = b_old = torch.ones(shape, dtype=torch.float64, device=net.plus.device)
    times, plus, minus = [0], [net.plus.expand(shape)], [net.minus.expand(shape)]
    for step in range(1, steps + 1):
        move = pull_plus * a.square() - pull_minus * b.square() - push  # eta dx
        a, a_old = (inertia - move) * a - beta * a_old, a
        b, b_old = (inertia + move) * b - beta * b_old, b
        if step % every == 0 or step == steps:
            times.append(step)
            plus.append(a.square() * net.plus)
            minus.append(b.square() * net.minus)
    return _trajectory(
        torch.tensor(times, dtype=torch.float64, device=a.device), torch.stack(plus), torch.stack(minus), net.data
    )


def _trajectory(times: Tensor, plus: Tensor, minus: Tensor, data: ScalarMoments) -> Trajectory:
    """Replace what has diverged by NaN."""
    alive = plus + minus < OVERFLOW
    nan = torch.full_like(plus, torch.nan)
    return Trajectory(times, ScalarNet(torch.where(alive, plus, nan), torch.where(alive, minus, nan), data))


def gradient_flow(net: ScalarNet, times: Float[Tensor, "time"]) -> Trajectory:
    r"""Solve gradient flow in closed form, at any `times >= 0`.

    The flow keeps `K = |w + v|^2 |w - v|^2`, so `plus` obeys the Riccati equation
    `plus' = -(s2 / 2) (plus - r_+) (plus - r_-)` with `r_+- = 2 target +- R`, `R = sqrt(4 target^2 + K)`: a hyperbolic
    tangent in time. It converges at the rate `s2 R`, which is also the sharpness of the minimum it reaches.

    >>> net = ScalarNet.from_norms(torch.tensor(1.0), torch.tensor(1.0), torch.ones(1), torch.tensor([0.0]))
    >>> late = gradient_flow(net, torch.tensor([0.0, 50.0])).net      # c = 0 is the target: nothing moves
    >>> late.plus.tolist(), late.sharpness.tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    (times,) = conform({"times": "time"}, times=times)
    if times.ndim != 1 or bool((times < 0).any()):
        raise TheoryError("times has to be one row of times from 0 on; expected, say, torch.linspace(0, 10, 101).")
    t = times.to(net.plus.device).reshape(-1, *[1] * torch.broadcast_tensors(net.plus, net.data.s2)[0].ndim)
    R = _radius(net)
    half = net.data.s2 * t / 2  # the tangent over R, where R is 0
    reach = torch.where(R > 0, (half * R).tanh(), half)
    left = torch.where(R > 0, 2 / ((2 * half * R).exp() + 1), 1.0)  # 1 - tanh, without the difference
    return _trajectory(times, *_flown(net, R, reach, left), net.data)


def flow_limit(net: ScalarNet) -> ScalarNet:
    """Where gradient flow ends: a minimum, or the saddle at 0 for a network that starts on its stable directions.

    The sharpness of a minimum reached so is `s2 sqrt(4 target^2 + |w + v|^2 |w - v|^2)`, with the norms at the start.

    >>> net = ScalarNet.from_norms(torch.tensor(1.0), torch.tensor(5.0), torch.ones(1), torch.tensor([1.0]))
    >>> flow_limit(net).c.item(), flow_limit(net).sharpness.item()
    (1.0, 3.0)
    """
    R = _radius(net)
    plus, minus = _flown(net, R, torch.ones_like(R), torch.zeros_like(R))
    moving, at_zero = net.data.s2 > 0, R == 0  # a target of 0 from w = +-v: down to 0, slower than any exponential
    plus, minus = (
        torch.where(moving & ~at_zero, end, torch.where(moving, 0.0, start))
        for end, start in ((plus, net.plus), (minus, net.minus))
    )
    return ScalarNet(plus, minus, net.data)


def _radius(net: ScalarNet) -> Float[Tensor, "*batch"]:
    """`R = sqrt(4 target^2 + K)`."""
    return safe_sqrt(4 * net.data.target.square() + net.plus * net.minus)


def _flown(net: ScalarNet, R: Tensor, reach: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Return plus and minus after `reach = tanh` of the time, `left = 1 - reach`: `plus g`, `minus / g`, all terms positive."""
    goal, K = 2 * net.data.target, net.plus * net.minus

    def ahead(goal: Tensor) -> Tensor:
        """Return `R + goal reach`, which for a negative goal is a small difference."""
        gap = K / torch.where(R > 0, R - goal, 1.0)  # R + goal
        return torch.where(R > 0, torch.where(goal >= 0, R + goal * reach, gap - goal * left), 1.0)

    top, bottom = ahead(goal) + reach * net.minus, ahead(-goal) + reach * net.plus
    plus = net.plus * top / torch.where(bottom > 0, bottom, 1.0)
    return plus, net.minus * bottom / torch.where(top > 0, top, 1.0)


def trace_velocity(net: ScalarNet) -> Float[Tensor, "*batch"]:
    """Time derivative of the trace of the Hessian under gradient flow, `-4 s2 dx c`.

    Positive (progressive sharpening) exactly while c lies strictly between 0 and the target.

    >>> trace_velocity(ScalarNet.from_norms(torch.tensor(4.0), torch.tensor(0.0), torch.ones(1), torch.tensor([3.0]))).item()
    8.0
    """
    return -4 * net.data.s2 * net.slope * net.c


def stability_threshold(lr: float | Tensor, momentum: float | Tensor = 0.0) -> Tensor:
    """Sharpness above which a minimum repels gradient descent with heavy-ball momentum, `2 (1 + beta) / eta`.

    >>> stability_threshold(0.1, momentum=0.5).item()
    30.0
    """
    eta, beta = _numbers(None, lr=lr, momentum=momentum)
    return 2 * (1 + beta) / eta


def flattest_sharpness(x: Float[Tensor, "*data n"], y: Float[Tensor, "*data n"]) -> Float[Tensor, "*data"]:
    """Sharpness of the flattest minima, `2 |mean y x|`: those with `w = +-v`.

    >>> flattest_sharpness(torch.tensor([2.0]), torch.tensor([3.0])).item()
    12.0
    """
    return 2 * ScalarMoments.of(x, y).yx.abs()


def largest_learning_rate(
    x: Float[Tensor, "*data n"], y: Float[Tensor, "*data n"], momentum: float | Tensor = 0.0
) -> Float[Tensor, "*data"]:
    """Learning rate beyond which no minimum is stable, `(1 + beta) / |mean y x|`; infinite where there is nothing to learn.

    Staying below it is necessary and not sufficient: whether a run converges depends on where it starts.

    >>> largest_learning_rate(torch.tensor([2.0]), torch.tensor([3.0])).item() == 1 / 6
    True
    """
    flattest = flattest_sharpness(x, y)
    (beta,) = _numbers(flattest, momentum=momentum)
    return 2 * (1 + beta) / flattest


def _numbers(like: Tensor | None, **given: float | Tensor) -> tuple[Tensor, ...]:
    """Check learning rates and the like: non-negative, finite, in float64."""
    device = like.device if like is not None else None
    tensors = {
        name: value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64, device=device)
        for name, value in given.items()
    }
    for name, tensor in tensors.items():
        if bool((tensor < 0).any()):
            raise TheoryError(f"{name} is negative; expected 0 or more.")
    return conform(dict.fromkeys(tensors, ""), **tensors)
