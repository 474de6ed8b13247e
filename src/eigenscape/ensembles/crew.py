"""The members that still train, and the books about those that have stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .ensemble import Ensemble, total
from .narrow import Narrow
from .plateau import Plateau
from .shuffles import Shuffles, cuts
from .tasks import MomentTask, SampleTask, Task


@dataclass(frozen=True)
class Descent:
    """`b <- momentum b + g`, `W_l <- W_l - rates_l lr b`, as `torch.optim.SGD`; `batch` is the size of a minibatch or None."""

    momentum: float
    rates: Sequence[float]
    batch: int | None

    def step(self, task: Task, weights: list[Tensor], buffers: list[Tensor], lr: Tensor, batch: Any) -> None:
        """Change weights and buffers in place."""
        for l, g in enumerate(task.gradients(weights, batch)):
            if self.momentum:
                g = buffers[l].mul_(self.momentum).add_(g)
            weights[l].addcmul_(lr, g, value=-self.rates[l])


class Crew:
    """Members that train (rows of `weights`), at `step`; the others have left their last parameters in `final`."""

    def __init__(self, ensemble: Ensemble, X: Tensor, Y: Tensor, scale: float, rule: Descent, seeds: Sequence[int]):
        N, linear = len(ensemble), ensemble.activation == "linear"
        self.rule, self.step = rule, 0
        self.task: Task = MomentTask(total(ensemble.multipliers) * X, Y, scale) if linear else SampleTask(ensemble, X, Y, scale)
        self.final = [W.clone() for W in ensemble.weights]
        self.left = torch.full((N,), torch.inf, dtype=ensemble.dtype, device=ensemble.device)  # losses of those who left
        self.active = torch.arange(N, device=ensemble.device)
        self.taken = torch.zeros(N, dtype=torch.long, device=ensemble.device)
        self.diverged_at = torch.full_like(self.taken, -1)
        narrow = Narrow.of(ensemble.weights) if linear else None
        self.narrow = None if narrow is None else narrow[0]
        self.weights = [W.clone() for W in ensemble.weights] if narrow is None else narrow[1]
        self.buffers = [torch.zeros_like(W) for W in self.weights] if rule.momentum else []
        self.n = X.shape[-2]
        self.shuffles, self.order, self.turn = Shuffles(seeds, self.n), None, 0

    def start(self, plateau: Plateau, lr: Tensor) -> None:
        """Give every member its learning rate."""
        self.rates = plateau.start(lr)
        self.last_rates = lr.clone()

    @property
    def epoch(self) -> int:
        """Minibatches per epoch."""
        return 1 if self.rule.batch is None else -(-self.n // self.rule.batch)

    def advance(self, count: int) -> None:
        """Take so many steps, in runs of one epoch at most."""
        goal = self.step + count
        while self.step < goal and len(self.active):
            run = goal - self.step
            if self.rule.batch is not None:
                if self.order is None or self.turn == self.epoch:
                    self.order, self.turn = self.shuffles.epoch(), 0
                run = min(run, self.epoch - self.turn)
            self._descend(run)

    def _descend(self, run: int) -> None:
        """Take a run of steps; where it leaves the finite numbers, take it again, one step at a time."""
        weights, buffers = [W.clone() for W in self.weights], [b.clone() for b in self.buffers]
        lr = self.rates.now[:, None, None]
        for batch in self._batches(self.task, self.order, run):
            self.rule.step(self.task, self.weights, self.buffers, lr, batch)
        self.taken[self.active] += run
        lost = ~_finite(self.weights)
        if lost.any():
            self._rescue(lost, [W[lost] for W in weights], [b[lost] for b in buffers], run)
        self.step, self.turn = self.step + run, self.turn + run
        gone = self.diverged_at[self.active] >= 0
        if gone.any():
            self.drop(gone)

    def _batches(self, task: Task, order: Tensor | None, run: int) -> Iterator[Any]:
        if self.rule.batch is None or order is None:
            return repeat(task.whole, run)
        parts = list(cuts(self.turn, self.turn + run, self.n, self.rule.batch))
        return task.minibatches(order[:, parts[0].start : parts[-1].stop], [p.stop - p.start for p in parts])

    def _rescue(self, lost: Bool[Tensor, "A"], weights: list[Tensor], buffers: list[Tensor], run: int) -> None:
        """Repeat a run for some members; each keeps its last finite parameters, and the number of the step that was not."""
        task, members, lr = self.task.select(lost), self.active[lost], self.rates.now[lost][:, None, None]
        order = None if self.order is None else self.order[lost.to(self.order.device)]
        alive = torch.ones_like(members, dtype=torch.bool)
        for i, batch in enumerate(self._batches(task, order, run)):
            before = [W.clone() for W in weights]
            self.rule.step(task, weights, buffers, lr, batch)
            fine = _finite(weights)
            dead = members[alive & ~fine]
            self.diverged_at[dead], self.taken[dead] = self.step + i + 1, self.step + i
            alive &= fine
            weights = [torch.where(alive[:, None, None], W, old) for W, old in zip(weights, before)]
            if not alive.any():
                break
        for mine, new in zip(self.weights + self.buffers, weights + buffers):
            mine[lost] = new

    def look(self, stop_loss: float | None, stop_gradient: float | None) -> None:
        """Lower the rates that are due, and let those who are finished leave."""
        losses = self.task.losses(self.weights)
        finished = self.rates.look(losses)
        if stop_loss is not None:
            finished |= losses <= stop_loss
        if stop_gradient is not None:
            square = sum(g.square().sum((-2, -1)) for g in self.task.gradients(self.weights, self.task.whole))
            finished |= torch.as_tensor(square).sqrt() <= stop_gradient
        if finished.any():
            self.drop(finished)

    def drop(self, leaving: Bool[Tensor, "A"]) -> None:
        """Write down what is known of some members, and go on without them."""
        self.final = self.parameters()
        members, kept = self.active[leaving], ~leaving
        losses = self.task.losses(self.weights)[leaving]
        self.left[members] = torch.where(self.diverged_at[members] < 0, losses, torch.inf)
        self.last_rates[members] = self.rates.now[leaving]
        self.rates.keep(kept)
        self.active, self.task = self.active[kept], self.task.select(kept)
        self.weights, self.buffers = [W[kept] for W in self.weights], [b[kept] for b in self.buffers]
        self.narrow = self.narrow and self.narrow.keep(kept)
        self.shuffles.keep(kept.tolist())
        self.order = None if self.order is None else self.order[kept.to(self.order.device)]

    def parameters(self) -> list[Tensor]:
        """Weights of all members as they are now."""
        now = self.weights if self.narrow is None else self.narrow.lift(self.weights)
        return [whole.index_copy(0, self.active, part) for whole, part in zip(self.final, now)]

    def losses(self) -> Float[Tensor, "N"]:
        """Losses of all members as they are now."""
        return self.left.index_copy(0, self.active, self.task.losses(self.weights)) if len(self.active) else self.left.clone()

    def learning_rates(self) -> Float[Tensor, "N"]:
        """Learning rates of all members as they are now."""
        return self.last_rates.index_copy(0, self.active, self.rates.now)


def _finite(weights: Sequence[Tensor]) -> Bool[Tensor, "A"]:
    return torch.stack([torch.isfinite(W.sum((-2, -1))) for W in weights]).all(0)
