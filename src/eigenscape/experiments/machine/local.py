"""Cells on this machine: in this process, or in several that joblib keeps."""

from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from ...core import DataError
from .provenance import machine
from .tasks import Measured, Outcome, Task, measure

IDLE = 20  # seconds after which a process with nothing to do ends, also one whose run was killed


def here(tasks: Sequence[Task]) -> Measured:
    """Measure one cell after the other in this process."""
    for task in tasks:
        yield task, measure(task)


def in_processes(tasks: Sequence[Task], workers: int) -> Measured:
    """Measure in several processes; cells come as they end, and no more are on their way than there are processes.

    A process that dies takes its cell with it and no other one: the cells that were on their way are tried again one by one,
    and the one that kills its process again has failed.
    """
    loky, waiting = _loky(workers), deque(tasks)
    while waiting:
        running: dict[Any, Task] = {}
        try:
            yield from _together(loky, waiting, running, workers)
        except loky.BrokenProcessPool:
            for task in running.values():
                yield task, _apart(loky, task)


def _together(loky: Any, waiting: deque[Task], running: dict[Any, Task], workers: int) -> Measured:
    pool = loky.get_reusable_executor(workers, timeout=IDLE)
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                future = pool.submit(measure, waiting[0])
                running[future] = waiting.popleft()
            for future in loky.wait(running, return_when=loky.FIRST_COMPLETED).done:
                outcome = future.result()
                yield running.pop(future), outcome
    finally:
        if running:
            pool.shutdown(kill_workers=True)


def _apart(loky: Any, task: Task) -> Outcome:
    """Measure one cell while nothing else runs, in a process of its own."""
    try:
        return loky.get_reusable_executor(1).submit(measure, task).result()
    except loky.BrokenProcessPool:
        return died(task, "killed by the system, for example for want of memory")


def died(task: Task, how: str) -> Outcome:
    """The outcome of a cell whose process did not live to tell."""
    import torch

    return Outcome(None, f"the process that measured it ended: {how}", 0.0, machine(torch.device("cpu"), task.threads))


def _loky(workers: int) -> Any:
    """The processes that joblib keeps, without the tasks that it sends ahead."""
    if find_spec("joblib") is None:
        raise DataError(
            f"--workers is {workers} and joblib is not installed; expected the extra: pip install 'eigenscape[reproduce]', or "
            "--workers 1."
        )
    from joblib.externals import loky

    return loky
