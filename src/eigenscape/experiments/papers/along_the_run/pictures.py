"""Loss above and sharpness below, for several runs in one column: the picture that the figures of this folder share."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from ....report.style import AMBER, BLUE, GREEN, PURPLE, VERMILLION, log_axis
from ...machine import Rows

COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, AMBER)


def column(
    axes: Sequence[Axes], runs: Mapping[str, Rows], title: str, *, value: str = "sharpness", edge: str = "threshold"
) -> None:
    """Draw runs by their labels into two axes, each with its threshold as a dashed line in its colour."""
    above, below = axes
    for colour, (label, rows) in zip(COLOURS, runs.items()):
        above.plot(rows["step"], rows["loss"], color=colour, linewidth=1.2)
        below.plot(rows["step"], rows[value], color=colour, linewidth=1.2, label=label)
        below.plot(rows["step"], rows[edge], color=colour, linewidth=1.0, linestyle="--")
    log_axis(above, "y")
    above.set(title=title)
    below.set(xlabel="step")
