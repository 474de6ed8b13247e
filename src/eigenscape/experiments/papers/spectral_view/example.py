"""[spectral-view] Sec. 2: the quadratic with Hessian [[4, 4], [4, 16]], its eigenvectors, and descent along both."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from torch import Tensor
from torch.func import hessian

from ....report.numbers import number
from ....report.style import AMBER, BLUE, INK, MUTED, VERMILLION, canvas, log_axis, styled
from ....theory.quadratic import contraction, worked_example
from ...machine import Experiment, Figure, Row, Rows, Verdict
from ..judging import EXACT, verdict

RATES = (0.05, 0.1, 0.11)
STARTS = {"steep": (1.0, 0.0), "flat": (0.0, 1.0), "both": (0.5, 0.9)}  # in the basis of the eigenvectors
LOOKS = {"steep": (VERMILLION, "s", "-"), "flat": (BLUE, "o", "-"), "both": (AMBER, "^", "-")}


@dataclass(frozen=True)
class Descent:
    """Gradient descent on the example, from a start given by its two eigen-coordinates."""

    lr: float
    start: str
    steps: int = 30


def cells(profile: str) -> list[Descent]:
    """The three learning rates that the text invites, from three starts; the same in every profile."""
    return [Descent(lr, start) for lr in RATES for start in STARTS]


def loss(w: Tensor) -> Tensor:
    """The example, `2 w_1^2 + 8 w_2^2 + 4 w_1 w_2`."""
    return 2 * w[0] ** 2 + 8 * w[1] ** 2 + 4 * w[0] * w[1]


def measure(cell: Descent, device: torch.device) -> list[Row]:
    """The path of torch.optim.SGD, and the eigenpairs of autograd's Hessian."""
    H = hessian(loss)(torch.zeros(2, dtype=torch.float64, device=device))
    values, vectors = torch.linalg.eigh(H)
    flat, steep = vectors.T * vectors.T[:, :1].sign()  # first coordinates positive
    a, b = STARTS[cell.start]
    w = (a * steep + b * flat).requires_grad_()
    optimizer = torch.optim.SGD([w], lr=cell.lr)
    rows = []
    for step in range(cell.steps + 1):
        at = w.detach()
        rows.append({"step": step, "w1": float(at[0]), "w2": float(at[1]), "size": float(at.norm())})
        (w.grad,) = torch.autograd.grad(loss(w), w)
        optimizer.step()
    eigen = {"top": values[1], "low": values[0], "steep_1": steep[0], "steep_2": steep[1], "flat_1": flat[0], "flat_2": flat[1]}
    return [row | {name: float(value) for name, value in eigen.items()} for row in rows]


@styled
def draw(rows: Rows) -> Drawing:
    """Level sets with the eigenvectors and three paths, and the distance to the minimum along each eigenvector."""
    fig = canvas(9.6, 4.0)
    left, right = fig.subplots(1, 2)
    _draw_levels(left, rows)
    _draw_sizes(right, rows)
    return fig


def _draw_levels(ax: Axes, rows: Rows) -> None:
    w1, w2 = np.meshgrid(np.linspace(-0.6, 1.4, 200), np.linspace(-0.55, 1.15, 200))
    ax.contour(w1, w2, 2 * w1**2 + 8 * w2**2 + 4 * w1 * w2, levels=[0.1, 0.4, 1, 2, 4, 7, 11, 16], colors=MUTED, linewidths=0.7)
    first = rows[0]
    for name, value in (("steep", first["top"]), ("flat", first["low"])):
        colour, marker, _ = LOOKS[name]
        tip = (first[f"{name}_1"], first[f"{name}_2"])
        ax.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.5})
        ax.annotate(f"λ = {value:.3f}", tip, xytext=(6, 6), textcoords="offset points", color=colour)
    for start, (colour, marker, style) in LOOKS.items():
        part = rows.where(lr=0.05, start=start)
        ax.plot(part["w1"], part["w2"], style, color=colour, marker=marker, markersize=3.5, linewidth=1, label=f"from {start}")
    ax.set_aspect("equal")
    ax.grid(visible=False)
    ax.set(xlabel="w₁", ylabel="w₂", title="Level sets, eigenvectors, descent at 0.05")


def _draw_sizes(ax: Axes, rows: Rows) -> None:
    for start in ("steep", "flat"):
        colour, _, _ = LOOKS[start]
        for lr, style in zip(RATES, ("-", "--", ":")):
            part = rows.where(lr=lr, start=start)
            size = np.maximum(part["size"], 1e-17)
            ax.plot(part["step"], size, style, color=colour, label=f"{start}, learning rate {lr:g}")
    log_axis(ax, "y")
    ax.set_ylim(1e-9, 3)
    ax.set(xlabel="step", ylabel="distance to the minimum", title="Along each eigenvector")
    ax.legend(loc="lower right")


def claims(rows: Rows) -> list[Verdict]:
    """The numbers of the example, and which direction is slower."""
    exact, first = worked_example(), rows[0]
    top, low = (float(v) for v in exact.values)
    error = max(abs(first["top"] - top), abs(first["low"] - low)) / top
    factors = {(lr, start): _factor(rows.where(lr=lr, start=start)) for lr in RATES for start in ("steep", "flat")}
    predicted = {lr: contraction(exact, lr).tolist() for lr in RATES}  # flat, then steep
    off = max(abs(factors[lr, start] - predicted[lr][start == "steep"]) for lr, start in factors)
    told = "; ".join(f"{lr:g}: {number(factors[lr, 'steep'], 3)} and {number(factors[lr, 'flat'], 3)}" for lr in RATES)
    return [
        verdict(
            "eigenvalues 10 ± 2√13, eigenvectors (0.29, 0.96) and (0.96, -0.29), condition number 6.17",
            "[spectral-view] Sec. 2",
            paper="17.211, 2.789; 6.17",
            ours=f"{first['top']:.4f}, {first['low']:.4f}; ({first['steep_1']:.4f}, {first['steep_2']:.4f}), "
            f"({first['flat_1']:.4f}, {first['flat_2']:.4f}); {first['top'] / first['low']:.4f}",
            holds=error < EXACT and abs(first["top"] / first["low"] - 6.1713) < 1e-3,
            why=f"autograd's Hessian; relative difference from the closed form {number(error, 2)}",
        ),
        verdict(
            "descent converges more slowly along v₁, the steep direction",
            "[spectral-view] Sec. 2, Interpretation",
            paper="slower along v₁",
            ours=f"factor per step along v₁ and v₂ at learning rate {told}",
            holds=False,
            partly=False,
            why="faster along v₁ for every learning rate below 2 / (λ₁ + λ₂) = 0.1, equal there, slower only up to "
            f"2 / λ₁ = 0.116; |1 - lr λ| predicts the factors to {number(off, 2)}",
        ),
    ]


def _factor(rows: Rows) -> float:
    """Factor per step, from the sizes that stand clear of rounding."""
    size = rows["size"][rows["size"] > 1e-10]
    return float((size[-1] / size[0]) ** (1 / (len(size) - 1)))


EXAMPLE = Figure(
    id="spectral-view/example",
    title="The worked example",
    source="[spectral-view] Sec. 2",
    experiments=(Experiment("spectral-view/example", cells, measure),),
    draw=draw,
    claims=claims,
    reading="Left: from the steep direction descent arrives at once, along the flat one it crawls. Right: the order turns only "
    "beyond a learning rate of 0.1.",
)
