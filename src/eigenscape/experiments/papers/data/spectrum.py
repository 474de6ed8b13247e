"""[data] Fig. 1 left: all eigenvalues at a balanced solution, from the labels alone."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing

from ....report.numbers import number
from ....report.style import BLUE, INK, VERMILLION, canvas, log_axis, styled
from ....theory import balanced_minimum, balanced_white, sample_balanced_weights, whiten
from ....theory.balanced import RANK_TOL
from ...ledger.oracle import normal
from ...machine import Experiment, Figure, Row, Rows, Verdict, stream
from ..judging import EXACT, verdict
from .dense import chain_eigenvalues

SCALE = 3.0  # sigma_x of App. C
LEVELS = (0.0, 0.5)
NEAR = 1e-8  # rounding of small singular values, raised to the power 2 / L


@dataclass(frozen=True)
class Solution:
    """A balanced minimum of `depth` square layers on white Gaussian inputs; `noise` is that of the labels about the map."""

    size: int
    noise: float
    seed: int
    samples: int = 100
    depth: int = 5


def cells(profile: str) -> list[Solution]:
    """The paper's size, 20, but at smoke; without noise as in the paper, and with it."""
    size, seeds = {"smoke": (6, 2), "quick": (20, 3), "paper": (20, 20)}[profile]
    return [Solution(size, noise, seed) for noise in LEVELS for seed in range(seeds)]


def measure(cell: Solution, device: torch.device) -> list[Row]:
    """Every eigenvalue that is not zero, by automatic differentiation, from labels alone, and from inputs and labels."""
    generator, d, n = stream(cell), cell.size, cell.samples
    X = whiten(normal(generator, n, d), SCALE**2)
    t = torch.rand(d, generator=generator, dtype=torch.float64)
    maps = sample_balanced_weights(t, [d] * (cell.depth + 1), generator=generator)
    Y = X @ torch.linalg.multi_dot(maps[::-1]).T + cell.noise * normal(generator, n, d)
    minimum = balanced_minimum(X, Y, cell.depth, width=d, generator=generator)
    dense = chain_eigenvalues(minimum.weights, X, Y, device).flip(0)
    seen = torch.linalg.svdvals(Y) / (n**0.5 * SCALE)
    seen = torch.where(seen > RANK_TOL * seen[0], seen, 0.0).pow(1 / cell.depth)
    printed = balanced_white(seen, cell.depth, inputs=d, outputs=d, width=d, s2=SCALE**2)
    ours = minimum.spectrum.expand().flip(0)
    count = int((dense > 1e-10 * dense[0]).sum())
    shown = slice(0, max(count, d * d))
    columns = (dense[shown].tolist(), printed.expand().flip(0)[shown].tolist(), ours[shown].tolist())
    common = {"nonzero": count, "parameters": len(dense), "lowest": float(dense[-1])}
    return [common | {"rank": i, "measured": a, "labels": b, "data": c} for i, (a, b, c) in enumerate(zip(*columns))]


EXPERIMENT = Experiment("data/spectrum", cells, measure, version=2)


@styled
def draw(rows: Rows) -> Drawing:
    """Measured eigenvalues in order, with both predictions, without and with noise in the labels."""
    fig = canvas(8.6, 3.8)
    for ax, noise, title in zip(fig.subplots(1, 2), LEVELS, ("Labels a function of the inputs", "Labels with noise")):
        part = rows.where(noise=noise, seed=0)
        floor = 1e-6 * part["measured"].max()
        every = max(1, len(part) // 60)
        shown = (part["rank"] % every == 0) & (part["measured"] > floor)
        ax.plot(part["rank"][shown] + 1, part["measured"][shown], "o", color=BLUE, markersize=5, label="measured")
        for column, colour, style, name in (
            ("labels", VERMILLION, "--", "eq. 13, from labels alone"),
            ("data", INK, "-", "from inputs and labels"),
        ):
            ax.plot(part["rank"] + 1, np.maximum(part[column], floor), style, color=colour, linewidth=1.2, label=name)
        log_axis(ax, "y")
        ax.set(xlabel="rank, from the largest", title=title, ylim=(floor * 2, None))
    fig.axes[0].set_ylabel("eigenvalue λ")
    fig.axes[0].legend(loc="lower left")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """Eq. 13 without and with noise, and the number of eigenvalues that are not zero."""
    errors = {noise: {c: _error(rows.where(noise=noise), c) for c in ("labels", "data")} for noise in LEVELS}
    clean, noisy = (errors[noise] for noise in LEVELS)
    size, parameters = rows["size"].max(), rows["parameters"].max()
    return [
        verdict(
            "labels alone give every eigenvalue of a balanced solution",
            "[data] eq. 13, Fig. 1 left",
            paper="exact",
            ours=f"{number(clean['labels'], 2)} of the largest eigenvalue off at a loss of zero, {number(noisy['labels'], 2)} "
            "with noise in the labels",
            holds=max(clean["labels"], noisy["labels"]) < NEAR,
            partly=clean["labels"] < NEAR,
            why=f"dense Hessians of {parameters:,} parameters by automatic differentiation; with noise labels are no linear "
            "functions of the inputs",
        ),
        verdict(
            "inputs and labels give every eigenvalue at any loss",
            "ours",
            paper="needs a loss of zero",
            ours=f"{number(max(clean['data'], noisy['data']), 2)} of the largest eigenvalue off",
            holds=max(clean["data"], noisy["data"]) < EXACT,
        ),
        verdict(
            "at most as many eigenvalues are not zero as the narrowest layer squared",
            "[data] Sec. 3",
            paper=f"{size**2:,} for {size} x {size} layers",
            ours=f"{rows['nonzero'].min():,.0f} to {rows['nonzero'].max():,.0f} of {parameters:,}",
            holds=bool((rows["nonzero"] <= rows["size"] ** 2).all()),
            why="true where inputs and outputs are no wider than the narrowest layer, as here; data/counts has the others",
        ),
    ]


def _error(rows: Rows, column: str) -> float:
    """Largest difference over the largest eigenvalue, network by network."""
    return max(float(np.abs(p["measured"] - p[column]).max() / p["measured"].max()) for _, p in rows.by("seed"))


FIGURE = Figure(
    "data/fig1-left",
    "Every eigenvalue at a balanced solution",
    "[data] Fig. 1 left",
    [EXPERIMENT],
    draw,
    claims,
    "Five square layers on white inputs, at a balanced minimum. Where labels are linear functions of the inputs, their "
    "singular values are all one needs. With noise on the labels the dashed line is wrong and the full one is not.",
)
