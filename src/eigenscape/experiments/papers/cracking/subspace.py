"""Gradient descent on the scalar linear network stays in a plane: [cracking] Corollary 3.1 in pictures."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing

from ....report.style import AMBER, BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, canvas, log_axis, styled
from ....theory import scalar_linear
from ...machine import Agreement, Experiment, Figure, Row, Rows, Verdict
from .samples import normal

COLOURS = {
    "descent": BLUE,
    "momentum": GREEN,
    "weight decay": AMBER,
    "minibatches": PURPLE,
    "sign descent": VERMILLION,
}


@dataclass(frozen=True)
class Run:
    """One optimiser from one initialisation; inputs and initialisation depend on the seed alone."""

    optimiser: str
    seed: int = 0
    steps: int = 200
    width: int = 20
    samples: int = 50


def cells(profile: str) -> list[Run]:
    """Every optimiser, from a few initialisations."""
    return [Run(o, seed) for seed in range({"smoke": 1, "quick": 10, "paper": 60}[profile]) for o in COLOURS]


def measure(cell: Run, device: torch.device) -> list[Row]:
    """One row per step: the coordinates in the plane of the start, what is outside of it, and how far the bulk has turned."""
    shared, m = Run("", cell.seed), cell.width
    x = normal(shared, "inputs", cell.samples, device=device)
    y = 1.5 * x + 0.2 * normal(shared, "noise", cell.samples, device=device)
    v, w = normal(shared, "weights", 2 * m, device=device).chunk(2)
    theta = torch.cat([v, w - 0.7 * v]) / m**0.5
    v, w = theta.chunk(2)
    plus, minus = torch.cat([v + w, v + w]), torch.cat([v - w, w - v])
    plane = torch.stack([plus / plus.norm(), minus / minus.norm()], -1)
    bulk = torch.cat([scalar_linear(w, v, x, y).eigenspace(i) for i in (2, 3)], -1)
    velocity, rows = torch.zeros_like(theta), []
    batches = torch.stack([torch.randperm(cell.samples, generator=_order(cell))[:10] for _ in range(cell.steps + 1)])
    for step in range(cell.steps + 1):
        inside = plane.mT @ theta
        v, w = theta.chunk(2)
        now = scalar_linear(w, v, x, y)
        space = torch.cat([now.eigenspace(i) for i in (2, 3)], -1)
        rows.append(
            {
                "step": step,
                "along_plus": float(inside[0]),
                "along_minus": float(inside[1]),
                "outside": float((theta - plane @ inside).norm() / theta.norm()),
                "turned": float(torch.linalg.matrix_norm(space - bulk @ (bulk.mT @ space), 2)),
                "loss": float(0.5 * ((v @ w) * x - y).square().mean()),
                "product": float(v @ w),
                "s2": float(x.square().mean()),
                "yx": float((y * x).mean()),
            }
        )
        part = batches[step] if cell.optimiser == "minibatches" else slice(None)
        slope = (x[part] * ((v @ w) * x[part] - y[part])).mean()
        gradient = slope * torch.cat([w, v]) + (0.1 * theta if cell.optimiser == "weight decay" else 0.0)
        velocity = (0.8 if cell.optimiser == "momentum" else 0.0) * velocity + gradient
        theta = theta - (0.01 * gradient.sign() if cell.optimiser == "sign descent" else 0.02 * velocity)
    return rows


def _order(cell: Run) -> torch.Generator:
    return torch.Generator().manual_seed(cell.seed)


EXPERIMENT = Experiment("cracking/subspace", cells, measure)


@styled
def draw(rows: Rows) -> Drawing:
    """Trajectories over the loss in the plane, and the part of the parameters outside of it."""
    rows = rows.where(seed=0)
    fig = canvas(8.6, 3.9)
    left, right = fig.subplots(1, 2, width_ratios=[1.15, 1])
    reach = 1.2 * max(abs(rows["along_plus"]).max(), abs(rows["along_minus"]).max())
    a, b = np.meshgrid(np.linspace(-0.1 * reach, reach, 300), np.linspace(-0.1 * reach, reach, 300))
    c = (a**2 - b**2) / 2  # <w, v> on the plane
    s2, yx = rows["s2"][0], rows["yx"][0]
    excess = (s2 * c - yx) ** 2 / (2 * s2)
    left.contour(a, b, excess, levels=np.geomspace(1e-2, excess.max(), 9), colors=MUTED, linewidths=0.6, alpha=0.6)
    left.contour(a, b, s2 * c - yx, levels=[0], colors=INK, linewidths=1.2, linestyles="--")
    for optimiser, colour in COLOURS.items():
        part = rows.where(optimiser=optimiser)
        left.plot(part["along_plus"], part["along_minus"], color=colour, marker="o", markersize=2, linewidth=1, label=optimiser)
        right.plot(part["step"], np.maximum(part["outside"], 1e-17), color=colour, label=optimiser)
    left.plot(rows["along_plus"][0], rows["along_minus"][0], marker="*", markersize=12, color=INK, linestyle="none")
    left.set(xlabel="along (w + v; w + v)", ylabel="along (w − v; v − w)", title="The plane of the start", aspect="equal")
    left.legend(loc="lower left", fontsize=8)
    right.set(xlabel="step", ylabel="|θ outside the plane| / |θ|", title="Outside the plane", ylim=(3e-18, 3))
    log_axis(right, "y")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """Who stays in the plane, and whether the bulk stays where it is."""
    outside = {o: float(part["outside"].max()) for o, part in rows.by("optimiser")}
    turned = {o: float(part["turned"].max()) for o, part in rows.by("optimiser")}
    others = ("momentum", "weight decay", "minibatches")
    runs = len(rows.by("seed"))
    worst = max(outside[o] for o in others)
    return [
        Verdict(
            "gradient descent stays in a plane, and the bulk eigenspace does not move",
            "[cracking] Corollary 3.1",
            "exactly",
            f"{runs} runs: {outside['descent']:.0e} of the parameters outside, bulk turned by {turned['descent']:.0e}",
            Agreement.AGREES if max(outside["descent"], turned["descent"]) < 1e-10 else Agreement.DISAGREES,
            "agrees below 1e-10",
        ),
        Verdict(
            "momentum, weight decay and minibatches stay in the plane too",
            "ours",
            "not stated",
            f"at most {worst:.0e} of the parameters outside",
            Agreement.AGREES if worst < 1e-10 else Agreement.DISAGREES,
            "every one of their steps is a combination of θ and the swapped θ",
        ),
        Verdict(
            "sign descent leaves the plane",
            "ours",
            "not stated",
            f"{outside['sign descent']:.0%} of the parameters outside, bulk turned by {turned['sign descent']:.2f}",
            Agreement.AGREES if outside["sign descent"] > 0.1 else Agreement.DISAGREES,
            "agrees above 10 %: the corollary is about steps along the gradient",
        ),
    ]


FIGURE = Figure(
    "cracking/corollary31",
    "Gradient descent on the scalar linear network never leaves a plane",
    "[cracking] Corollary 3.1",
    [EXPERIMENT],
    draw,
    claims,
    "Left: training from one start (star), in the plane spanned by (v; w) and (w; v); contours are the loss, the dashed "
    "hyperbolas its minima. Right: what is outside that plane. Only sign descent leaves it.",
)
