"""What a benchmark is: a name, a function that measures and returns flat rows, and the columns of its table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Suite:
    """One benchmark of `eigenscape bench`.

    - run: (say, brief) -> rows. It interleaves the contestants, takes medians, and checks each answer beside its time;
      `say` takes a sentence of progress; `brief` asks for the smallest sizes, to see that everything runs.
    - columns: what its table shows of each row, in order.
    - notes: sentences under the table: the unit, what counts as right, what was predicted.
    """

    name: str
    title: str
    run: Callable[[Say, bool], list[Row]]
    columns: Sequence[str]
    notes: Sequence[str] = field(default_factory=tuple)
