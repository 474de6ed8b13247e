"""What is measured: a list of frozen configs, and a function from one config to rows."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import torch

Cell = Any  # a frozen dataclass whose fields are numbers, texts, truth values, None, or tuples of these
Row = dict[str, Any]  # flat: numbers, texts, truth values or None

_REPETITION: ContextVar[int] = ContextVar("repetition", default=0)


@dataclass(frozen=True)
class Experiment:
    """Cells and how to measure one. Figures may share an experiment: its cells are measured once.

    - name: `"paper/what"`; the rows on disk are filed under it.
    - cells: profile (`"smoke"`, `"quick"` or `"paper"`) -> the configs to measure.
    - measure: (config, device) -> rows. It draws from `stream(config)` alone, so that a cell gives the same rows whenever and
      wherever it is measured. The config's own fields are added to its rows by the machine.
    - version: raise it when `measure` changes its numbers: rows of other versions are not used.
    """

    name: str
    cells: Callable[[str], Sequence[Cell]]
    measure: Callable[[Any, torch.device], list[Row]]
    version: int = 1

    def key(self, cell: Cell, seed: int = 0) -> str:
        """Name of a cell's rows on disk: a hash of the experiment, its version, the config and the seed of the run."""
        return _digest([self.name, self.version, type(cell).__name__, config(cell), *_seeded(seed)])


def config(cell: Cell) -> dict[str, Any]:
    """Fields of a cell by name."""
    if not is_dataclass(cell) or isinstance(cell, type):
        raise TypeError(f"a cell is a {type(cell).__name__}; expected a frozen dataclass of numbers and texts.")
    return asdict(cell)


@contextmanager
def repetition(seed: int) -> Iterator[None]:
    """Inside, every `stream` is that of this seed's run: with seed 0 the published one, with others an independent one."""
    token = _REPETITION.set(seed)
    try:
        yield
    finally:
        _REPETITION.reset(token)


def stream(cell: Cell, what: str = "") -> torch.Generator:
    """Random stream of a cell, the same in every process; `what` gives it several independent ones.

    >>> from dataclasses import make_dataclass
    >>> Config = make_dataclass("Config", ["seed"], frozen=True)
    >>> a, b, c = (torch.randn(2, generator=stream(Config(s), w)) for s, w in ((0, ""), (0, ""), (0, "data")))
    >>> bool((a == b).all()), bool((a == c).any())
    (True, False)
    """
    parts = [type(cell).__name__, config(cell), what, *_seeded(_REPETITION.get())]
    return torch.Generator().manual_seed(int(_digest(parts)[:15], 16))


def _seeded(seed: int) -> tuple[int, ...]:
    return (seed,) if seed else ()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
