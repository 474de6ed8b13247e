"""One task, several solvers: each with the loosest setting whose answer is right, timed in turn, every answer judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...linop import Operator
from . import plain
from .clock import Entry, failure, race
from .memory import beyond
from .plain import Problem, Product
from .suite import Row, Say
from .workloads import workload

Judge = Callable[[Any], Row]  # an answer becomes columns, `right` among them


class TooLong(RuntimeError):
    """A solver used up the products it was given."""


class Watched(Operator):
    """An operator that every library accepts: it counts products, keeps the first vector, and ends what takes too long."""

    def __init__(self, product: Product, n: int, limit: int | None = None):
        super().__init__(n, dtype=torch.float32)
        self.product, self.limit = product, limit
        self.products, self.first = 0, torch.empty(0)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.n

    def matmat(self, V):
        """Count, then multiply."""
        if self.limit is not None and self.products >= self.limit:
            raise TooLong(f"did not finish within {self.limit} products")
        if not self.products:
            self.first = V[:, 0].clone()
        self.products += V.shape[1]
        return self.product(V)

    def matvec(self, v: Tensor) -> Tensor:
        """Multiply one vector."""
        return self @ v


@dataclass(frozen=True)
class Solver:
    """A way to do the task: `solve(problem, setting)` starts from nothing and returns an answer.

    Settings come from the loosest on; the price of those that do not suffice is not counted. Where none does, the one that
    is `shown` is priced, its answer marked as wrong.
    """

    name: str
    solve: Callable[[Problem, Any], Any]
    settings: Sequence[Any] = (None,)
    shown: Any = None
    rounds: int | None = None  # fewer than the others, where it takes long


@dataclass
class Fit:
    """A solver with the setting that suffices, or with the one that is shown where none does."""

    solver: Solver
    setting: Any
    row: Row


def fit(solver: Solver, problem: Problem, judge: Judge) -> Fit:
    """Try settings until the answer is right."""
    fits: dict[Any, Fit] = {}
    for setting in solver.settings:
        row: Row = {"contestant": solver.name} | ({"setting": setting} if setting is not None else {})
        now = Fit(solver, setting, row)
        try:
            row |= judge(solver.solve(problem, setting))
        except Exception as error:  # whatever another library may raise
            ended = str(error) if isinstance(error, TooLong) else failure(error)
            return _failed(fits, solver, f"with {setting}: {ended}") if fits else Fit(solver, setting, row | {"note": ended})
        if row["right"]:
            row |= {"note": f"{len(fits)} looser settings failed"} if fits else {}
            return now
        fits[setting] = now
    return _failed(fits, solver, f"no setting up to {solver.settings[-1]} suffices" if len(fits) > 1 else None)


def _failed(fits: dict[Any, Fit], solver: Solver, note: str | None) -> Fit:
    shown = fits.get(solver.shown) or list(fits.values())[-1]
    shown.row |= {"note": note} if note else {}
    return shown


def contest(network: str, problem: Problem, solvers: Sequence[Solver], judge: Judge, rounds: int, say: Say) -> list[Row]:
    """Fit every solver, then let them take turns; who needs long takes part in fewer rounds."""
    fits = []
    for solver in solvers:
        say(f"{network}: {solver.name}")
        fits.append(fit(solver, problem, judge))
    unit = plain.gradient(problem.objective)
    for times in dict.fromkeys(f.solver.rounds or rounds for f in fits):
        entries = [
            Entry(f.row, partial(f.solver.solve, problem, f.setting))
            for f in fits
            if "right" in f.row and (f.solver.rounds or rounds) == times
        ]
        race(entries, unit, min(times, rounds))
    return [{"network": network, **f.row} for f in fits]


def alone(network: str, module: str, name: str, setting: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Gradients, and then the task of a module's `solvers()`: for a process in which nothing else happens."""
    from importlib import import_module

    objective = workload(network)
    solver = next(s for s in import_module(module).solvers(brief=False) if s.name == name)
    unit = plain.gradient(objective)
    return lambda: [unit() for _ in range(3)], lambda: solver.solve(Problem.of(objective), setting)


def weigh(rows: Sequence[Row], module: str) -> None:
    """Note the peak memory of everybody who finished, each in a process of its own."""
    for row in rows:
        if "gradients" in row:
            row["MB"] = beyond(alone, row["network"], module, row["contestant"], row.get("setting"))
