"""Rows as tables: cells of text, and Markdown."""

import math
from collections.abc import Sequence
from typing import Any

from .suite import Row, Suite

DIGITS = 3


def cell(value: Any) -> str:
    """Write one value.

    >>> [cell(v) for v in (1.23456, 12345.678, 2e-7, 7, True, False, None, "auto")]
    ['1.23', '12,346', '2.0e-07', '7', 'yes', 'no', '', 'auto']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return real(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def real(value: float) -> str:
    """Write a number with three digits, all digits before the point."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:,.{max(0, DIGITS - 1 - math.floor(math.log10(abs(value))))}f}"


def marked(row: Row, column: str) -> str:
    """One cell; the word of a wrong answer is loud."""
    return "WRONG" if column == "right" and row.get("right") is False else cell(row.get(column))


def filled(suite: Suite, rows: Sequence[Row]) -> list[str]:
    """Columns that have something to show."""
    return [c for c in suite.columns if any(row.get(c) is not None for row in rows)]


def markdown(suite: Suite, rows: Sequence[Row]) -> str:
    """Write the table in Markdown."""
    columns = filled(suite, rows)
    lines = [columns, ["---"] * len(columns), *([marked(row, c).replace("|", "\\|") for c in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
