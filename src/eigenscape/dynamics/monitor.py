"""Watch curvature while a network trains: three lines in any loop."""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..core import CurvatureError
from ..curvature import Objective
from .budget import Budget, clock, fitting, rows
from .history import Appender, History, Row, Writer, finite
from .instruments import DEFAULT, Instruments, chosen_measures, flat
from .phases import WINDOW, phase
from .quiet import quiet
from .rules import unwrapped

PROBE = 4  # steps whose time is measured before a budget chooses
SEARCH = 200  # products of a search for missed eigenvalues at most
THRIFTY = 40  # the same under a budget


class Monitor:
    r"""Record curvature along a training run; training goes on bitwise as it would without.

    - objective: an `es.Objective`, or a function without arguments that returns one for each record (the batch at hand).
    - every: steps between records; under a budget, the fewest.
    - k: how many of the largest eigenvalues; `smallest` of the other end.
    - measures: any of `"effective"` (the sharpness that the optimizer feels: preconditioned, with momentum and decay, against
      its own threshold), `"directional"` (curvature along the update), `"critical"` (learning rate at which the update stops
      helping, by forward passes), `"ggn"`, `"trace"`; or `"all"`.
    - overhead: a budget, such as 0.1 of the training time: how often and on how many samples is then chosen here, and told by
      `chosen`.
    - tol: residual of the tracked pairs, relative to the sharpness.
    - run: a folder; every record is appended to its `history.jsonl` at once.
    - writers: functions that are called with every record; one with `rewind(history)` is told what a resumed run begins with.
    - model: the model, where `objective` is a function that needs it in evaluation mode.
    - evaluate: measure in evaluation mode (dropout off, running statistics), whatever the model's mode.
    - engine: how products are computed, as in `es.hessian`. The default is the one for a few products at each point, whose
      results are bitwise the same at every run; `"difference"` is for models without second derivatives.

    >>> from torch import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> obj = Objective(model, nn.MSELoss(), (torch.ones(4, 1), torch.zeros(4, 1)))   # loss w^2
    >>> monitor = Monitor(obj, optimizer, every=1)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     model.weight.square().sum().backward()
    ...     optimizer.step()
    ...     _ = monitor.step()
    >>> monitor.history["sharpness"], monitor.history["threshold"]
    (array([2., 2., 2.]), array([4., 4., 4.]))
    """

    def __init__(
        self,
        objective: Objective | Callable[[], Objective],
        optimizer: Any,
        every: int = 10,
        k: int = 1,
        *,
        smallest: int = 0,
        measures: str | Sequence[str] = DEFAULT,
        overhead: float | None = None,
        tol: float = 0.02,
        run: str | Path | None = None,
        writers: Iterable[Writer] = (),
        model: nn.Module | None = None,
        evaluate: bool = True,
        seed: int = 0,
        engine: str = "reverse",
    ):
        if not isinstance(objective, Objective) and not callable(objective):
            raise CurvatureError(
                f"objective is a {type(objective).__name__}; expected es.Objective(model, criterion, data) or a function that "
                "returns one."
            )
        for name, value, least in (("every", every, 1), ("k", k, 1), ("smallest", smallest, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise CurvatureError(f"{name} is {value!r}; expected a whole number of at least {least}.")
        self.objective = objective
        self.optimizer = unwrapped(optimizer)
        self.every, self.evaluate, self.seed = every, evaluate, seed
        self.model = objective.model if isinstance(objective, Objective) else model
        self.budget = None if overhead is None else Budget(overhead)
        search, thrifty = (SEARCH, False) if overhead is None else (THRIFTY, True)
        self.instruments = Instruments(k, smallest, chosen_measures(measures), tol, search, seed, engine, thrifty)
        self.history = History()
        self.steps = 0
        self.samples: int | None = None
        self.total: int | None = None
        self.folder = None if run is None else Path(run)
        self.writers = list(writers)
        self._file: Appender | None = None
        self._fresh = True
        self._measured: Objective | None = objective if isinstance(objective, Objective) else None
        self._before: Float[Tensor, "n"] | None = None
        self._armed = False
        self._trained, self._mark = 0.0, time.perf_counter()
        self._probe: float | None = None
        self._started = time.time()
        self._arm()

    def step(self) -> Row | None:
        """Call after `optimizer.step()`; returns the record if this step has one."""
        self.steps += 1
        row = self.measure() if self._armed else None
        self._arm()
        return row

    def measure(self) -> Row:
        """Make a record now."""
        with torch.inference_mode(False), quiet(self.model, self.evaluate):
            objective = self._current()
            start = clock(objective.device)
            self._trained += start - self._mark
            row = {"step": self.steps, "time": time.time() - self._started}
            row |= self.instruments.read(objective, self.optimizer, self._before)
            row["samples"] = self.samples if self.samples is not None else self._count(objective)
            self._mark = clock(objective.device)
        row["seconds"] = self._mark - start
        row["phase"] = self._phase(row)
        if self.budget is not None:
            self.budget.note(row["seconds"])
        self._measured, self._before = objective, None
        self._keep(row)
        return row

    def _current(self) -> Objective:
        if isinstance(self.objective, Objective):
            assert self._measured is not None
            return self._measured
        objective = self.objective()
        if not isinstance(objective, Objective):
            raise CurvatureError(f"the function returned a {type(objective).__name__}; expected es.Objective(...).")
        if self.model is None:
            self.model = objective.model
        return self._cut(objective)

    def _cut(self, objective: Objective) -> Objective:
        """The subset of samples that a budget chose, the same at every record; everything otherwise."""
        if self.samples is None or self.total is None or self.samples >= self.total:
            return objective
        part = objective.subsample(self.samples, torch.Generator().manual_seed(self.seed))
        part.check = objective.check
        return part

    def _count(self, objective: Objective) -> int:
        if self.total is None or not isinstance(self.objective, Objective):
            self.total = rows(objective)
        return self.total

    def _phase(self, row: Row) -> str:
        if "sharpness" not in row:
            return "diverged"
        return phase([*(r for r in self.history.rows[-WINDOW:] if "sharpness" in r), row])

    def _arm(self) -> None:
        """Decide whether the next step has a record, and if so keep the parameters before it."""
        following = self.steps + 1
        if self.budget is None:
            self._armed = following % self.every == 0
        else:
            last = self.history[-1]["step"] if len(self.history) else 0
            self._armed = self._chosen_now() and following - last >= self.every and self.budget.due(self.trained)
        if self._armed and self._measured is not None:
            self._before = flat(self._measured).clone()

    @property
    def trained(self) -> float:
        """Seconds spent outside of measurements."""
        return self._trained + time.perf_counter() - self._mark

    def _chosen_now(self) -> bool:
        """Whether the budget has what it needs; choose the samples once a few steps have been timed."""
        if self.samples is not None:
            return True
        assert self.budget is not None
        device = self._measured.device if self._measured is not None else None
        if self.steps == 1:
            self._probe = clock(device)
        if self._probe is None or self.steps < 1 + PROBE:
            return False
        start = clock(device)
        step_seconds = (start - self._probe) / (self.steps - 1)
        self._trained += start - self._mark
        with torch.inference_mode(False), quiet(self.model, self.evaluate):
            whole = self._current()
            self.total = rows(whole)
            self.samples, self.budget.cost = fitting(whole, step_seconds, self.budget.overhead)
            if isinstance(self.objective, Objective):
                self._measured = self._cut(whole)
        self._mark = clock(device)
        self.budget.spent += self._mark - start
        return True

    @property
    def chosen(self) -> str:
        """How often and on what the records are made, and what they cost, in a sentence."""
        steps = [row["step"] for row in self.history]
        gaps = [b - a for a, b in itertools.pairwise(steps)]
        spacing = f"every {statistics.median(gaps):g} steps" if gaps else f"every {self.every} steps at most"
        spent = sum(row["seconds"] for row in self.history) if self.budget is None else self.budget.spent
        what = f"{self.samples} of {self.total} samples" if self.samples is not None else "all samples given"
        trained = max(self.trained, 1e-9)
        return f"{spacing} on {what}, {len(steps)} records so far, {100 * spent / trained:.3g} % of the training time"

    def _keep(self, row: Row) -> None:
        self.history.rows.append(row)
        if self.folder is not None:
            if self._file is None:
                self._file = Appender(self.folder)
                if self._fresh:
                    self._file.rotate()
                self._describe(finished=False)
            self._file(row)
        for writer in self.writers:
            writer(row)

    def _describe(self, finished: bool) -> None:
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {
            "optimizer": type(self.optimizer).__name__,
            "parameters": None if self._measured is None else self._measured.layout.size,
            "measures": list(self.instruments.measures),
            "chosen": self.chosen,
            "torch": torch.__version__,
            "finished": finished,
        }
        draft = self.folder / "run.json.tmp"
        draft.write_text(json.dumps(finite(about), indent=1), encoding="utf-8")
        draft.replace(self.folder / "run.json")

    def close(self) -> None:
        """Say in the run's folder that training has ended; the writers that can be closed are."""
        if self.folder is not None:
            self._describe(finished=True)
        for writer in self.writers:
            getattr(writer, "close", lambda: None)()

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs, for the training checkpoint."""
        budget = self.budget
        return {
            "steps": self.steps,
            "rows": [dict(row) for row in self.history],
            "instruments": self.instruments.state_dict(),
            "samples": self.samples,
            "total": self.total,
            "trained": self.trained,
            "budget": None if budget is None else (budget.spent, budget.cost, budget.records),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, after the model has; records that the run's file holds beyond are dropped."""
        self.steps, self.history = state["steps"], History(state["rows"])
        self.instruments.load_state_dict(state["instruments"])
        self._trained, self._mark = state["trained"], time.perf_counter()
        if self.history.rows:
            self._started = time.time() - self.history[-1]["time"]
        if self.budget is not None and state["budget"] is not None:
            self.budget.spent, self.budget.cost, self.budget.records = state["budget"]
            self.samples, self.total = state["samples"], state["total"]
            if isinstance(self.objective, Objective) and None not in (self.samples, self.total):
                with quiet(self.model, self.evaluate):
                    self._measured = self._cut(self.objective)
        if self.folder is not None:
            self._file = Appender(self.folder)
            self._file.rewind(self.steps)
        for writer in self.writers:
            getattr(writer, "rewind", lambda history: None)(self.history)
        self._fresh = False
        self._arm()
