"""The loss along a line: where a step in a direction stops helping, found by forward passes alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..curvature import Objective

PASSES = 8  # evaluations of one search at most; the loss at the start is one more forward pass
CLOSE = 0.01  # relative width of the bracket at which the search ends


@dataclass(frozen=True)
class Crossing:
    """`lower <= s* <= upper`, where s* > 0 is a multiple of a step at which the loss is back at its start.

    `upper` is infinite when no rise was seen, `lower` is zero when the loss rises however short the step.
    """

    value: float
    lower: float
    upper: float
    passes: int


def loss_at(objective: Objective, start: Float[Tensor, "n"], step: Float[Tensor, "n"]) -> Callable[[float], float]:
    """Loss as a function of s at `start + s step`; the model itself is not touched."""

    def at(s: float) -> float:
        with torch.no_grad():
            parameters = objective.layout.unflatten(start + s * step)
            return float(torch.stack([objective.piece_loss(parameters, piece).double() for piece in objective.pieces()]).sum())

    return at


def crossing(rise: Callable[[float], float], passes: int = PASSES) -> Crossing:
    r"""Find where `rise(s) = loss(s) - loss(0)` turns positive, from s = 1 on, by at most `passes` evaluations.

    `rise(s) / s` is a straight line where the loss is quadratic. Its secant brackets the root and then closes in on it
    (Illinois' rule), never nearer to an end than a part of the tolerance: a root that was hit is then confirmed by the next
    evaluation, beyond it.

    >>> c = crossing(lambda s: -6 * s + 2 * s * s)
    >>> round(c.value, 6), c.lower <= 3.0 <= c.upper, c.passes
    (3.0, True, 5)
    """
    seen: list[tuple[float, float]] = []

    def slope(s: float) -> float:
        f = rise(s) / s
        seen.append((s, f if math.isfinite(f) else math.inf))
        return seen[-1][1]

    low, high, s = 0.0, math.inf, 1.0
    while len(seen) < passes and (low == 0.0 or high == math.inf):
        low, high = (s, high) if slope(s) < 0 else (low, s)
        s = _outwards(seen, up=low > 0)
    if low == 0.0 or high == math.inf:
        return Crossing(high if low == 0.0 else low, low, high, len(seen))
    at = dict(seen)
    f_low, f_high, margin, last = at[low], at[high], CLOSE / 3, 0
    while len(seen) < passes and high - low > CLOSE * low:
        guess = _secant(low, f_low, high, f_high)
        guess = min(max(guess, low * (1 + margin)), high * (1 - margin / 2))
        f = slope(guess)
        side = -1 if f < 0 else 1
        if side < 0:
            low, f_low, f_high = guess, f, f_high / 2 if last == side else f_high
        else:
            high, f_high, f_low = guess, f, f_low / 2 if last == side else f_low
        last = side
    at = dict(seen)
    return Crossing(_secant(low, at[low], high, at[high]), low, high, len(seen))


def _secant(low: float, f_low: float, high: float, f_high: float) -> float:
    return low - f_low * (high - low) / (f_high - f_low) if f_high < math.inf else math.sqrt(low * high)


def _outwards(seen: list[tuple[float, float]], up: bool) -> float:
    """Where to look for the other side: beyond the root of the last secant, at least twice as far, at most 32 times."""
    (s, f), factor = seen[-1], 2.0
    if len(seen) > 1:
        t, g = seen[-2]
        bend = (f - g) / (s - t)
        root = s - f / bend if bend > 0 and math.isfinite(bend) else 0.0
        factor = root / s if up else s / root if root > 0 else 4.0
        factor = min(max(1.25 * factor, 2.0), 32.0)
    return s * factor if up else s / factor
