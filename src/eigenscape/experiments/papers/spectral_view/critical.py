"""[spectral-view] Sec. 3: what the signs of the eigenvalues say about a critical point, against a look around it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor
from torch.func import grad, hessian

from ....report.style import BLUE, MUTED, VERMILLION, canvas, styled
from ....theory.quadratic import CriticalPoint, classify
from ...machine import Experiment, Figure, Row, Rows, Verdict
from ..judging import verdict

FUNCTIONS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "bowl": ("x² + 2y²", lambda p: p[0] ** 2 + 2 * p[1] ** 2),
    "dome": ("−x² − 2y²", lambda p: -(p[0] ** 2) - 2 * p[1] ** 2),
    "saddle": ("x² − y²", lambda p: p[0] ** 2 - p[1] ** 2),
    "flat minimum": ("y² + x⁴", lambda p: p[1] ** 2 + p[0] ** 4),
    "flat saddle": ("y² − x⁴", lambda p: p[1] ** 2 - p[0] ** 4),
    "flat shoulder": ("y² + x³", lambda p: p[1] ** 2 + p[0] ** 3),
    "saddle with a zero": ("x² − y² + 0z²", lambda p: p[0] ** 2 - p[1] ** 2 + 0 * p[2]),
}
DIMENSIONS = {"saddle with a zero": 3}
SHOWN = ("flat minimum", "flat saddle", "flat shoulder")


@dataclass(frozen=True)
class Point:
    """The critical point at 0 of one of the functions."""

    function: str
    radius: float = 0.05
    directions: int = 4000


def cells(profile: str) -> list[Point]:
    """All functions, in every profile."""
    return [Point(name) for name in FUNCTIONS]


def measure(cell: Point, device: torch.device) -> list[Row]:
    """Autograd's Hessian at 0, what its signs prove, and what the values around 0 show."""
    _, f = FUNCTIONS[cell.function]
    zero = torch.zeros(DIMENSIONS.get(cell.function, 2), dtype=torch.float64, device=device)
    values = torch.linalg.eigvalsh(hessian(f)(zero))
    around = around_zero(len(zero), cell.directions).to(device) * cell.radius
    heights = torch.cat([f(s * around.T) for s in (0.5, 1.0)]) - f(zero)
    low, high = float(heights.min()), float(heights.max())
    seen = "SADDLE" if low < 0 < high else "MINIMUM" if low >= 0 else "MAXIMUM"
    found = {"proved": CriticalPoint(int(classify(values))).name, "seen": seen, "slope": float(grad(f)(zero).norm())}
    return [
        found | {"positive": int((values > 0).sum()), "negative": int((values < 0).sum()), "zero": int((values == 0).sum())}
    ]


def around_zero(dimension: int, count: int) -> Tensor:
    """Unit vectors: evenly spaced on the circle, or on a spiral around the sphere."""
    t = torch.arange(count, dtype=torch.float64) / count
    angle = 2 * torch.pi * t
    if dimension == 2:
        return torch.stack([angle.cos(), angle.sin()], -1)
    height, turn = 2 * t - 1, angle * 97
    ring = (1 - height.square()).sqrt()
    return torch.stack([ring * turn.cos(), ring * turn.sin(), height], -1)


@styled
def draw(rows: Rows) -> Drawing:
    """Three critical points with one and the same Hessian."""
    fig = canvas(9.0, 3.3)
    x, y = np.meshgrid(np.linspace(-1, 1, 201), np.linspace(-1, 1, 201))
    for ax, name in zip(fig.subplots(1, len(SHOWN), sharey=True), SHOWN):
        said, f = FUNCTIONS[name]
        height = f(torch.from_numpy(np.stack([x, y]))).numpy()
        ax.contour(x, y, height, levels=np.arange(-1.9, 2, 0.2), colors=MUTED, linewidths=0.6, linestyles="solid")
        ax.contourf(x, y, height, levels=[-9, 0, 9], colors=[VERMILLION, BLUE], alpha=0.18)
        ax.plot(0, 0, "o", color="black", markersize=5)
        ax.set_aspect("equal")
        ax.grid(visible=False)
        row = rows.where(function=name)[0]
        ax.set(title=f"{said}: {row['seen'].lower()}", xlabel="x")
    fig.axes[0].set_ylabel("y")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """The table of Sec. 3, and the sentences of Sec. 4."""
    regular = rows.where(lambda r: r["zero"] == 0)
    same = [rows.where(function=name)[0] for name in SHOWN]
    mixed = rows.where(function="saddle with a zero")[0]
    kinds = ", ".join(f"{FUNCTIONS[r['function']][0]} a {r['seen'].lower()}" for r in same)
    return [
        verdict(
            "all positive: minimum; all negative: maximum; mixed: saddle",
            "[spectral-view] Sec. 3",
            paper="at a critical point",
            ours=f"{sum(r['proved'] == r['seen'] for r in regular)} of {len(regular)} functions without zero eigenvalues",
            holds=all(r["proved"] == r["seen"] for r in regular),
            why="values on small circles around the point decide",
        ),
        verdict(
            "a zero eigenvalue: degenerate critical point",
            "[spectral-view] Sec. 3",
            paper="one kind of point",
            ours=f"same Hessian diag(0, 2), yet {kinds}; with both other signs present ({mixed['function']}) it is a "
            f"{mixed['seen'].lower()} all the same",
            holds=False,
            partly=True,
            why="a singular Hessian decides nothing unless both signs occur",
        ),
        verdict(
            "most critical points in deep learning are saddles; spectra are a bulk with outliers; the shape is universal",
            "[spectral-view] Sec. 4",
            paper="stated without network, data or source",
            ours="-",
            holds=None,
            why="nothing to measure against",
        ),
    ]


CRITICAL = Figure(
    id="spectral-view/critical",
    title="What a singular Hessian does not say",
    source="[spectral-view] Sec. 3",
    experiments=(Experiment("spectral-view/critical", cells, measure),),
    draw=draw,
    claims=claims,
    reading="Blue is above the height of the point, red below: one Hessian, yet one minimum and two points that are none.",
)
