"""A learning rate per network, lowered when that network's loss stops improving."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Plateau:
    """When and how a learning rate falls; the rules are those of `torch.optim.lr_scheduler.ReduceLROnPlateau`.

    A loss is better than the best if it is below `(1 - threshold)` of it. After more than `patience` looks without a better
    one the rate is multiplied by `factor`, down to `min_lr`, if that changes it by more than `eps`; then `cooldown` looks do
    not count. With `final`, a network is finished once its rate would fall below `final`.
    """

    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    cooldown: int = 0
    min_lr: float = 0.0
    eps: float = 1e-8
    final: float = 0.0

    def start(self, rates: Float[Tensor, "N"]) -> "Rates":
        """Begin with one rate per network."""
        return Rates(self, rates)


class Rates:
    """The rate of every network, and what its plateau remembers.

    >>> rates = Plateau(factor=0.5, patience=0).start(torch.tensor([1.0, 1.0]))
    >>> for losses in ([3.0, 3.0], [2.0, 3.0]):
    ...     finished = rates.look(torch.tensor(losses))
    >>> rates.now
    tensor([1.0000, 0.5000])
    """

    def __init__(self, rule: Plateau, now: Float[Tensor, "N"]):
        self.rule, self.now = rule, now.clone()
        self.best = torch.full_like(now, torch.inf)
        self.bad = torch.zeros_like(now, dtype=torch.long)
        self.rest = torch.zeros_like(now, dtype=torch.long)

    def look(self, losses: Float[Tensor, "N"]) -> Bool[Tensor, "N"]:
        """Take note of the losses, lower the rates that are due, and say which networks are finished."""
        rule = self.rule
        better = losses < self.best * (1 - rule.threshold)
        self.best = torch.where(better, losses, self.best)
        self.bad = torch.where(better, 0, self.bad + 1)
        resting = self.rest > 0
        self.rest = self.rest - resting.long()
        self.bad = torch.where(resting, 0, self.bad)
        due = self.bad > rule.patience
        lower = (self.now * rule.factor).clamp(min=rule.min_lr)
        finished = due & (lower < rule.final * (1 - 1e-9))
        self.now = torch.where(due & ~finished & (self.now - lower > rule.eps), lower, self.now)
        self.rest = torch.where(due, rule.cooldown, self.rest)
        self.bad = torch.where(due, 0, self.bad)
        return finished

    def keep(self, kept: Bool[Tensor, "N"]) -> None:
        """Go on with some of the networks."""
        for name in ("now", "best", "bad", "rest"):
            setattr(self, name, getattr(self, name)[kept])
