"""The phase diagram of the scalar network, drawn and judged."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Drawing

from ....report.style import AMBER, BLUE, GREEN, GRID, INK, MUTED, PURPLE, canvas, log_axis, styled
from ...machine import Figure, Rows, Verdict
from ..judging import verdict
from .phases import CATAPULTS, CONVERGES, DIVERGES, EDGE, LADDER, LAST, LETTERS, MAP, NORMS, OUTCOMES, PLAIN, SEGMENT, SLOW

LOOKS = {
    CONVERGES: (BLUE, "converges"),
    CATAPULTS: (AMBER, "catapults, then converges"),
    SLOW: (PURPLE, "still descends at the end"),
    EDGE: (GREEN, "keeps swinging: edge of stability"),
    DIVERGES: (GRID, "diverges"),
}


def outcomes(rows: Rows) -> np.ndarray:
    """Indices into OUTCOMES, learning rates along the second axis."""
    index = {letter: i for i, letter in enumerate(LETTERS)}
    ordered = sorted(rows, key=lambda row: row["lr"])
    return np.array([[index[letter] for letter in row["outcomes"]] for row in ordered]).T


@styled
def draw(table: Mapping[str, Rows]) -> Drawing:
    """The map with lines that theory draws, and late iterates against the learning rate."""
    fig = canvas(10.0, 4.6)
    left, right = fig.subplots(1, 2, width_ratios=[1.15, 1])
    _draw_map(left, outcomes(table[MAP.name]))
    ladder = table[LADDER.name]
    for row in ladder:
        late = np.array(row["late"].split(), dtype=float)
        right.plot(
            np.full(len(late), row["lr"]), late, ".", color=BLUE, alpha=0.5, markersize=1.6, markeredgewidth=0, rasterized=True
        )
    right.axhline(1, color=INK, linestyle="--", linewidth=1)
    right.axvline(1, color=MUTED, linestyle=":", linewidth=1.2)
    right.set(
        xlim=(0, LAST),
        ylim=(0, None),
        xlabel="learning rate × |mean yx|",
        ylabel="sharpness × learning rate / 2",
        title="Late steps, small initial norm",
    )
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return fig


def _draw_map(ax: Axes, image: np.ndarray) -> None:
    colours = ListedColormap([LOOKS[name][0] for name in OUTCOMES])
    lr = LAST * np.arange(1, image.shape[1] + 1) / image.shape[1]
    norm = np.geomspace(*NORMS, image.shape[0])
    ax.pcolormesh(
        lr, norm, image, cmap=colours, vmin=-0.5, vmax=len(OUTCOMES) - 0.5, shading="nearest", rasterized=True, zorder=0
    )
    for name in OUTCOMES:
        if (image == OUTCOMES.index(name)).any():
            ax.plot([], [], "s", color=LOOKS[name][0], label=LOOKS[name][1])
    start = (norm + np.sqrt(norm**2 + 4)) / 2  # sharpness at <w, v> = 0
    for factor, style in ((2, "--"), (4, "-.")):
        ax.plot(factor / start, norm, color=INK, linestyle=style, linewidth=1.2, label=f"{factor} / initial sharpness")
    ax.axvline(1, color=INK, linestyle=":", linewidth=1.4, label="1 / |mean yx|: no stable minimum beyond")
    log_axis(ax, "y")
    ax.grid(visible=False)
    ax.set(
        xlim=(lr[0], LAST),
        ylim=NORMS,
        xlabel="learning rate × |mean yx|",
        ylabel="initial |w|² + |v|², × mean x² / |mean yx|",
        title="What becomes of each run",
    )


def claims(table: Mapping[str, Rows]) -> list[Verdict]:
    """What the largest stable learning rate does and does not promise, and the map against plain descent."""
    rows, plain, ladder = (table[e.name] for e in (MAP, PLAIN, LADDER))
    image, lr = outcomes(rows), np.sort(rows["lr"])
    settled = np.isin(image, [OUTCOMES.index(CONVERGES), OUTCOMES.index(CATAPULTS)])
    beyond, below = settled[:, lr > 1], image[:, lr < 1]
    lost = float((below == OUTCOMES.index(DIVERGES)).mean())
    same = int((plain["mapped"] == plain["plain"]).sum())
    top = float(np.nanmax(rows["settled_high"].astype(float)))
    swing = rows["swinging_low"].astype(float), rows["swinging_high"].astype(float)
    doubling = ladder.where(period=2)["lr"]
    wild = ladder.where(period=0)
    shares = ", ".join(f"{(image == i).mean():.0%} {name}" for i, name in enumerate(OUTCOMES))
    return [
        verdict(
            "the exact map of two numbers is gradient descent on all weights",
            "ours",
            paper="-",
            ours=f"the same outcome in {same} of {len(plain)} random runs of width {plain['width'][0]}",
            holds=same == len(plain),
            partly=same >= 0.99 * len(plain),
            why="runs at the border of two outcomes may be sorted either way by rounding",
        ),
        verdict(
            "no run converges with a learning rate above 1 / |mean yx|",
            "ours",
            paper="-",
            ours=f"{int(beyond.sum()):,} of {beyond.size:,} runs",
            holds=not beyond.any(),
            why=f"{image.size:,} runs: {shares}",
        ),
        verdict(
            "below it, runs that start from large weights diverge all the same",
            "ours",
            paper="-",
            ours=f"{lost:.0%} of the runs below it diverge",
            holds=lost > 0,
            why="the condition is necessary, not sufficient",
        ),
        verdict(
            "runs that converge end no sharper than 2 / lr",
            "ours",
            paper="-",
            ours=f"sharpness over 2 / lr: at most {top:.4g}",
            holds=top <= 1 + 1e-6,
        ),
        verdict(
            "runs that keep swinging hover at 2 / lr",
            "ours",
            paper="-",
            ours=f"sharpness over 2 / lr, mean of the last {SEGMENT} steps: {np.nanmin(swing[0]):.3g} to "
            f"{np.nanmax(swing[1]):.3g}",
            holds=np.nanmin(swing[0]) > 0.9 and np.nanmax(swing[1]) < 1.1,
            partly=np.nanmin(swing[0]) > 0.5,
            why="close to the largest stable rate they do; far beyond it they are sharper, on average, than is stable",
        ),
        verdict(
            "beyond the largest stable rate a fixed point gives way to a cycle of two, then to chaos, then to divergence",
            "ours",
            paper="-",
            ours=f"cycles of two from lr |mean yx| = {doubling.min():.3f} to {doubling.max():.3f}; no cycle of up to 8 in "
            f"{len(wild)} of {len(ladder)} learning rates, the last finite one at {ladder['lr'].max():.3f}",
            holds=abs(float(doubling.min()) - 1) < 0.03 and len(wild) > 0 and float(ladder["lr"].max()) < 2.01,
        ),
    ]


FIGURE = Figure(
    "beyond/phases",
    "What gradient descent does, by learning rate and initial norm",
    "ours",
    [MAP, LADDER, PLAIN],
    draw,
    claims,
    "Left: every point is a run of the scalar network on any data, in units in which mean x² = mean yx = 1. Right: the last "
    "steps of runs from a small norm: one dot where they converge, two where they swing between two points, many where they "
    "never repeat.",
)
