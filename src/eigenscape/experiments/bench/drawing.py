"""The figure of a suite: horizontal bars, one panel for each piece of work."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...report.style import AMBER, BLUE, GRID, INK, MUTED, canvas, log_axis, styled
from .suite import Bars, Row, Suite
from .table import real

BAR, PANEL, WIDTH, NAMES = 0.24, 0.7, 2.7, 2.3  # inches: of one bar, around a panel, of a panel, of the names beside it
SPREAD = 12  # longest over shortest bar from which on the axis is logarithmic
NOTE = 30  # characters of a note that stands in place of a bar


def draw(suite: Suite, rows: Sequence[Row]) -> Figure | None:
    """Draw the bars of a suite; None where there are none."""
    if suite.bars is None or not (lines := lines_of(suite.bars, rows)):
        return None
    return figure(suite.bars, lines)


def lines_of(bars: Bars, rows: Sequence[Row]) -> list[dict[str, dict[str, Row]]]:
    """Lines of panels, each panel by its title, its rows by their names; the last of `bars.panels` varies within a line."""
    lines: dict[tuple, dict[str, dict[str, Row]]] = {}
    for row in rows:
        if length_of(bars, row) is not None or row.get("note"):
            key = tuple(str(row.get(c, "")) for c in bars.panels)
            name = ", ".join(str(row[c]) for c in bars.by if row.get(c) is not None)
            lines.setdefault(key[:-1], {}).setdefault(": ".join(reversed(key)), {})[name] = row
    return [line for line in lines.values() if any(length_of(bars, r) for panel in line.values() for r in panel.values())]


def length_of(bars: Bars, row: Row) -> float | None:
    """Length of a row's bar, if it has one."""
    length = row.get(bars.length)
    return float(length) if isinstance(length, int | float) and math.isfinite(length) and length > 0 else None


@styled
def figure(bars: Bars, lines: list[dict[str, dict[str, Row]]]) -> Figure:
    """Draw every panel, and what the colours mean below them."""
    names = [list(dict.fromkeys(name for panel in line.values() for name in panel)) for line in lines]
    heights, across = [PANEL + BAR * len(some) for some in names], max(map(len, lines))
    fig = canvas(NAMES + WIDTH * across, sum(heights) + 0.7)
    axes = fig.subplots(len(lines), across, squeeze=False, gridspec_kw={"height_ratios": heights})
    for line, some, places in zip(lines, names, axes):
        for (title, rows), ax in zip(line.items(), places):
            panel(ax, title, [rows.get(name, {}) for name in some], bars)
            ax.set_yticks(range(len(some), 0, -1), some if ax is places[0] else [])
        for ax in places[len(line) :]:
            ax.set_visible(False)
    fig.suptitle(bars.label, fontsize=10)
    shown = {name: row for line in lines for rows in line.values() for name, row in rows.items()}
    wrong = any(row.get("right") is False for line in lines for rows in line.values() for row in rows.values())
    fig.legend(handles=key([colour(name, bars) for name in shown], wrong), loc="outside lower center", ncols=4)
    return fig


def panel(ax: Axes, title: str, rows: Sequence[Row], bars: Bars) -> None:
    """One panel: the first row on top; a note stands where a bar is missing."""
    lengths = [length_of(bars, row) for row in rows]
    known = [length for length in lengths if length is not None] or [1.0]
    logarithmic = max(known) > SPREAD * min(known)
    left = min(known) / 2 if logarithmic else 0.0
    for place, length, row in zip(range(len(rows), 0, -1), lengths, rows):
        wrong = row.get("right") is False
        if length is not None:
            name = ", ".join(str(row[c]) for c in bars.by if row.get(c) is not None)
            style = {"hatch": "////", "edgecolor": "white", "linewidth": 0} if wrong else {}
            ax.barh(place, length, height=0.7, color=colour(name, bars), **style)
            ax.text(length, place, f" {real(length)}" + ("  wrong" if wrong else ""), va="center", fontsize=8, color=INK)
        else:
            ax.text(left, place, f" {short(row.get('note', ''))}", va="center", fontsize=7.5, color=MUTED)
    if logarithmic:
        log_axis(ax, "x")
    ax.set_xlim(left, max(known) * (6 if logarithmic else 1.35))
    ax.set_ylim(0.4, len(rows) + 0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_title(title)


def short(note: str) -> str:
    """Cut a note to what fits."""
    return note if len(note) <= NOTE else note[: NOTE - 1].rstrip() + "…"


def colour(name: str, bars: Bars) -> str:
    """Ours, plain PyTorch, and the others."""
    return BLUE if name.startswith(bars.ours) else MUTED if name.startswith("torch") else AMBER


def key(colours: Sequence[str], wrong: bool) -> list[Patch]:
    """What the colours mean, of those that are there."""
    names = {BLUE: "Eigenscape", MUTED: "plain PyTorch", AMBER: "other libraries"}
    patches = [Patch(color=c, label=name) for c, name in names.items() if c in colours]
    return patches + [Patch(facecolor=GRID, edgecolor=MUTED, hatch="////", label="a wrong answer")] * wrong
