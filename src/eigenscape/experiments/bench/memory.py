"""Peak memory of a piece of work, in a process of its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

STATUS = Path("/proc/self/status")
Work = Callable[[], Any]


def peak() -> float | None:
    """Most megabytes this process has ever held; None where the system does not tell."""
    if not STATUS.is_file():
        return None
    found = [line.split()[1] for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) / 1024 if found else None


def growth(factory: Callable[..., tuple[Work, Work]], arguments: tuple[Any, ...], threads: int = 1) -> float | None:
    """Megabytes by which the second piece of work raises the peak above the first one's."""
    torch.set_num_threads(threads)
    baseline, work = factory(*arguments)
    baseline()
    before = peak()
    work()
    after = peak()
    return None if before is None or after is None else after - before


def beyond(factory: Callable[..., tuple[Work, Work]], *arguments: Any) -> float | None:
    """Megabytes of `growth` in a fresh process; `factory`, a module's function, makes (baseline, work) there."""
    if peak() is None:
        return None
    context = get_context("forkserver")  # a process that has imported everything, and done nothing
    context.set_forkserver_preload([f"{__package__}.contest"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(growth, factory, arguments, torch.get_num_threads()).result()
