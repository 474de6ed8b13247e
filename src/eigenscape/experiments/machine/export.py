"""Rows as files for other programs: Parquet and CSV, one of each per experiment, the same bytes for the same rows."""

import csv
import io
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...analysis.store import atomically
from ...core import DataError
from .experiment import Row
from .plan import Plan, rows_of
from .store import Store

ROWS = "rows"


def export(plan: Plan, store: Store, folder: Path, kinds: Sequence[str] = ("parquet", "csv")) -> list[Path]:
    """Write the rows of every experiment of a plan to `rows/PAPER/EXPERIMENT.parquet` and `.csv`."""
    if "parquet" in kinds and find_spec("pyarrow") is None:
        raise DataError("Parquet files need pyarrow, which is not installed; expected: pip install 'eigenscape[reproduce]'.")
    written = []
    for experiment, tasks in plan.experiments():
        rows = list(rows_of(tasks, store.kept(tasks)))
        about = {"experiment": experiment.name, "version": str(experiment.version), "seed": str(plan.seed)}
        for kind in kinds if rows else ():
            path = folder / f"{experiment.name}.{kind}"
            written.append(_parquet(rows, about, path) if kind == "parquet" else _csv(rows, path))
    return written


def columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Turn rows into columns of one kind each: truth values, integers, numbers or texts; None where a row has nothing.

    >>> columns([{"a": 1, "b": True}, {"a": 2.5, "c": (1, 2)}])
    {'a': [1.0, 2.5], 'b': [True, None], 'c': [None, '[1, 2]']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> list[Any]:
    kinds = {type(v) for v in values if v is not None}
    if len(kinds) <= 1 and not kinds & {tuple, list}:
        return values
    if kinds <= {int, float}:
        return [None if v is None else float(v) for v in values]
    return [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]


def _parquet(rows: Sequence[Row], about: dict[str, str], path: Path) -> Path:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({name: pyarrow.array(values) for name, values in columns(rows).items()}, metadata=about)
    return atomically(path, lambda part: parquet.write_table(table, part, compression="zstd"))


def _csv(rows: Sequence[Row], path: Path) -> Path:
    found, text = columns(rows), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found)
    writer.writerows(zip(*found.values()))
    return atomically(path, lambda part: part.write_text(text.getvalue(), encoding="utf-8"))
