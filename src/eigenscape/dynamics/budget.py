"""How much time measuring may take, and what that decides: when to look, and on how many samples."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..core import CurvatureError
from ..curvature import Objective
from ..curvature.nested import size_of

FEWEST = 128  # samples (tokens) below which a subsample is not cut
SPACING = 20  # steps between records that the size of the subsample aims at
GRADIENTS = 35  # cost of a first record, in gradients of the measured loss: its test of the derivatives is a third of it


def clock(device: torch.device | None) -> float:
    """Seconds, after all work on the device is done."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@dataclass
class Budget:
    """Spend at most `overhead` of the training time on measuring, from the first record on.

    A record is due when `spent + cost <= overhead * trained`, with the `cost` of a record guessed at first, then taken from
    those before.
    """

    overhead: float
    spent: float = 0.0
    cost: float = 0.0
    records: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.overhead < 10:
            raise CurvatureError(f"overhead is {self.overhead}; expected a share of the training time, such as 0.1.")

    def due(self, trained: float) -> bool:
        """Whether a record fits after so much training time."""
        return self.spent + self.cost <= self.overhead * trained

    def note(self, seconds: float) -> None:
        """Account for a record that was made; the running cost forgets half of its past with each."""
        self.spent += seconds
        self.records += 1
        self.cost = seconds if self.records == 1 else 0.5 * (self.cost + seconds)


def rows(objective: Objective) -> int:
    """Count the rows of all batches."""
    return sum(size_of(inputs, targets) for inputs, targets in objective.batches())


def fitting(objective: Objective, step_seconds: float, overhead: float) -> tuple[int, float]:
    """Rows for which a record every `SPACING` steps fits the budget, and what a record on them costs in seconds.

    All rows, or at least those of `FEWEST` samples.

    The time of a gradient is measured on the fewest, the fastest of three, and scaled up in proportion.
    """
    total = rows(objective)
    few = min(total, FEWEST, max(1, math.ceil(FEWEST * total / objective.num_samples)))
    part = objective if few == total else objective.subsample(few)
    seconds = max(min(_timed(part.gradient, objective.device) for _ in range(3)), 1e-9)
    allowed = overhead * SPACING * step_seconds
    chosen = min(total, max(few, int(few * allowed / (GRADIENTS * seconds))))
    return chosen, GRADIENTS * seconds * chosen / few


def _timed(work: Callable[[], object], device: torch.device) -> float:
    start = clock(device)
    work()
    return clock(device) - start
