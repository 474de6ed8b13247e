"""Measuring what is missing, and knowing how long it will take."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean

from .cluster import on_cluster
from .local import here, in_processes
from .plan import Plan
from .provenance import this_run
from .store import Store
from .tasks import Measured, Outcome, Task


@dataclass(frozen=True)
class Backend:
    """Where cells are measured: in `workers` processes of this machine, or on the Dask cluster at `address`."""

    workers: int = 1
    address: str | None = None

    def measure(self, tasks: Sequence[Task]) -> Measured:
        """Measure; tasks with their outcomes come as they end."""
        if self.address is not None:
            return on_cluster(tasks, self.address)
        return in_processes(tasks, self.workers) if self.workers > 1 else here(tasks)


@dataclass(frozen=True)
class Standing:
    """How far a run has come.

    - done, total: cells of the plan that are in the store, and all of them; failed: in this run.
    - left: seconds, None as long as nothing is known; last: the experiment whose cell ended last.
    """

    done: int
    total: int
    failed: int
    left: float | None
    last: str


FEW = 4  # cells after which the time left is worth telling
IN_THIS_PROCESS = Backend()


def silent(standing: Standing) -> None:
    """Tell nobody."""


def measure_missing(
    plan: Plan, store: Store, backend: Backend = IN_THIS_PROCESS, tell: Callable[[Standing], None] = silent
) -> list[str]:
    """Measure what the store does not hold, and keep each cell as it ends; return the sentences of those that failed."""
    waiting = plan.missing(store)
    if not waiting:
        return []
    clock, number, failed = Clock(waiting, store.costs()), store.begin(this_run(plan.profile, plan.seed)), []
    before = len(plan.tasks) - len(waiting)
    tell(Standing(before, len(plan.tasks), 0, None, ""))
    with closing(backend.measure(waiting)) as outcomes:
        for done, (task, outcome) in enumerate(outcomes, 1):
            store.put(number, task, outcome)
            clock.tick(task, outcome)
            if outcome.error is not None:
                failed.append(f"{task.experiment.name}: {outcome.error} in {task.cell}")
            tell(Standing(before + done, len(plan.tasks), len(failed), clock.left(), task.experiment.name))
    return failed


class Clock:
    """Tells the time left: what remains costs, cell by cell, what cells of its experiment have cost, at the pace so far."""

    def __init__(self, tasks: Sequence[Task], before: dict[str, list[float]]):
        self.start, self.before = time.perf_counter(), before
        self.waiting = Counter(task.experiment.name for task in tasks)
        self.costs: dict[str, list[float]] = {}

    def tick(self, task: Task, outcome: Outcome) -> None:
        """Note that a cell has ended."""
        self.waiting[task.experiment.name] -= 1
        self.costs.setdefault(task.experiment.name, []).append(outcome.seconds)

    def left(self) -> float | None:
        """Seconds that the rest will take; an experiment's cells cost what they did in this run, or before, or as others do."""
        spent = sum(map(sum, self.costs.values()))
        if spent <= 0 or sum(map(len, self.costs.values())) < FEW:
            return None
        means = {name: fmean(seconds) for name, seconds in (self.before | self.costs).items()}
        typical = fmean(means.values())
        rest = sum(count * means.get(name, typical) for name, count in self.waiting.items())
        return rest * (time.perf_counter() - self.start) / spent
