"""[closed-form] Fig. 2: the spectrum of a ReLU network, eigenvalue by eigenvalue from the cell that it comes from."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ....report.numbers import number
from ....report.style import AMBER, BLUE, INK, MUTED, VERMILLION, canvas, styled
from ....theory import scalar_relu
from ...ledger.oracle import hessians, normal
from ...machine import Experiment, Figure, Row, Rows, Verdict, stream
from ..judging import EXACT, listed, verdict
from .nets import default_weights, loss

SIDES = {1: ("positive cell", BLUE, "o"), -1: ("negative cell", VERMILLION, "s"), 0: ("both", AMBER, "^")}


@dataclass(frozen=True)
class Neurons:
    """A ReLU network with `positive` of its m neurons in the positive cell, on Gaussian data with a kinked target."""

    positive: int
    seed: int
    width: int = 10
    samples: int = 60


def cells(profile: str) -> list[Neurons]:
    """Every number of positive neurons."""
    seeds = {"smoke": 2, "quick": 10, "paper": 50}[profile]
    return [Neurons(q, s) for q in range(11) for s in range(seeds)]


def measure(cell: Neurons, device: torch.device) -> list[Row]:
    """Eigenvalues by autograd, where their eigenvectors live, the exact ones, and those of Corollary 5 as printed."""
    generator = stream(cell)
    theta = default_weights(cell.width, generator)
    theta[: cell.width] = theta[: cell.width].abs() * torch.where(torch.arange(cell.width) < cell.positive, 1.0, -1.0)
    x = normal(generator, cell.samples)
    y = torch.where(x > 0, 2.0, -0.5) * x + 0.3 * normal(generator, cell.samples)
    theta, x, y = (t.to(device) for t in (theta, x, y))
    v, w = theta.chunk(2)
    H = hessians(loss("relu"), theta[None], x[None], y[None])[0]
    measured, vectors = torch.linalg.eigh(H)
    exact, labels = listed(scalar_relu(w, v, x, y))
    share = vectors.square()[(v > 0).repeat(2)].sum(0)  # of each eigenvector on the parameters of the positive cell
    across = H[(v > 0).repeat(2)][:, (v < 0).repeat(2)].abs().sum()  # what couples the cells
    printed = corollary(w, v, x, y)
    return [
        {"rank": i, "measured": a, "exact": b, "share": p, "label": label, "printed": c, "across": float(across)}
        for i, (a, b, p, label, c) in enumerate(zip(measured.tolist(), exact.tolist(), share.tolist(), labels, printed))
    ]


def corollary(w: torch.Tensor, v: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> list[float | None]:
    """Eigenvalues by Corollary 5 as printed, ascending; None for all where it asks for a multiplicity of -1."""
    n, values = len(x), []
    for own, seen in ((v > 0, x > 0), (v <= 0, x <= 0)):
        q, count = int(own.sum()), int(seen.sum())
        if q == 0:
            return [None] * (2 * len(w))
        s2, yx = x[seen].square().mean(), (y * x)[seen].mean()
        W, V, c = w[own].square().sum(), v[own].square().sum(), (w * v)[own].sum()
        dx = s2 * c - yx
        half = ((s2 * (W + V)).square() + 4 * (dx.square() + 2 * s2 * dx * c)).sqrt()
        pair = [s2 * (W + V) + half, s2 * (W + V) - half]
        values += [count / n * float(p) / 2 for p in pair] + [count / n * float(dx) * s for s in (1, -1)] * (q - 1)
    return sorted(values)


@styled
def draw(rows: Rows) -> Drawing:
    """The spectrum at six positive neurons of ten, and the largest eigenvalue of each cell against their number."""
    fig = canvas(9.0, 3.8)
    left, right = fig.subplots(1, 2, gridspec_kw={"width_ratios": [3, 2]})
    _draw_spectrum(left, rows.where(positive=6, seed=0))
    _draw_tops(right, rows.where(seed=0))
    return fig


def _draw_spectrum(ax: Axes, rows: Rows) -> None:
    ax.axhline(0, color=MUTED, linewidth=0.8, linestyle=":")
    side = _side(rows)
    for sign, (name, colour, marker) in SIDES.items():
        here = side == sign
        if here.any():
            ax.plot(rows["rank"][here], rows["measured"][here], marker, color=colour, markersize=6, label=f"{name}, autograd")
    ax.plot(rows["rank"], rows["exact"], "_", color=INK, markersize=13, markeredgewidth=1.3, label="closed form")
    ax.set_yscale("symlog", linthresh=0.3, linscale=1.5)
    ax.set_yticks([-1, -0.2, 0, 0.2, 1, 3], ["−1", "−0.2", "0", "0.2", "1", "3"])
    ax.minorticks_off()
    ax.margins(y=0.08)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="rank, from the most negative", ylabel="eigenvalue λ", title="Width 10, 6 neurons in the positive cell")
    ax.legend(loc="upper left")


def _side(rows: Rows) -> np.ndarray:
    """1 and -1 for an eigenvector of the positive or negative cell alone, 0 for one of both."""
    share = rows["share"]
    return np.where(share > 1 - 1e-9, 1, np.where(share < 1e-9, -1, 0))


def _draw_tops(ax: Axes, rows: Rows) -> None:
    for sign in (1, -1):
        name, colour, marker = SIDES[sign]
        found = {q: part["measured"][_side(part) == sign] for q, part in rows.by("positive")}
        tops = {q: values.max() for q, values in found.items() if len(values)}
        ax.plot(list(tops), list(tops.values()), marker=marker, color=colour, label=name, markersize=6)
    best = [(q, part["exact"].max()) for q, part in rows.by("positive")]
    ax.plot(*zip(*best), "_", color=INK, markersize=14, markeredgewidth=1.5, label="closed form, larger of both")
    ax.set(xlabel="neurons in the positive cell", ylabel="largest eigenvalue", title="Largest eigenvalue by cell")
    ax.set_ylim(0, 1.45 * max(value for _, value in best))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(loc="upper center")


def claims(rows: Rows) -> list[Verdict]:
    """Decoupling, the corollary, and the largest eigenvalue."""
    networks = [part for _, part in rows.by("positive", "seed")]
    inner, edge = (
        [part for part in networks if (0 < part["positive"][0] < part["width"][0]) == flag] for flag in (True, False)
    )
    mixed = sum(int((_side(part) == 0).sum()) for part in networks)
    printed = max(_gap(part, "printed") for part in inner)
    exact = max(_gap(part, "exact") for part in networks)
    return [
        verdict(
            "the Hessian falls into one block per cell",
            "[closed-form] Thm. 4, Fig. 2",
            paper="decoupled",
            ours=f"entries between the cells: {number(float(rows['across'].max()), 2)}; eigenvectors on both cells: {mixed} of "
            f"{len(rows)}",
            holds=float(rows["across"].max()) == 0 and mixed == 0,
            why=f"{len(networks)} networks of width 10, Hessians by autograd",
        ),
        verdict(
            "Corollary 5 lists the eigenvalues, q - 1 and m - q - 1 times in signed pairs, and four outliers",
            "[closed-form] Cor. 5, Fig. 2",
            paper="for any q",
            ours=f"0 < q < m: off by {number(printed, 2)}; q = 0 or q = m ({len(edge)} networks): it asks for -1 copies, "
            f"while dropping the empty cell is right to {number(exact, 2)}",
            holds=False,
            partly=printed < EXACT and exact < EXACT,
            why="a cell without neurons has no eigenvalues at all",
        ),
        verdict(
            "the largest eigenvalue is the larger outlier of the two cells",
            "[closed-form] Cor. 5",
            paper="max over cells",
            ours=f"{sum(_top_is_outlier(part) for part in networks)} of {len(networks)} networks",
            holds=all(_top_is_outlier(part) for part in networks),
        ),
    ]


def _gap(rows: Rows, column: str) -> float:
    return float(np.abs(rows[column].astype(float) - rows["measured"]).max() / max(1.0, np.abs(rows["measured"]).max()))


def _top_is_outlier(rows: Rows) -> bool:
    return rows["label"][np.argmax(rows["exact"])] == "outlier" and _gap(rows, "exact") < EXACT


CELLS = Figure(
    id="closed-form/fig2",
    title="The spectrum of a ReLU network, by cells",
    source="[closed-form] Fig. 2, [poster]",
    experiments=(Experiment("closed-form/cells", cells, measure),),
    draw=draw,
    claims=claims,
    reading="Colours say on which neurons the eigenvector lies, found from the dense Hessian; dashes are the closed form. Two "
    "outliers and a bulk in signed pairs come from each cell.",
)
