"""Progress of long work on standard error: a live bar on a terminal, one line per finished stage anywhere else."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


def on_stderr() -> Console:
    """Return a console beside the results."""
    return Console(stderr=True, highlight=False)


class Reporter:
    """A context in which `reporter(stage, done, expected)` may be called as often as one likes.

    A stage has ended when `done == expected`, or when the next one begins. `quiet` shows nothing.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False):
        self.console = console or on_stderr()
        self.quiet = quiet
        self.live = not quiet and self.console.is_terminal and not self.console.is_dumb_terminal
        bar = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bars = Progress(*bar, console=self.console, disable=not self.live)
        self.stage: str | None = None
        self.task: TaskID | None = None
        self.started, self.told = 0.0, 0

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._end(self.told)
        self.bars.stop()

    def __call__(self, stage: str, done: int, expected: int | None) -> None:
        """Tell how far a stage has come."""
        if stage != self.stage:
            self._end(self.told)
            self._begin(stage, expected)
        self.told = done
        if self.task is not None:
            self.bars.update(self.task, completed=done, total=expected)

    def _begin(self, stage: str, expected: int | None) -> None:
        self.stage, self.started, self.told = stage, time.perf_counter(), 0
        self.task = self.bars.add_task(stage, total=expected) if self.live else None

    def _end(self, done: int) -> None:
        if self.stage is None:
            return
        if self.task is not None:
            self.bars.update(self.task, completed=max(done, 1), total=max(done, 1))
        elif not self.quiet:
            count = f", {done:,} done" if done else ""
            self.console.print(f"{self.stage}: {time.perf_counter() - self.started:.1f} s{count}", soft_wrap=True)
        self.stage = None
