"""Train all networks of an ensemble at once, each as if it were alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..core import CurvatureError, resolve_generator
from .crew import Crew, Descent
from .ensemble import Ensemble
from .plateau import Plateau

Watch = Callable[[int, Ensemble], None]


@dataclass(frozen=True, eq=False)
class Run:
    """What training leaves behind.

    - ensemble: the trained networks; one that diverged is as it was at its last finite step.
    - steps, losses: the recorded steps, and the loss of every member on all samples there (infinite once it has diverged).
    - taken: steps that each member took; diverged_at: the step that took a member out of the finite numbers, -1 if none did.
    - rates: learning rates at the end; seeds: of the streams of minibatches, one per member.
    """

    ensemble: Ensemble
    steps: Int[Tensor, "R"]
    losses: Float[Tensor, "N R"]
    taken: Int[Tensor, "N"]
    diverged_at: Int[Tensor, "N"]
    rates: Float[Tensor, "N"]
    seeds: tuple[int, ...]

    @property
    def diverged(self) -> Bool[Tensor, "N"]:
        """Which members left the finite numbers."""
        return self.diverged_at >= 0

    @property
    def status(self) -> str:
        """What happened, as a sentence."""
        lost, low, high = int(self.diverged.sum()), int(self.taken.min()), int(self.taken.max())
        span = f"{high} steps" if low == high else f"{low} to {high} steps"
        return f"{len(self.ensemble)} networks took {span}, {lost or 'none'} diverged"


def train(
    ensemble: Ensemble,
    X: Float[Tensor, "*N n D"],
    Y: Float[Tensor, "*N n K"],
    *,
    steps: int,
    lr: float | Float[Tensor, "N"],
    batch: int | None = None,
    momentum: float = 0.0,
    rates: Sequence[float] | None = None,
    loss: str = "half_mse",
    plateau: Plateau | None = None,
    stop_loss: float | None = None,
    stop_gradient: float | None = None,
    look: int | None = None,
    record: int | Sequence[int] | None = None,
    watch: Watch | None = None,
    generator: torch.Generator | None = None,
    seeds: Sequence[int] | None = None,
) -> Run:
    r"""Descend the loss of every member at once: the same numbers, up to rounding, as training each alone.

    `batch=None` is full-batch descent. With a batch size every member shuffles the samples in a stream of its own, epoch by
    epoch; the streams are seeded by `seeds`, or from `generator`. `lr` is one learning rate or one per member, `rates` factors
    per layer (as `initialise` returns them), `momentum` that of `torch.optim.SGD`.

    Every `look` steps (default: once per epoch) the plateau lowers the rate of each member by the member's own loss on all of
    its samples, and a member stops once that loss, or the norm of its gradient, is at most `stop_loss` or `stop_gradient`. A
    member whose parameters would no longer be finite stops where it is, and no other feels it. The loss is recorded before
    the first step, after the last, and at the steps `record` (a list, or every so many), where `watch(step, ensemble)` is
    called too.

    Linear networks train on moments: a full-batch step does not depend on the number of samples, and two layers cost as much
    as if they were D + K wide.

    >>> V, W = torch.tensor([[[1.0]], [[9.0]]]), torch.tensor([[[1.0]], [[9.0]]])
    >>> run = train(Ensemble((V, W)), torch.ones(1, 1), torch.zeros(1, 1), steps=100, lr=0.5)
    >>> run.status, run.diverged.tolist()
    ('2 networks took 3 to 100 steps, 1 diverged', [False, True])
    """
    ensemble.check_samples(X=X, Y=Y)
    _check(ensemble, X.shape[-2], steps, batch, rates)
    seeds = _seeds(len(ensemble), batch, generator, seeds)
    rule = Descent(momentum, tuple(rates or (1.0,) * ensemble.depth), batch)
    crew = Crew(ensemble, X, Y, ensemble.loss_scale(loss), rule, seeds)
    one = torch.as_tensor(lr, dtype=ensemble.dtype, device=ensemble.device)
    crew.start(plateau or Plateau(factor=1.0), one.expand(len(ensemble)).clone())
    looks = plateau is not None or stop_loss is not None or stop_gradient is not None
    every = (look or crew.epoch) if looks else steps + 1
    marks, losses = _marks(record, steps), []

    def note(step: int) -> None:
        losses.append(crew.losses())
        if watch is not None:
            watch(step, ensemble.replace(crew.parameters()))

    note(0)
    for stop in marks[1:]:
        while crew.step < stop and len(crew.active):
            crew.advance(min(stop, (crew.step // every + 1) * every) - crew.step)
            if crew.step % every == 0 and len(crew.active):
                crew.look(stop_loss, stop_gradient)
        note(stop)
    return Run(
        ensemble=ensemble.replace(crew.parameters()),
        steps=torch.tensor(marks),
        losses=torch.stack(losses, -1),
        taken=crew.taken,
        diverged_at=crew.diverged_at,
        rates=crew.learning_rates(),
        seeds=tuple(seeds),
    )


def _marks(record: int | Sequence[int] | None, steps: int) -> list[int]:
    """Steps to record, with the first and the last."""
    if record is None:
        return [0, steps]
    chosen = range(0, steps, record) if isinstance(record, int) else record
    return sorted({0, steps, *(int(s) for s in chosen if 0 <= s <= steps)})


def _seeds(members: int, batch: int | None, generator: torch.Generator | None, seeds: Sequence[int] | None) -> Sequence[int]:
    if batch is None:
        return ()
    if seeds is None:
        seeds = torch.randint(2**62, (members,), generator=resolve_generator(generator)).tolist()
    if len(seeds) != members:
        raise CurvatureError(f"{len(seeds)} seeds came with {members} members; expected one each.")
    return seeds


def _check(ensemble: Ensemble, n: int, steps: int, batch: int | None, rates: Sequence[float] | None) -> None:
    if steps < 1:
        raise CurvatureError(f"steps is {steps}; expected at least 1.")
    if batch is not None and not 1 <= batch <= n:
        raise CurvatureError(f"batch is {batch} for {n} samples; expected a number from 1 to {n}, or None for all of them.")
    if rates is not None and len(rates) != ensemble.depth:
        raise CurvatureError(f"{len(rates)} rates came with {ensemble.depth} layers; expected one factor each.")
