"""What a benchmark is: a name, a function that measures and returns flat rows, the columns of its table, and its bars."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Bars:
    """What a suite's figure shows: one bar per row that has the column `length`, or its note where it has none.

    - label: of the axis of lengths, with its unit.
    - by: the columns that name a bar.
    - panels: the columns whose values make a panel; the last of them varies from left to right.
    - ours: how the names of our own bars begin.

    A row whose `right` is False is drawn hatched and marked as wrong.
    """

    length: str = "gradients"
    label: str = "cost, in gradients of the same loss on the same data"
    by: Sequence[str] = ("contestant",)
    panels: Sequence[str] = ("network",)
    ours: tuple[str, ...] = ("eigenscape",)


@dataclass(frozen=True)
class Suite:
    """One benchmark of `eigenscape bench`.

    - run: (say, brief) -> rows, as they come. It interleaves the contestants, takes medians, and checks each answer beside its
      time; `say` takes a sentence of progress; `brief` asks for the smallest sizes, to see that everything runs.
    - columns: what its table shows of each row, in order.
    - notes: sentences under the table: the unit, what counts as right, what was predicted.
    - bars: what its figure shows; without it there is none.
    """

    name: str
    title: str
    run: Callable[[Say, bool], Iterable[Row]]
    columns: Sequence[str]
    notes: Sequence[str] = field(default_factory=tuple)
    bars: Bars | None = None
