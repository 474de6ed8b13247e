"""Figures of the [poster] of [closed-form]: what sharpness is made of, and its picture of the ReLU spectrum."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from ...report.numbers import number
from ...report.style import AMBER, BLUE, GREEN, INK, VERMILLION, canvas, log_axis, styled
from ...theory import scalar_linear_parts
from ..ledger.oracle import hessians, normal
from ..machine import Experiment, Figure, Row, Rows, Verdict, stream
from .closed_form.cells import CELLS
from .closed_form.nets import default_weights, loss
from .judging import EXACT, verdict

PARTS = {
    "imbalance": (VERMILLION, "norms of the layers differ"),
    "non_collinearity": (AMBER, "directions of the layers differ"),
    "deviation": (GREEN, "map differs from half the target"),
    "norm": (BLUE, "norm of all parameters"),
}


@dataclass(frozen=True)
class Followed:
    """Gradient descent of a scalar network of some width on noisy data, from PyTorch's initialisation."""

    width: int
    seed: int
    lr: float = 0.02
    steps: int = 1000
    samples: int = 50


def cells(profile: str) -> list[Followed]:
    """Two widths, more seeds at larger profiles."""
    seeds = {"smoke": 2, "quick": 20, "paper": 200}[profile]
    return [Followed(width, seed) for width in (2, 50) for seed in range(seeds)]


def measure(cell: Followed, device: torch.device) -> list[Row]:
    """The four parts of the sharpness along the run, and the largest eigenvalue by automatic differentiation."""
    generator = stream(cell)
    theta = default_weights(cell.width, generator).to(device)
    x, noise = (normal(generator, cell.samples).to(device) for _ in range(2))
    y, kept = 2 * x + 0.5 * noise, {0, *np.geomspace(1, cell.steps, 25).round().astype(int).tolist()}
    slope, visited = torch.func.grad(loss("linear")), {}
    for step in range(cell.steps + 1):
        if step in kept:
            visited[step] = theta
        theta = theta - cell.lr * slope(theta, x, y)
    thetas = torch.stack(list(visited.values()))
    v, w = thetas.chunk(2, -1)
    parts = scalar_linear_parts(w, v, x, y)
    tops = torch.linalg.eigvalsh(hessians(loss("linear"), thetas, *(A.expand(len(thetas), -1) for A in (x, y))))[:, -1]
    shown = _shares(parts.imbalance, parts.non_collinearity, parts.deviation, parts.overall)
    return [
        {"step": step, "measured": float(top), "sharpness": float(sum(values))} | dict(zip(PARTS, values))
        for step, top, values in zip(visited, tops, shown.tolist())
    ]


def _shares(*parts: Tensor) -> Tensor:
    """Summands of the sharpness: half the trace, and half the root, cut in proportion to the squares under it."""
    *squares, overall = parts
    root = sum(squares, torch.zeros_like(overall)).sqrt()
    return torch.stack([*(s / root.clamp(min=1e-300) / 2 for s in squares), overall / 2], -1)


EXPERIMENT = Experiment("poster/parts", cells, measure)


@styled
def draw(rows: Rows) -> Drawing:
    """Summands of the sharpness of one network of each width, stacked, with the measured sharpness on top."""
    fig = canvas(8.6, 4.0)
    axes = fig.subplots(1, 2)
    for ax, (width, part) in zip(axes, rows.where(seed=0).by("width")):
        _stack(ax, part)
        ax.set(title=f"Width {width}", xlabel="step of descent (+ 1)")
    axes[0].set_ylabel("sharpness")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def _stack(ax: Axes, rows: Rows) -> None:
    step = rows["step"] + 1
    ax.stackplot(
        step,
        *(rows[name] for name in reversed(PARTS)),
        colors=[PARTS[name][0] for name in reversed(PARTS)],
        labels=[PARTS[name][1] for name in reversed(PARTS)],
        alpha=0.75,
        linewidth=0,
    )
    ax.plot(step, rows["measured"], "o", color=INK, markersize=3, label="largest eigenvalue, autograd")
    log_axis(ax, "x")
    ax.set(xlim=(1, step.max()), ylim=(0, None))


def claims(rows: Rows) -> list[Verdict]:
    """The four parts make the sharpness, and what is left of them at convergence."""
    error = float(np.abs(rows["sharpness"] / rows["measured"] - 1).max())
    last = rows.where(lambda row: row["step"] == row["steps"])
    share = {name: last[name] / last["sharpness"] for name in PARTS}
    first = rows.where(step=0)
    start = {name: float(np.median(first[name] / first["sharpness"])) for name in PARTS}
    least = min(PARTS, key=lambda name: float(np.median(share[name])))
    return [
        verdict(
            "sharpness is made of differences of the layers' norms and directions, of the target captured, and of the norm",
            "[poster]",
            paper="these four",
            ours=f"their sum is the largest eigenvalue of dense Hessians to {number(error, 2)}; medians of their shares at the "
            + "start: "
            + ", ".join(f"{PARTS[name][1]} {value:.0%}" for name, value in start.items()),
            holds=error < EXACT,
            why="with the factor σ² that the poster's formula lacks; the root is cut in proportion to the squares under it",
        ),
        verdict(
            "at convergence half of the sharpness is the norm of the parameters",
            "ours",
            paper="-",
            ours=f"{share['norm'].min():.4f} to {share['norm'].max():.4f}; least of the others: {PARTS[least][1]}, median "
            f"{np.median(share[least]):.2%}",
            holds=float(np.abs(share["norm"] - 0.5).max()) < 1e-3,
            why="one outlier remains, equal to the trace, of which the norm is the half",
        ),
    ]


MADE_OF = Figure(
    "poster/parts",
    "What sharpness is made of",
    "[poster]",
    [EXPERIMENT],
    draw,
    claims,
    "The larger outlier is half the trace plus half the root of three squares. The root is cut in proportion to the "
    "squares, so that the areas add up to the sharpness; dots are measured.",
)


def _of_cells(rows: Rows) -> list[Verdict]:
    """Of the claims on these networks, the one that the poster makes."""
    return [replace(v, source="[poster] key result (ReLU)") for v in CELLS.claims(rows) if "block per cell" in v.claim]


RELU = replace(CELLS, id="poster/relu", source="[poster], [closed-form] Fig. 2", claims=_of_cells)

FIGURES = (MADE_OF, RELU)
