"""The spectrum of a ReLU network of one input, by the cell each eigenvalue comes from: [cracking] Fig. 1."""

from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ....report.style import BLUE, INK, MUTED, VERMILLION, canvas, styled
from ....theory import scalar_relu
from ...machine import Agreement, Experiment, Figure, Row, Rows, Verdict
from .brute import hessian_eigenvalues
from .samples import normal

POSITIVE, NEGATIVE, DEAD = "positive", "negative", "none"
OWNERS = (
    POSITIVE,
    POSITIVE,
    NEGATIVE,
    NEGATIVE,
    POSITIVE,
    POSITIVE,
    NEGATIVE,
    NEGATIVE,
    DEAD,
)  # of theory.scalar_relu's values


@dataclass(frozen=True)
class ReluCell:
    """One random network and one random data set."""

    seed: int
    width: int = 10
    samples: int = 100


def cells(profile: str) -> list[ReluCell]:
    """Draw one network, and more of them for the verdicts."""
    return [ReluCell(seed) for seed in range({"smoke": 4, "quick": 50, "paper": 200}[profile])]


def measure(cell: ReluCell, device: torch.device) -> list[Row]:
    """One row per eigenvalue, ascending: the closed form, its cell and kind, and the dense Hessian's of the same rank."""
    w, v = (normal(cell, name, cell.width, device=device) for name in ("w", "v"))
    x, y = (normal(cell, name, cell.samples, device=device) for name in ("x", "y"))
    m = cell.width

    def loss(t: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((torch.relu(x[:, None] * t[:m]) @ t[m:]) - y).square().mean()

    dense = hessian_eigenvalues(loss, torch.cat([v, w]))
    exact = scalar_relu(w, v, x, y)
    order = [
        (float(value), owner, label)
        for value, count, owner, label in zip(exact.values, exact.multiplicities, OWNERS, exact.labels)
        for _ in range(int(count))
    ]
    shared = {"positive_neurons": int((v > 0).sum()), "positive_samples": int((x > 0).sum())}
    return [
        shared | {"rank": i, "value": value, "owner": owner, "kind": kind, "dense": float(d)}
        for i, ((value, owner, kind), d) in enumerate(zip(sorted(order), dense))
    ]


EXPERIMENT = Experiment("cracking/relu-cells", cells, measure)


@styled
def draw(rows: Rows) -> Drawing:
    """Eigenvalues in order, coloured by cell; rings are the dense Hessian's."""
    rows = rows.where(seed=0)
    fig = canvas(7.2, 3.6)
    ax = fig.add_subplot()
    for owner, colour in ((POSITIVE, BLUE), (NEGATIVE, VERMILLION)):
        for kind, marker, size in (("outlier", "D", 46), ("bulk", "o", 30)):
            part = rows.where(owner=owner, kind=kind)
            if len(part):
                ax.scatter(part["rank"] + 1, part["value"], s=size, color=colour, marker=marker, label=f"{owner} cell, {kind}")
    ax.scatter(rows["rank"] + 1, rows["dense"], s=120, facecolors="none", edgecolors=INK, linewidths=0.8, label="dense Hessian")
    ax.axvline(0.5 + (rows["value"] < 0).sum(), color=MUTED, linestyle=":", linewidth=1.2)
    ax.axhline(0, color=MUTED, linewidth=0.8)
    ax.set(xlabel="rank, from the most negative", ylabel="eigenvalue λ", xlim=(0, len(rows) + 1))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(loc="upper left")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """The spectrum by cells, and who owns the largest eigenvalue."""
    groups = rows.by("seed")
    error = max(float(abs(part["value"] - part["dense"]).max() / abs(part["dense"]).max()) for _, part in groups)
    tops = [part.where(kind="outlier", rank=len(part) - 1) for _, part in groups]
    top = sum(len(t) == 1 for t in tops)
    counts = sum(_counted(part) for _, part in groups)
    many = len(groups)
    return [
        Verdict(
            "the spectrum of a scalar ReLU network is that of two linear ones, cell by cell",
            "[cracking] Theorem 3.4, Fig. 1",
            "two outliers and a bulk in signed pairs per cell",
            f"largest difference to the dense Hessian over {many} networks: {error:.1e} of the largest eigenvalue",
            Agreement.AGREES if error < 1e-10 else Agreement.DISAGREES,
            "agrees below 1e-10; sums over n as in the ledger, where the printed formulas divide by the cell's own number",
        ),
        Verdict(
            "the largest eigenvalue is an outlier of one of the cells",
            "[cracking] Sec. 3.2",
            "max over both cells",
            f"{top} of {many}",
            Agreement.AGREES if top == many else Agreement.DISAGREES,
            "agrees if without exception",
        ),
        Verdict(
            "bulk eigenvalues come in q - 1 and m - q - 1 signed pairs",
            "[cracking] Theorem 3.4",
            "for every number q of positive neurons",
            f"{counts} of {many} networks",
            Agreement.AGREES if counts == many else Agreement.PARTLY,
            "counted in the dense spectrum; a cell without neurons (q = 0 or q = m) has no outliers and no bulk at all",
        ),
    ]


def _counted(part: Rows) -> bool:
    """Whether the dense spectrum holds the values of the bulk as often as the theorem says."""
    q, m, scale = int(part["positive_neurons"][0]), int(part["width"][0]), float(abs(part["dense"]).max())
    expected: dict[Any, int] = {POSITIVE: q - 1, NEGATIVE: m - q - 1}
    for owner, pairs in expected.items():
        bulk = part.where(owner=owner, kind="bulk")["value"] if pairs > 0 else []
        for value in set(bulk):
            if int((abs(part["dense"] - value) < 1e-10 * scale).sum()) < pairs:
                return False
    return min(expected.values()) >= 0


FIGURE = Figure(
    "cracking/fig1",
    "The Hessian spectrum of a ReLU network of one input, by cells",
    "[cracking] Fig. 1",
    [EXPERIMENT],
    draw,
    claims,
    "Neurons with positive and with negative weights see different samples and share nothing: each colour is a linear network "
    "of its own, with two outliers (diamonds) and a bulk in signed pairs. The dotted line separates negative from positive.",
)
