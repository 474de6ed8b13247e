"""Cells on this machine: in this process, or in several that joblib keeps."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from ...core import DataError
from .provenance import machine
from .tasks import Measured, Outcome, Task, measure


def here(tasks: Sequence[Task]) -> Measured:
    """Measure one cell after the other in this process."""
    for task in tasks:
        yield task, measure(task)


def in_processes(tasks: Sequence[Task], workers: int) -> Measured:
    """Measure in several processes; cells come as they end.

    A process that dies takes its cell with it and no other one: the cells that were on their way are tried again one by one,
    and the one that kills its process again has failed.
    """
    joblib = _joblib(workers)
    waiting = {task.key: task for task in tasks}
    while waiting:
        started: list[Task] = []
        pool = joblib.Parallel(workers, return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
        try:
            for key, outcome in pool(joblib.delayed(_keyed)(task) for task in _noting(list(waiting.values()), started)):
                yield waiting.pop(key), outcome
        except joblib.externals.loky.process_executor.TerminatedWorkerError:
            for task in [task for task in started if task.key in waiting]:
                yield waiting.pop(task.key), _apart(joblib, task)


def _noting(tasks: Sequence[Task], started: list[Task]) -> Iterator[Task]:
    for task in tasks:
        started.append(task)
        yield task


def _keyed(task: Task) -> tuple[str, Outcome]:
    return task.key, measure(task)


def _apart(joblib: Any, task: Task) -> Outcome:
    """Measure one cell while nothing else runs, in a process of its own."""
    try:
        return joblib.Parallel(2)([joblib.delayed(measure)(task)])[0]
    except joblib.externals.loky.process_executor.TerminatedWorkerError:
        return died(task, "killed by the system, for example for want of memory")


def died(task: Task, how: str) -> Outcome:
    """The outcome of a cell whose process did not live to tell."""
    import torch

    return Outcome(None, f"the process that measured it ended: {how}", 0.0, machine(torch.device("cpu"), task.threads))


def _joblib(workers: int) -> Any:
    if find_spec("joblib") is None:
        raise DataError(
            f"--workers is {workers} and joblib is not installed; expected the extra: pip install 'eigenscape[reproduce]', or "
            "--workers 1."
        )
    import joblib

    return joblib
