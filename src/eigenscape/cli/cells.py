"""Progress of a run cell by cell on standard error: a live bar with the time left, or a line now and then."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from ..experiments.machine import Standing
from .progress import on_stderr

EVERY = 10.0  # seconds between two lines where there is no terminal


def time_left(seconds: float | None) -> str:
    """Say roughly how long it will take.

    >>> time_left(None), time_left(0.4), time_left(95.0), time_left(7320.0)
    ('', 'a second left', '1 min 35 s left', '2 h 2 min left')
    """
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole <= 1:
        return "a second left"
    if whole < 60:
        return f"{whole} s left"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s left"
    return f"{whole // 3600} h {whole % 3600 // 60} min left"


class Cells:
    """A context to which the standing of a run is told as often as one likes."""

    def __init__(self, console: Console | None = None, quiet: bool = False, every: float = EVERY):
        self.console, self.quiet, self.every = console or on_stderr(), quiet, every
        self.live = not quiet and self.console.is_terminal and not self.console.is_dumb_terminal
        columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
        self.bar = Progress(*columns, console=self.console, disable=not self.live, transient=True)
        self.task = self.bar.add_task("", total=None) if self.live else None
        self.start = self.last = time.perf_counter()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def __call__(self, standing: Standing) -> None:
        """Tell how far it has come."""
        if self.task is not None:
            self.bar.update(self.task, completed=standing.done, total=standing.total, description=_words(standing))
        elif not self.quiet:
            self._line(standing)

    def _line(self, standing: Standing) -> None:
        now, ended = time.perf_counter(), standing.done == standing.total
        if not standing.last:
            self._print(f"{standing.total - standing.done} of {standing.total} cells to measure")
        elif ended:
            self._print(f"measured all {standing.total} cells in {now - self.start:.1f} s{_failures(standing)}")
        elif now - self.last >= self.every:
            self._print(f"{standing.done} of {standing.total} cells, {_words(standing)}")
            self.last = now

    def _print(self, words: str) -> None:
        self.console.print(words, soft_wrap=True, markup=False)


def _words(standing: Standing) -> str:
    parts = (time_left(standing.left), standing.last and f"last of {standing.last}")
    return ", ".join(filter(None, parts)) + _failures(standing)


def _failures(standing: Standing) -> str:
    return f", {standing.failed} failed" if standing.failed else ""
