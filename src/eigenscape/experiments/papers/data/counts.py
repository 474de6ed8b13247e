"""How many eigenvalues are not zero: [data] Sec. 3 and App. B count the narrowest layer, and miss the rest."""

from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing

from ....report.style import BLUE, INK, VERMILLION, canvas, log_axis, styled
from ....theory import balanced_minimum, whiten
from ...ledger.oracle import normal
from ...machine import Experiment, Figure, Row, Rows, Verdict, stream
from ..judging import verdict
from .dense import chain_eigenvalues

BALANCED, SHALLOW = "balanced", "shallow"


@dataclass(frozen=True)
class Shape:
    """Sizes of a linear network, the rank of what it has to learn, and where its Hessian is taken.

    `balanced`: at the balanced minimum. `shallow`: two layers that fit their labels and are out of balance.
    """

    kind: str
    inputs: int
    width: int
    outputs: int
    depth: int
    rank: int
    seed: int = 0
    samples: int = 30

    @property
    def sizes(self) -> list[int]:
        """Of all layers."""
        return [self.inputs, *[self.width] * (self.depth - 1), self.outputs]


def cells(profile: str) -> list[Shape]:
    """Wide and narrow, deep and shallow, and ranks up to the largest."""
    outer = {"smoke": [(5, 3), (4, 4)], "quick": [(5, 3), (4, 4), (3, 8), (10, 2), (6, 6)]}
    chosen = outer.get(profile, [(5, 3), (4, 4), (3, 8), (10, 2), (6, 6), (20, 10), (10, 20)])
    deep = [
        Shape(BALANCED, d0, m, dL, depth, r)
        for d0, dL in chosen
        for depth in (2, 3, 4)
        for m in (max(d0, dL), 2)
        for r in range(1, min(d0, m, dL) + 1)
    ]
    return [*deep, *(Shape(SHALLOW, d0, m, dL, 2, min(d0, m, dL)) for d0, dL in chosen for m in (2, max(d0, dL), 12))]


def measure(cell: Shape, device: torch.device) -> list[Row]:
    """Count eigenvalues of the dense Hessian above rounding, beside the paper's bound and ours."""
    generator, d0, dL, r = stream(cell), cell.inputs, cell.outputs, cell.rank
    X = whiten(normal(generator, cell.samples, d0))
    if cell.kind == BALANCED:
        B, A = (normal(generator, *shape) for shape in ((dL, r), (r, d0)))
        Y = X @ (B @ A).T
        weights = balanced_minimum(X, Y, cell.depth, width=cell.width, generator=generator).weights
        printed, ours = min(cell.sizes) ** 2, r * (d0 + dL - r)
    else:
        weights = [normal(generator, *s) for s in ((cell.width, d0), (dL, cell.width))]
        Y = X @ (weights[1] @ weights[0]).T
        first, last = min(d0, cell.width), min(dL, cell.width)
        printed, ours = first * last, d0 * dL - (d0 - first) * (dL - last)
    values = chain_eigenvalues(weights, X, Y, device)
    count = int((values.abs() > 1e-9 * values[-1]).sum())
    parameters = sum(prod(pair) for pair in zip(cell.sizes, cell.sizes[1:]))
    return [{"measured": count, "printed": printed, "ours": ours, "parameters": parameters}]


EXPERIMENT = Experiment("data/counts", cells, measure)


@styled
def draw(rows: Rows) -> Drawing:
    """Counts against bounds; on the line they are the same."""
    fig = canvas(8.2, 3.9)
    for ax, kind, title in zip(fig.subplots(1, 2), (BALANCED, SHALLOW), ("At balanced minima", "Two layers, out of balance")):
        part = rows.where(kind=kind)
        ends = np.array([0.8 * part["measured"].min(), 1.25 * part["measured"].max()])
        ax.plot(ends, ends, color=INK, linewidth=0.8)
        text = "narrowest layer squared" if kind == BALANCED else "min{d₀, d₁} min{d₁, d₂}"
        ax.plot(part["measured"], part["printed"], "s", color=VERMILLION, markersize=5, alpha=0.7, label=f"[data]: {text}")
        text = "r (d₀ + d_L − r)" if kind == BALANCED else "d₀ d₂ − (d₀ − r₁)(d₂ − r₂)"
        ax.plot(part["measured"], part["ours"], "o", color=BLUE, markersize=5, markerfacecolor="none", label=f"ours: {text}")
        log_axis(ax, "x")
        log_axis(ax, "y")
        ax.set(xlabel="eigenvalues that are not zero", title=title, ylim=(None, 2.8 * ax.get_ylim()[1]))
        ax.legend(loc="upper left", fontsize=8)
    fig.axes[0].set_ylabel("predicted")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """Bounds of the text, and the exact counts."""
    deep, shallow = rows.where(kind=BALANCED), rows.where(kind=SHALLOW)
    return [_bound(deep, "(min d)² at balanced solutions", "Sec. 3"), _bound(shallow, "min{d0, d1} min{d1, d2}", "App. B")] + [
        verdict(
            f"exactly {formula} are not zero",
            "ours",
            paper="-",
            ours=f"{int((part['ours'] == part['measured']).sum())} of {len(part)} networks",
            holds=bool((part["ours"] == part["measured"]).all()),
            why=why,
        )
        for part, formula, why in (
            (deep, "r (d0 + dL - r) at a balanced minimum", "r is the rank of the map that is learned"),
            (shallow, "d0 d2 - (d0 - r1) (d2 - r2) for two layers", "r1 and r2 are the ranks of the layers"),
        )
    ]


def _bound(rows: Rows, formula: str, where: str) -> Verdict:
    broken = int((rows["measured"] > rows["printed"]).sum())
    worst = float((rows["measured"] / rows["printed"]).max())
    return verdict(
        f"at most {formula} eigenvalues are not zero",
        f"[data] {where}",
        paper="at most",
        ours=f"{broken} of {len(rows)} networks have more, up to {worst:.3g} times as many",
        holds=broken == 0,
        why="it holds where no layer is narrower than both inputs and outputs, or by a small rank; the ranges of eqs. 9 and 15 "
        "stop at the narrowest layer, and directions beyond it have eigenvalues too",
    )


FIGURE = Figure(
    "data/counts",
    "How many eigenvalues are not zero",
    "[data] Sec. 3, App. B",
    [EXPERIMENT],
    draw,
    claims,
    "Each network twice: the bound of the text (squares) and ours (rings) against the count in the dense Hessian. Squares "
    "below the line are bounds that do not hold.",
)
