"""What follows from the eigenvalues found: intervals, step sizes, conditioning."""

import math
from dataclasses import dataclass

import torch

from ..core import EigenPairs, Spectrum


@dataclass(frozen=True)
class Interval:
    """A number with the ends between which it lies, and with what probability (1: surely)."""

    value: float
    lower: float
    upper: float
    probability: float


@dataclass(frozen=True)
class Condition:
    """A ratio of eigenvalue magnitudes and the sentence that says which ratio it is."""

    value: float
    meaning: str


def two_over(sharpness: float) -> float:
    """Return `2 / sharpness`, infinite without positive curvature."""
    return 2 / sharpness if sharpness > 0 else math.inf


def enclosed(pairs: EigenPairs) -> Interval:
    """Return the largest eigenvalue with its enclosure, or with the interval that surely holds some eigenvalue."""
    value = float(pairs.values[0])
    if pairs.top is not None:
        return Interval(value, float(pairs.top.lower), float(pairs.top.upper), pairs.top.probability)
    low = float(pairs.intervals[0, 0])
    # Without a random start nothing bounds the largest eigenvalue from above.
    return Interval(value, low, math.inf, 1.0)


def condition_number(spectrum: Spectrum | None, *parts: EigenPairs) -> Condition:
    """Return the condition number of a known spectrum, or what the eigenvalues found say about it.

    >>> condition_number(Spectrum(torch.tensor([8.0, -2.0]), torch.tensor([1, 1]), ("outlier", "bulk"))).value
    4.0
    """
    if spectrum is not None:
        return Condition(float(spectrum.condition_number), "largest over smallest magnitude of all eigenvalues")
    found = torch.cat([p.values.abs().double().cpu() for p in parts])
    small = float(found.min())
    meaning = f"largest over smallest magnitude of the {len(found)} eigenvalues found: the condition number is at least this"
    return Condition(float(found.max()) / small if small else math.inf, meaning)


def critical_rate(sharpness: Interval) -> Interval:
    """Turn an interval for the sharpness into one for the largest stable learning rate.

    >>> critical_rate(Interval(4.0, 4.0, 5.0, 0.999))
    Interval(value=0.5, lower=0.4, upper=0.5, probability=0.999)
    """
    return Interval(two_over(sharpness.value), two_over(sharpness.upper), two_over(sharpness.lower), sharpness.probability)


def distance(a: Interval, b: Interval) -> Interval:
    """Bound `|a - b|`; both intervals hold together but for the sum of their failure rates.

    >>> distance(Interval(5.0, 4.0, 6.0, 1.0), Interval(2.0, 1.0, 3.0, 1.0))
    Interval(value=3.0, lower=1.0, upper=5.0, probability=1.0)
    """
    low, high = a.lower - b.upper, a.upper - b.lower
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    both = max(0.0, a.probability + b.probability - 1)
    return Interval(abs(a.value - b.value), nearest, max(abs(low), abs(high)), both)
