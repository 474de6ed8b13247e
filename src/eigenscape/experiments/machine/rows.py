"""Rows as columns: what figures and verdicts read."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .experiment import Row


class Rows(Sequence[Row]):
    """A table of flat rows, each with its config's fields and what was measured.

    >>> rows = Rows([{"width": m, "seed": s, "top": t} for m, s, t in ((10, 0, 1.0), (10, 1, 3.0), (20, 0, 5.0))])
    >>> rows.where(width=10)["top"].mean()
    np.float64(2.0)
    >>> [(width, len(part)) for width, part in rows.by("width")]
    [(10, 2), (20, 1)]
    """

    def __init__(self, rows: Sequence[Row]):
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, key: Any) -> Any:
        """A column by its name, as an array; a row by its number. A row without the column has NaN there."""
        if isinstance(key, str):
            if not any(key in row for row in self._rows):
                raise KeyError(
                    f"no row has a column {key!r}; there are: {', '.join(sorted({k for r in self._rows for k in r}))}"
                )
            return np.array([row.get(key, np.nan) for row in self._rows])
        return self._rows[key]

    def where(self, condition: Callable[[Row], bool] | None = None, **values: Any) -> "Rows":
        """Rows whose columns have these values, and of which the condition holds."""
        return Rows(
            [
                row
                for row in self._rows
                if all(k in row and row[k] == v for k, v in values.items()) and (condition is None or condition(row))
            ]
        )

    def by(self, *names: str) -> list[tuple[Any, "Rows"]]:
        """Groups with equal values in these columns, sorted by them; the value itself for one column, a tuple for several."""
        groups: dict[tuple, list[Row]] = {}
        for row in self._rows:
            groups.setdefault(tuple(row.get(n) for n in names), []).append(row)
        order = sorted(groups, key=lambda values: [(v is None, str(type(v)) if isinstance(v, str) else "", v) for v in values])
        return [(values[0] if len(names) == 1 else values, Rows(groups[values])) for values in order]
