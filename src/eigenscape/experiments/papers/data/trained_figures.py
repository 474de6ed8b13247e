"""Sharpness against the share of the largest class: [data] Fig. 1 right and Fig. 2, and against the number of samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from ....report.style import INK, MUTED, canvas, log_axis, styled
from ...machine import Figure, Rows
from .pictures import LOOKS, RAW, WHITE
from .sample_claims import claims as sample_claims
from .trained_claims import labels_claims, raw_claims, start_claims, tanh_claims
from .training import DEPTH, TRAINED, Trained

SHARE = "share of the largest class"


def curve(rows: Rows, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Means over seeds."""
    found = [(part["share"].mean() if x == "share" else key, part[y].mean()) for key, part in rows.by(_knob(x))]
    return tuple(np.array(found).T)  # type: ignore[return-value]


def _knob(x: str) -> str:
    return "largest" if x == "share" else x


def sets_there(rows: Rows) -> list[tuple[str, Rows, str, str, str]]:
    """Rows of each set with its title, colour and marker, in the order of the table of looks."""
    parts = dict(rows.by("images"))
    return [(name, parts[name], *look) for name, look in LOOKS.items() if name in parts]


def _eq14(ax: Axes) -> None:
    share = np.linspace(0.08, 0.95, 100)
    ax.plot(
        share, DEPTH * share ** (1 - 1 / DEPTH), color=INK, linestyle="--", linewidth=1.2, label="eq. 14, from labels alone"
    )


@dataclass(frozen=True)
class Panel:
    """A picture with one curve of trained networks per set, and predictions as lines."""

    title: str
    lines: str | None = "from_data"
    said: str = "from inputs and labels"

    def __call__(self, rows: Rows) -> Drawing:
        """Draw."""
        fig = canvas(7.6, 4.2)
        ax = fig.subplots()
        _eq14(ax)
        for _, part, title, colour, marker in sets_there(rows):
            for start, filled in (("balanced", colour), ("sp", "white")):
                runs = part.where(start=start)
                if len(runs):
                    late = "" if start == "balanced" or len(part.by("start")) == 1 else ", PyTorch's start"
                    ax.plot(
                        runs["share"],
                        runs["sharpness"],
                        marker,
                        color=colour,
                        markerfacecolor=filled if late else colour,
                        label=f"{title}{late}",
                        markersize=6,
                    )
            if self.lines:
                ax.plot(*curve(part, "share", self.lines), color=colour, linewidth=1.2)
        if self.lines:
            ax.plot([], [], color=MUTED, linewidth=1.2, label=self.said)
        ax.set(xlabel=SHARE, ylabel="sharpness", title=self.title, xlim=(0, 1), ylim=(0, None))
        fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
        return fig


def _draw_raw(rows: Rows) -> Drawing:
    there = sets_there(rows)
    fig = canvas(max(6.5, 2.3 + 2.0 * len(there)), 4.0)
    axes = np.atleast_1d(fig.subplots(1, len(there), sharey=True))
    for ax, (_, part, title, colour, marker) in zip(axes, there):
        _eq14(ax)
        ax.plot(*curve(part, "share", "from_data"), color=colour, linestyle=":", label="balanced minimum, from data alone")
        ax.plot(*curve(part, "share", "at_map"), color=colour, label="balanced formula, trained map")
        ax.plot(part["share"], part["sharpness"], marker, color=colour, label="trained", markersize=6)
        log_axis(ax, "y")
        ax.set(title=title.replace(", ", ",\n"), xlim=(0, 1), xlabel="largest class" if len(there) > 1 else SHARE)
    axes[0].set_ylabel("sharpness")
    names = [
        Line2D([], [], color=MUTED, marker="o", linestyle="none", label="trained"),
        Line2D([], [], color=MUTED, label="balanced formula at the trained map"),
        Line2D([], [], color=MUTED, linestyle=":", label="balanced minimum, from data alone"),
        Line2D([], [], color=INK, linestyle="--", linewidth=1.2, label="eq. 14"),
    ]
    fig.legend(handles=names, loc="outside lower center", ncols=2 if len(there) < 3 else 4)
    return fig


def _draw_samples(rows: Rows) -> Drawing:
    fig = canvas(7.6, 4.2)
    ax = fig.subplots()
    for _, part, title, colour, marker in sets_there(rows):
        ax.plot(*curve(part, "n", "from_data"), color=colour, linewidth=1.2)
        ax.plot(part["n"], part["sharpness"], marker, color=colour, label=f"{title}, {int(part['features'].max())} features")
    n, printed = curve(rows, "n", "printed")
    ax.plot(n, printed, color=INK, linestyle="--", linewidth=1.2, label="eq. 14, from labels alone")
    ax.plot([], [], color=MUTED, linewidth=1.2, label="from inputs and labels")
    log_axis(ax, "x")
    ax.set(xlabel="number of samples n", ylabel="sharpness", title="Half of the samples in one class", ylim=(0, None))
    fig.legend(*ax.get_legend_handles_labels(), loc="outside right upper")
    return fig


def _only(condition: Callable[[Trained], bool], sizes: bool = False) -> dict[str, Callable[[Trained], bool]]:
    return {TRAINED.name: lambda cell: (cell.seed >= 100) == sizes and condition(cell)}


def _linear(inputs: str, start: str) -> dict[str, Callable[[Trained], bool]]:
    return _only(lambda c: (c.inputs, c.start, c.activation) == (inputs, start, "linear"))


FIGURES = (
    Figure(
        "data/fig1-right",
        "Sharpness of trained networks against the share of the largest class",
        "[data] Fig. 1 right",
        [TRAINED],
        styled(Panel("White inputs, balanced weights")),
        labels_claims,
        "Each mark is a network of four linear layers of width 64 after training. Eq. 14 knows the labels alone and is an "
        "upper bound; the lines know how much of the labels the inputs can tell.",
        _linear(WHITE, "balanced"),
    ),
    Figure(
        "data/fig2-left",
        "The same on raw inputs",
        "[data] Fig. 2 left",
        [TRAINED],
        styled(_draw_raw),
        raw_claims,
        "Eq. 14 needs white inputs. The balanced formula does not: at the map that training reached it gives the sharpness "
        "(full lines). The minimum itself (dotted) is far away, in directions that these steps do not learn.",
        _linear(RAW, "balanced"),
    ),
    Figure(
        "data/fig2-middle",
        "The same from PyTorch's initialisation",
        "[data] Fig. 2 middle",
        [TRAINED],
        styled(Panel("White inputs, PyTorch's initialisation", said="balanced minimum")),
        start_claims,
        "Layers that begin out of balance stay so: the trend with the largest class is that of balanced layers, the sharpness "
        "is larger.",
        _linear(WHITE, "sp"),
    ),
    Figure(
        "data/fig2-right",
        "The same with tanh between the layers",
        "[data] Fig. 2 right",
        [TRAINED],
        styled(Panel("White inputs, tanh", said="linear network, balanced")),
        tanh_claims,
        "Networks of the same sizes with tanh. The lines are the balanced minima of the linear network on the same data. The "
        "caption says unbalanced, the appendix balanced: both are shown.",
        _only(lambda c: c.activation == "tanh"),
    ),
    Figure(
        "data/samples",
        "Does the sharpness depend on the number of samples?",
        "[data] Sec. 4",
        [TRAINED],
        styled(_draw_samples),
        sample_claims,
        "White inputs, half of the samples in one class. Below as many samples as features the labels are linear functions "
        "of the inputs and eq. 14 is right; beyond, the sharpness falls to what inputs tell of labels, for noise to nearly "
        "nothing.",
        _only(lambda c: True, sizes=True),
    ),
)
