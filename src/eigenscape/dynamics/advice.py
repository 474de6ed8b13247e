"""The optimizer's view: the largest learning rate that is stable here and now, and a range to choose from, with its reasons."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core import CurvatureError
from ..curvature import Objective, hessian
from ..curvature.hazards import differentiable_twice
from ..linop import Counted
from ..solvers import eigsh
from .instruments import flat
from .lines import crossing, loss_at
from .quiet import quiet
from .rules import View, unwrapped, view

HALF = 1 - 2**-0.5  # on a parabola this part of the best step wins half of what the best step wins


@dataclass(frozen=True)
class StableRate:
    """`lower <= the largest stable learning rate <= upper` with at least the stated probability.

    It is that of the first parameter group, the others keeping their ratios to it; `sharpness` is the one that the optimizer
    feels, and the rate is infinite where that is not positive.
    """

    value: float
    lower: float
    upper: float
    probability: float
    sharpness: float
    num_matvecs: int
    status: str

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class RateRange:
    """Learning rates worth trying, from `low` to `high`, and why."""

    low: float
    high: float
    critical: float
    stable: StableRate
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"learning rates from {self.low:.3g} to {self.high:.3g}:", *(f"- {r}" for r in self.reasons)])


def max_stable_lr(
    objective: Objective, optimizer: Any, *, tol: float = 1e-3, generator: torch.Generator | None = None
) -> StableRate:
    r"""Largest learning rate at which the optimizer, linearised here, grows in no direction: `2 gain / sharpness`.

    Momentum, weight decay, Adam's and RMSprop's preconditioner, and rates that differ between groups are taken from the
    optimizer. Training moves the sharpness: this is a statement about the present parameters.

    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> obj = Objective(model, nn.MSELoss(), (torch.eye(2), torch.zeros(2, 1)))     # Hessian: identity
    >>> round(float(max_stable_lr(obj, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))), 6)   # 2 (1 + 0.5)
    3.0
    """
    with quiet(objective.model):
        seen = _view(objective, optimizer)
        found = eigsh(seen.operator(hessian(objective)), k=1, tol=tol, generator=generator)
    value = float(found.values[0])
    sure = found.top
    low, high = (float(sure.lower), float(sure.upper)) if sure is not None else found.intervals[0].tolist()
    gain = seen.rules[0].gain
    return StableRate(
        value=_rate(gain, value),
        lower=_rate(gain, high),
        upper=_rate(gain, low),
        probability=sure.probability if sure is not None else 0.0,
        sharpness=value,
        num_matvecs=found.num_matvecs,
        status=f"2 * {gain:.4g} / {value:.6g}: {found.status}",
    )


def _rate(gain: float, sharpness: float) -> float:
    return 2 * gain / sharpness if sharpness > 0 else math.inf


def _view(objective: Objective, optimizer: Any) -> View:
    torch_optimizer = unwrapped(optimizer)
    seen = view(torch_optimizer, dict(objective.model.named_parameters()), objective.layout)
    if seen is None:
        raise CurvatureError(
            f"{type(torch_optimizer).__name__} has no known edge of stability here; expected SGD, or Adam, AdamW or RMSprop "
            "(minimising) after their first step, when their preconditioner exists."
        )
    return seen


def lr_range(objective: Objective, optimizer: Any, *, tol: float = 1e-2, generator: torch.Generator | None = None) -> RateRange:
    r"""Suggest learning rates for a step from here, with the reasons: a handful of products and fewer than ten forward passes.

    - high: the largest stable rate.
    - low: below it a step along the optimizer's (preconditioned) gradient d wins less than half of what the best step along d
      wins: `0.29 g^T d / d^T H d` on the quadratic model; at most half of `high`.
    - critical: where the loss along d is back at its start, measured by forward passes; above `high` it tells how far the loss
      still falls although the sharpest direction grows (a catapult, if the sharpness then falls).
    """
    stable = max_stable_lr(objective, optimizer, tol=tol, generator=generator)
    with quiet(objective.model), differentiable_twice(objective.model, objective.device):
        H, g = Counted(hessian(objective, check=False)), objective.gradient()
        scale = _view(objective, optimizer).scale
        gain = _view(objective, optimizer).rules[0].gain
        d = scale.square() * g if isinstance(scale, Tensor) else g
        slope = float(g.double() @ d.double())
        bend = float(d.double() @ (H @ d).double()) if slope > 0 else 0.0
        best = slope / bend if bend > 0 else math.inf
        start = min(best, 0.5 * stable.value / gain)
        critical = _critical(objective, d, start) if slope > 0 and math.isfinite(start) else math.inf
    half = 0.5 * stable.value
    low = min(HALF * best, half)
    reasons = (
        f"above {stable.value:.3g} = 2 * {gain:.3g} / sharpness ({stable.sharpness:.4g}) the sharpest direction grows",
        f"below {low:.3g} a step wins less than half of what the best step along the gradient ({best:.3g}) wins"
        if HALF * best <= half
        else f"below {low:.3g}, half of that, even the sharpest direction falls without changing sign (momentum aside)",
        f"along the gradient the loss itself is back at its start at {critical:.3g} (forward passes)",
        "sharpness moves: training at a fixed rate tends to raise it to its threshold; look again, or watch with es.Monitor",
    )
    return RateRange(low, stable.value, critical, stable, reasons)


def _critical(objective: Objective, d: Tensor, rate: float) -> float:
    along = loss_at(objective, flat(objective), -rate * d)
    start = along(0.0)
    found = crossing(lambda s: along(s) - start)
    return found.value * rate if found.lower > 0 else 0.0
