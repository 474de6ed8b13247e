"""Times of contestants that take turns, in units of one gradient measured between them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any, NamedTuple

import torch

from .suite import Row


class Lap(NamedTuple):
    """Seconds of one call: of the process on its processors, and on the wall clock."""

    cpu: float
    wall: float

    @property
    def cost(self) -> float:
        """What counts: processor time on one thread, so that a busy machine does not decide; else the wall clock."""
        return self.cpu if torch.get_num_threads() == 1 else self.wall


def timed(work: Callable[[], Any]) -> tuple[Lap, Any]:
    """Call, and return the times with the result.

    >>> lap, answer = timed(lambda: 42)
    >>> answer, lap.cpu >= 0, lap.wall > 0
    (42, True, True)
    """
    wall, cpu = time.perf_counter(), time.process_time()
    out = work()
    return Lap(time.process_time() - cpu, time.perf_counter() - wall), out


def middle(laps: Sequence[Lap]) -> Lap:
    """Median of each clock."""
    return Lap(median(lap.cpu for lap in laps), median(lap.wall for lap in laps))


@dataclass
class Entry:
    """A contestant: what it does once, and the row to which its times go."""

    row: Row
    work: Callable[[], Any]
    laps: list[Lap] = field(default_factory=list)


def unit_of(gradient: Callable[[], Any], repeats: int = 5) -> Lap:
    """One gradient, now."""
    return middle([timed(gradient)[0] for _ in range(repeats)])


def race(entries: Sequence[Entry], gradient: Callable[[], Any], rounds: int, per: int = 1) -> list[Row]:
    """Let everybody work once in each round, in an order drawn anew, with gradients between; medians go into the rows.

    A call of `work` does `per` units of work. Who fails gets a note instead of times.
    """
    order, units, running = Random(0), [], list(entries)
    for _ in range(rounds):
        order.shuffle(running)
        for entry in list(running):
            units.append(timed(gradient)[0])
            try:
                entry.laps.append(timed(entry.work)[0])
            except Exception as error:  # whatever another library may raise
                entry.row["note"] = failure(error)
                running.remove(entry)
    for entry in running:
        lap, unit = middle(entry.laps), middle(units)
        entry.row |= {"gradients": lap.cost / per / unit.cost, "seconds": lap.wall / per, "unit": unit.cost}
    return [entry.row for entry in entries]


def failure(error: BaseException) -> str:
    """Say in one line what went wrong."""
    if isinstance(error, ImportError):
        return f"not installed: {error}"
    lines = str(error).strip().splitlines()
    return f"raises {type(error).__name__}" + (f": {lines[0]}" if lines else "")
