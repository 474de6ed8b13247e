"""[closed-form] Fig. 3: the two outliers through training, linear and ReLU, width 10, learning rate 0.18, momentum 0.9."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from ....report.numbers import number
from ....report.style import BLUE, INK, MUTED, VERMILLION, canvas, styled
from ....theory import scalar_linear, scalar_relu
from ...ledger.oracle import hessians
from ...machine import Experiment, Figure, Row, Rows, Verdict, stream
from ..judging import EXACT, verdict
from .nets import NETS, WEDGES, default_weights, loss, wedge

SETTLED = 1e-3  # share of the first |second outlier| below which its sign is not read any more


@dataclass(frozen=True)
class Run:
    """Full-batch SGD of a scalar network on a wedge."""

    net: str
    wedge: str
    momentum: float
    seed: int
    lr: float = 0.18
    width: int = 10
    samples: int = 100
    steps: int = 300
    every: int = 4


@dataclass(frozen=True)
class Start:
    """What runs with and without momentum share: data and initial weights."""

    wedge: str
    seed: int
    width: int
    samples: int


def cells(profile: str) -> list[Run]:
    """Both networks on every reading of "wedge", with and without momentum."""
    seeds = {"smoke": 1, "quick": 20, "paper": 100}[profile]
    return [Run(net, kind, beta, s) for net in NETS for kind in WEDGES for beta in (0.9, 0.0) for s in range(seeds)]


def measure(cell: Run, device: torch.device) -> list[Row]:
    """Outliers of the (positive) cell along the run: from dense Hessians by autograd, and by the closed form."""
    generator = stream(Start(cell.wedge, cell.seed, cell.width, cell.samples))
    theta = default_weights(cell.width, generator).to(device)
    x, y = (t.to(device) for t in wedge(cell.wedge, cell.samples, generator))
    thetas, losses = train(cell, theta, x, y)
    v, w = thetas.chunk(2, -1)
    own = torch.ones_like(v) if cell.net == "linear" else (v > 0).to(v)  # the parameters shown
    exact = (scalar_linear if cell.net == "linear" else scalar_relu)(w, v, x, y).values[:, :2]
    seen = x > 0 if cell.net == "relu" else torch.ones_like(x, dtype=torch.bool)
    goal = (y * x)[seen].mean() / x[seen].square().mean()
    c = (own * w * v).sum(-1)
    rows = [
        {"step": t, "loss": l, "exact_top": a, "exact_second": b, "c": at, "goal": float(goal)}
        for t, (l, (a, b), at) in enumerate(zip(losses.tolist(), exact.tolist(), c.tolist()))
    ]
    at = slice(None, None, cell.every)
    thetas, w, v = thetas[at], (w * own)[at], (v * own)[at]
    H = hessians(loss(cell.net), thetas, x.expand(len(thetas), -1), y.expand(len(thetas), -1))
    for row, pair in zip(rows[at], outliers(H, w, v).tolist()):
        row |= {"top": pair[1], "second": pair[0]}
    return rows


def train(cell: Run, theta: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Train with `torch.optim.SGD`; return the parameters and losses before every step and after the last."""
    theta = theta.clone().requires_grad_()
    optimizer = torch.optim.SGD([theta], lr=cell.lr, momentum=cell.momentum)
    objective, thetas, losses = loss(cell.net), [], []
    for _ in range(cell.steps + 1):
        value = objective(theta, x, y)
        thetas.append(theta.detach().clone())
        losses.append(value.detach())
        (theta.grad,) = torch.autograd.grad(value, theta)
        optimizer.step()
    return torch.stack(thetas), torch.stack(losses)


def outliers(H: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Return the eigenvalues of dense Hessians whose eigenvectors lie in the plane of `(v; w)` and `(w; v)`, ascending."""
    plane = torch.linalg.qr(torch.stack([torch.cat([v, w], -1), torch.cat([w, v], -1)], -1)).Q
    return torch.linalg.eigvalsh(plane.mT @ H @ plane)


@styled
def draw(rows: Rows) -> Drawing:
    """Both outliers of one run of each network with momentum, and the second one with and without."""
    fig = canvas(9.6, 5.4)
    axes = fig.subplots(2, 2, sharex=True)
    for (above, below), net in zip(axes.T, NETS):
        part = rows.where(net=net, wedge="slanted")
        part = part.where(seed=_early(part))
        _draw_pair(above, part.where(momentum=0.9), net)
        _draw_second(below, part)
    axes[0, 0].set_ylabel("eigenvalue λ")
    axes[1, 0].set_ylabel("second outlier")
    for ax in axes[1]:
        ax.set_xlabel("step")
        ax.set_xlim(-3, 153)
    axes[0, 0].legend(loc="upper right")
    axes[1, 1].legend(loc="lower right")
    return fig


def _early(rows: Rows) -> int:
    """First draw whose second outlier starts negative, as in the paper; the first of all if there is none."""
    starts = rows.where(lambda r: r["step"] == 0 and r["exact_second"] < 0)
    return (starts or rows)[0]["seed"]


def _draw_pair(ax: Axes, rows: Rows, net: str) -> None:
    for column, colour, name in (("top", BLUE, "first outlier"), ("second", VERMILLION, "second outlier")):
        ax.plot(rows["step"], rows[column], "o", color=colour, markersize=3.2, label=f"{name}, autograd")
        ax.plot(rows["step"], rows["exact_" + column], color=INK, linewidth=0.8, label="_exact", zorder=0)
    centre = (rows["exact_top"] + rows["exact_second"]) / 2
    ax.plot(rows["step"], centre, color=MUTED, linestyle="--", linewidth=1.2, label="half their sum")
    ax.plot([], [], color=INK, linewidth=0.8, label="closed form")
    name = "Linear, momentum 0.9" if net == "linear" else "ReLU, positive cell, momentum 0.9"
    ax.set_title(name)


def _draw_second(ax: Axes, rows: Rows) -> None:
    ax.axhline(0, color=MUTED, linewidth=0.8)
    for momentum, colour, style in ((0.9, VERMILLION, "-"), (0.0, BLUE, "--")):
        part = rows.where(momentum=momentum)
        ax.plot(part["step"], part["exact_second"], color=colour, linestyle=style, label=f"momentum {momentum:g}")
    ax.set_yscale("symlog", linthresh=0.01, linscale=0.8)
    ax.set_yticks([-1, -0.1, -0.01, 0, 0.01, 0.1, 1], ["−1", "−0.1", "−0.01", "0", "0.01", "0.1", "1"])
    ax.minorticks_off()


def claims(rows: Rows) -> list[Verdict]:
    """What the text says of Fig. 3, counted over draws of the start and readings of the data."""
    runs = [(key, Story.of(part)) for key, part in rows.by("net", "wedge", "momentum", "seed")]
    error = max(float(np.nanmax(np.abs(rows[a] - rows["exact_" + a])) / np.nanmax(rows["top"])) for a in ("top", "second"))
    paper = [s for (_, kind, beta, _), s in runs if beta == 0.9 and kind != "V"]
    plain = [s for (_, kind, beta, _), s in runs if beta == 0.0 and kind != "V"]
    flat = [s for (net, kind, _, _), s in runs if net == "linear" and kind == "V"]
    source = "[closed-form] Sec. 2, Fig. 3"
    setting = (
        "learning rate 0.18; y = 2x, x > 0 and -x/2, x < 0, or points between y = x/2 and y = 3x/2; PyTorch's initialisation"
    )
    return [
        verdict(
            "outliers come in pairs about half the trace, through the whole of training",
            source,
            paper="paired",
            ours=f"autograd and closed form differ by {number(error, 2)} at most, over {np.isfinite(rows['top']).sum()} steps",
            holds=error < EXACT,
        ),
        verdict(
            "the second outlier starts negative",
            source,
            paper="both networks",
            ours=f"{_count(paper, 'starts_negative')}; early at the start (c below a third of its goal): "
            f"{_count(paper, 'starts_early')}",
            holds=all(s.starts_negative for s in paper),
            partly=any(s.starts_negative for s in paper),
            why=f"{setting}. A network drawn with c between a third of its goal and all of it has it positive",
        ),
        verdict(
            "it changes sign as the run leaves the early phase",
            source,
            paper="once, a little while into training",
            ours=f"first change at c = goal/3, to the step: {_count([s for s in paper if s.starts_early], 'crosses_at_third')}",
            holds=all(s.crosses_at_third for s in paper if s.starts_early),
            partly=any(s.crosses_at_third for s in paper if s.starts_early),
            why="a step may jump across the late phase altogether",
        ),
        verdict(
            "it converges to zero from above",
            source,
            paper="learning rate 0.18, momentum 0.9",
            ours=f"with momentum 0.9: {_count(paper, 'ends_from_above')}, sign changes per run: median "
            f"{np.median([s.changes for s in paper]):.0f}; without momentum: {_count(plain, 'ends_from_above')}",
            holds=all(s.ends_from_above for s in paper),
            partly=sum(s.ends_from_above for s in plain) > 0.5 * len(plain),
            why="momentum 0.9 makes c oscillate about its goal as soon as lr λ > (1 - √0.9)² = 0.0026, and there the second "
            "outlier has the sign of goal - c; plain descent below 1/λ approaches from one side",
        ),
        verdict(
            "which wedge was used",
            source,
            paper='"a synthetic wedge dataset"',
            ours=f"on y = |x| the linear network's second outlier is above zero in {sum(s.ever_positive for s in flat)} of "
            f"{len(flat)} runs",
            holds=None,
            why="the text gives no data. A symmetric V is ruled out for the linear panel: mean yx = 0 leaves no late phase",
        ),
    ]


def _count(stories: list["Story"], what: str) -> str:
    return f"{sum(getattr(s, what) for s in stories)} of {len(stories)}"


@dataclass(frozen=True)
class Story:
    """What the second outlier did in one run."""

    starts_negative: bool
    starts_early: bool
    crosses_at_third: bool
    ends_from_above: bool
    ever_positive: bool
    changes: int

    @classmethod
    def of(cls, rows: Rows) -> "Story":
        """Read the signs until the outlier has all but vanished."""
        second, goal = rows["exact_second"], rows["goal"]
        way = rows["c"] * np.sign(goal) / np.maximum(np.abs(goal), 1e-9)
        live = np.abs(second) > SETTLED * np.abs(second[0])
        signs = np.sign(second[live])
        flips = np.flatnonzero(np.diff(signs)) + 1
        third = np.flatnonzero(way >= 1 / 3)
        first = np.flatnonzero(second > 0)
        return cls(
            starts_negative=bool(second[0] < 0),
            starts_early=bool(way[0] < 1 / 3),
            crosses_at_third=bool(len(first) and len(third) and first[0] == third[0]),
            ends_from_above=bool(signs[-1] > 0) and len(flips) <= 1,
            ever_positive=float(second.max()) > SETTLED * float(np.abs(second).max()),
            changes=len(flips),
        )


PAIRING = Figure(
    id="closed-form/fig3",
    title="The outliers come in pairs through training",
    source="[closed-form] Fig. 3, [cracking] Fig. 8",
    experiments=(Experiment("closed-form/pairing", cells, measure),),
    draw=draw,
    claims=claims,
    reading="Above: both outliers, dots by autograd and lines by the closed form. Below: the second one, on an axis that opens "
    "up around zero: with momentum it swings through zero many times.",
)
