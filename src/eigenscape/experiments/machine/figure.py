"""What is shown: a drawing and verdicts from the rows of one or more experiments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Drawing

from .experiment import Experiment
from .rows import Rows
from .verdict import Verdict


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, or one of ours: `draw` and `claims` read rows and compute nothing again.

    - id: `"paper/figure"`, as `"cracking/fig4"`; title: one line; source: as `[cracking] Figs. 4, 14`.
    - experiments: whose rows it reads; `select` narrows them, by experiment name, to what this figure shows.
    - draw, claims: from the rows of the first experiment, or from a mapping by experiment name where there are several.
    - reading: one or two sentences on how to read the picture.
    """

    id: str
    title: str
    source: str
    experiments: Sequence[Experiment]
    draw: Callable[[Any], Drawing]
    claims: Callable[[Any], list[Verdict]]
    reading: str = ""
    select: Mapping[str, Callable[[Any], bool]] | None = None

    def cells(self, profile: str) -> list[tuple[Experiment, Any]]:
        """Every cell that this figure needs, with its experiment."""
        chosen = self.select or {}
        return [(e, c) for e in self.experiments for c in e.cells(profile) if chosen.get(e.name, _every)(c)]

    def table(self, rows: Mapping[str, Rows]) -> Any:
        """What `draw` and `claims` take."""
        return rows[self.experiments[0].name] if len(self.experiments) == 1 else rows


def _every(cell: Any) -> bool:
    return True
