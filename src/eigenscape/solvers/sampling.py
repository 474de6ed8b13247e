"""Independent samples, their mean and its error; how many of them a tolerance needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass
class Moments:
    """Running mean and sum of squared deviations of samples along an axis (Chan, Golub and LeVeque)."""

    count: int
    mean: Float[Tensor, "*shape"]
    square: Float[Tensor, "*shape"]

    @classmethod
    def of(cls, samples: Float[Tensor, "b N *rest"]) -> "Moments":
        """Mean and squared deviations over axis 1."""
        mean = samples.mean(1)
        return cls(samples.shape[1], mean, (samples - mean.unsqueeze(1)).square().sum(1))

    def __add__(self, other: "Moments") -> "Moments":
        n = self.count + other.count
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / n)
        return Moments(n, mean, self.square + other.square + step.square() * (self.count * other.count / n))

    @property
    def variance(self) -> Float[Tensor, "*shape"]:
        """Unbiased variance of one sample."""
        return self.square / (self.count - 1)


def draw(sample: Callable[[int], Tensor], total: int, width: int) -> Moments:
    """Moments of `total` samples, at most `width` of them at once."""
    moments = Moments.of(sample(min(width, total)))
    while moments.count < total:
        moments = moments + Moments.of(sample(min(width, total - moments.count)))
    return moments


def needed(pilot: int, variance: Float[Tensor, "*shape"], target: Float[Tensor, "*shape"]) -> int:
    """Samples that bring the standard error of every mean under its target; Stein's rule (Annals of Math. Stat. 16, 1945).

    The variance comes from a pilot of fixed size and stays: the mean of pilot and rest together, over the standard error from
    the pilot's variance, is then Student t with `pilot - 1` degrees of freedom, while a variance taken from a sample
    that stopped because it looked small would be too small.

    >>> needed(3, torch.tensor(4.0), target=torch.tensor(0.5))  # 4 over 0.5 squared
    16
    """
    ratio = torch.where(variance > 0, variance / target.square(), 0.0)
    return max(pilot, math.ceil(min(float(ratio.max()), 1e12)))
