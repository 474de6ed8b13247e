"""Rows and configs as text and back, every bit of every number kept."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .experiment import Cell, Row, config


def plain(value: Any, where: str) -> Any:
    """A value of a row as Python's own number, text, truth value or None.

    >>> plain(torch.tensor(0.1, dtype=torch.float64), "'top'"), plain(np.int64(3), "'rank'")
    (0.1, 3)
    """
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.ndim == 0):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    came = f"tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
    raise TypeError(f"{where} of a row is a {came}; expected a number, a text, a truth value or None.")


def rows_to_text(rows: Sequence[Row], cell: Cell) -> str:
    """Write what was measured of a cell; a column may repeat a field of the config, but not contradict it."""
    given, out = config(cell), []
    for row in rows:
        out.append({str(name): plain(value, repr(name)) for name, value in row.items()})
        for name in out[-1].keys() & given.keys():
            if out[-1][name] != given[name]:
                raise ValueError(f"a row has {name!r} = {out[-1][name]!r}, its config {given[name]!r}; expected another name.")
    return json.dumps(out, separators=(",", ":"))


def rows_from_text(text: str, cell: Cell) -> list[Row]:
    """Read rows, each with the fields of its config first.

    >>> from dataclasses import make_dataclass
    >>> Cell = make_dataclass("Cell", ["width"], frozen=True)
    >>> rows_from_text(rows_to_text([{"top": -0.0}, {"top": float("nan")}], Cell(10)), Cell(10))
    [{'width': 10, 'top': -0.0}, {'width': 10, 'top': nan}]
    """
    given = config(cell)
    return [given | row for row in json.loads(text)]


def values_of(cells: Sequence[Cell], most: int = 8) -> str:
    """Say which values the fields of some configs take.

    >>> from dataclasses import make_dataclass
    >>> Cell = make_dataclass("Cell", ["net", "seed"], frozen=True)
    >>> values_of([Cell(net, seed) for net in ("linear", "relu") for seed in range(100)])
    'net linear, relu; seed 0 to 99 (100 values)'
    """
    columns: dict[str, list[Any]] = {}
    for cell in cells:
        for name, value in config(cell).items():
            columns.setdefault(name, []).append(value)
    return "; ".join(f"{name} {_spread(list(dict.fromkeys(values)), most)}" for name, values in columns.items())


def _spread(values: list[Any], most: int) -> str:
    if len(values) > most and all(isinstance(v, int | float) for v in values):
        return f"{_short(min(values))} to {_short(max(values))} ({len(values)} values)"
    shown = ", ".join(_short(v) for v in values[:most])
    return shown if len(values) <= most else f"{shown}, ... ({len(values)} values)"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
