"""The record of a run: a table in memory, and a file that loses nothing when the process is killed."""

import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..core import DataError

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]
FILE = "history.jsonl"


class History(Sequence[Row]):
    """Rows of a run in the order of their steps; a column by its name.

    >>> h = History([{"step": 0, "loss": 2.0}, {"step": 10, "loss": 1.0, "sharpness": 3.0}])
    >>> h["loss"], h["sharpness"], h[-1]["step"]
    (array([2., 1.]), array([nan,  3.]), 10)
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()):
        self.rows: list[Row] = [dict(row) for row in rows]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, in the order of their first appearance."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> "History": ...
    @overload
    def __getitem__(self, key: str) -> np.ndarray: ...
    def __getitem__(self, key: int | slice | str) -> "Row | History | np.ndarray":
        if isinstance(key, str):
            return self._column(key)
        return History(self.rows[key]) if isinstance(key, slice) else self.rows[key]

    def _column(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise DataError(
                f"the history has no column {name!r}; expected one of {', '.join(self.columns) or '(no rows yet)'}."
            )
        cells = [row.get(name) for row in self.rows]
        if all(cell is None or isinstance(cell, int | float) for cell in cells):
            return np.array([math.nan if cell is None else cell for cell in cells], dtype=float)
        out = np.empty(len(cells), dtype=object)
        out[:] = cells
        return out

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return "<History, no rows yet>"
        return f"<History, {len(self)} rows, steps {self.rows[0].get('step')} to {self.rows[-1].get('step')}>"

    def frame(self) -> "pandas.DataFrame":
        """Return the table as a pandas DataFrame, indexed by step."""
        try:
            import pandas
        except ImportError as error:
            raise DataError("pandas is not installed; expected it for a DataFrame: pip install pandas.") from error
        return pandas.DataFrame(self.rows).set_index("step")

    def _repr_html_(self) -> str | None:
        try:
            return self.frame()._repr_html_()  # pyright: ignore[reportCallIssue]
        except (DataError, KeyError):
            return None

    def csv(self, path: str | Path) -> Path:
        """Write the table as CSV; lists are written as JSON."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            for row in self.rows:
                writer.writerow(flattened(row))
        return Path(path)

    def save(self, path: str | Path) -> Path:
        """Write the table as JSON lines, as a run's own file is; whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".tmp")
        draft.write_text("".join(_line(row) for row in self.rows), encoding="utf-8")
        return draft.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "History":
        """Read what `save` wrote, or the folder of a run that is going on or over."""
        return read(path)


def flattened(row: Mapping[str, Any]) -> Row:
    """Write lists as JSON, so that every cell is one text.

    >>> flattened({"step": 1, "eigenvalues": [2.0, 1.0]})
    {'step': 1, 'eigenvalues': '[2.0, 1.0]'}
    """
    return {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in row.items()}


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by null, at any depth.

    >>> finite({"a": float("nan"), "b": [1.0, float("inf")]})
    {'a': None, 'b': [1.0, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list | tuple) else value


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(finite(dict(row)), separators=(",", ":")) + "\n"


def read(path: str | Path) -> History:
    """Read a run's folder, or the file in it; a last line that a killed process left unfinished is passed over."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.exists():
        raise DataError(f"there is no run at {path}; expected a folder with a {FILE}, as Monitor(..., run=FOLDER) writes.")
    rows = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(
                f"line {len(rows) + 1} of {path} is not a row: {line[:40]!r}; expected one JSON object per line."
            ) from error
    return History(rows)


class Appender:
    """Appends rows to a run's file, each by one write that the operating system has before the next step begins."""

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / FILE
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Append one row."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, _line(row).encode())
        finally:
            os.close(descriptor)

    def rewind(self, step: int) -> None:
        """Keep the whole rows up to a step, so that a resumed run continues there; the file is replaced whole or not at all."""
        if self.path.exists():
            History([row for row in read(self.path) if row["step"] <= step]).save(self.path)

    def rotate(self) -> None:
        """Put an earlier run's file aside under the first free name `history-1.jsonl`, `history-2.jsonl`, ..."""
        if not self.path.exists():
            return
        number = 1
        while (aside := self.path.with_name(f"history-{number}.jsonl")).exists():
            number += 1
        self.path.rename(aside)


Writer = Callable[[Row], None]
