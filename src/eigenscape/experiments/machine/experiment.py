"""What is measured: a list of frozen configs, and a function from one config to rows."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import torch

Cell = Any  # a frozen dataclass whose fields are numbers, texts, truth values, None, or tuples of these
Row = dict[str, Any]  # flat: numbers, texts, truth values or None


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

    def key(self, cell: Cell) -> str:
        """Name of a cell's rows on disk: a hash of the experiment, its version and the config."""
        return _digest([self.name, self.version, type(cell).__name__, _plain(cell)])


def stream(cell: Cell, what: str = "") -> torch.Generator:
    """Random stream of a cell, the same in every process; `what` gives it several independent ones.

    >>> from dataclasses import make_dataclass
    >>> Config = make_dataclass("Config", ["seed"], frozen=True)
    >>> a, b, c = (torch.randn(2, generator=stream(Config(s), w)) for s, w in ((0, ""), (0, ""), (0, "data")))
    >>> bool((a == b).all()), bool((a == c).any())
    (True, False)
    """
    return torch.Generator().manual_seed(int(_digest([type(cell).__name__, _plain(cell), what])[:15], 16))


def _plain(cell: Cell) -> dict[str, Any]:
    if not is_dataclass(cell) or isinstance(cell, type):
        raise TypeError(f"a cell is a {type(cell).__name__}; expected a frozen dataclass of numbers and texts.")
    return asdict(cell)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
