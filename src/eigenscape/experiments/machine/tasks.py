"""One cell on its way: what is asked for, and what came of it."""

import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .encoding import rows_to_text
from .experiment import Experiment, repetition
from .provenance import machine


@dataclass(frozen=True)
class Task:
    """A cell to measure, and where: the same task gives the same rows in every process of a machine."""

    experiment: Experiment
    cell: Any
    seed: int = 0
    device: str = "cpu"
    threads: int = 1

    @property
    def key(self) -> str:
        """Name of the rows in the store."""
        return self.experiment.key(self.cell, self.seed)


@dataclass(frozen=True)
class Outcome:
    """Rows as text, or the sentence with which the cell failed; what it cost, and on what machine."""

    rows: str | None
    error: str | None
    seconds: float
    machine: dict[str, str | int]


Measured = Generator[tuple[Task, Outcome], None, None]


def measure(task: Task) -> Outcome:
    """Measure a cell; whatever it raises becomes its sentence."""
    device, start = torch.device(task.device), time.perf_counter()
    rows = error = None
    try:
        with repetition(task.seed), computing_on(task.threads):
            rows = rows_to_text(task.experiment.measure(task.cell, device), task.cell)
    except Exception as raised:
        error = sentence(raised)
    return Outcome(rows, error, time.perf_counter() - start, machine(device, task.threads))


def sentence(error: BaseException) -> str:
    """Say in one line what was raised, and by which line of code.

    >>> try:
    ...     1 / 0
    ... except ZeroDivisionError as error:
    ...     sentence(error)
    'ZeroDivisionError: division by zero (<doctest eigenscape.experiments.machine.tasks.sentence[0]>:2)'
    """
    words = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if words else ''}{words}{place}"


@contextmanager
def computing_on(threads: int) -> Iterator[None]:
    """Inside, torch and the BLAS of numpy and scipy use this many threads: sums are added in the same order everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _blas(threads):
            yield
    finally:
        torch.set_num_threads(before)


def keep_to(threads: int) -> None:
    """Let torch and the BLAS use this many threads from now on."""
    torch.set_num_threads(threads)
    _blas(threads)


def _blas(threads: int) -> Any:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads)
