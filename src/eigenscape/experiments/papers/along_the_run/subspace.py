"""The gradient and the top subspace: how much of it is there, whether that is where learning happens, and the small outlier."""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from ....curvature import Objective, hessian
from ....curvature.losses import half_mse
from ....dynamics import Tracker
from ....report.style import INK, MUTED, canvas, log_axis, styled
from ....theory import scalar_linear
from ...machine import Experiment, Figure, Row, Rows, Verdict, stream
from ..judging import verdict
from .pictures import COLOURS
from .watched import Run, digits, late, measure, network, optimiser

TOP = 10  # one direction for each class
WAYS = {"all": "whole gradient", "top": f"only its part in the top {TOP}", "rest": "only the rest"}
SHARES = {"minibatches": (0.1, "minibatches, lr at 0.1 of the edge"), "descent": (0.7, "full batch, lr at 0.7")}
BELOW = (0.1, "full batch, lr at 0.1")


@dataclass(frozen=True)
class Apart:
    """Training goes on after `before` steps, with the gradient or a part of it."""

    way: str
    before: int
    steps: int
    images: int
    rate: float = 0.7
    seed: int = 0


@dataclass(frozen=True)
class Scalar:
    """The scalar linear network f(x) = <w, v> x under gradient descent, where both outliers are known exactly."""

    steps: int = 60
    width: int = 20
    lr: float = 0.05
    seed: int = 0


def share_cells(profile: str) -> list[Run]:
    """Full batch at and below the edge, and minibatches."""
    images, steps = {"smoke": (50, 60), "quick": (500, 600), "paper": (5000, 2000)}[profile]
    kinds = [*((o, rate) for o, (rate, _) in SHARES.items()), ("descent", BELOW[0])]
    return [Run("tanh", o, rate, steps, every=20, images=images, k=TOP) for o, rate in kinds]


def apart_cells(profile: str) -> list[Apart | Scalar]:
    """Three ways to go on from the edge of stability; and the scalar network."""
    before, steps, images = {"smoke": (20, 10, 50), "quick": (400, 150, 500), "paper": (1000, 500, 2000)}[profile]
    return [*(Apart(way, before, steps, images) for way in WAYS), Scalar()]


def measure_apart(cell: Apart | Scalar, device: torch.device) -> list[Row]:
    """One row per step."""
    return _scalar(cell, device) if isinstance(cell, Scalar) else _apart(cell, device)


def _apart(cell: Apart, device: torch.device) -> list[Row]:
    """Train to the edge, then with a part of the gradient; the top eigenvectors are those of the present weights."""
    x, y = digits(cell.images, device)
    run = Run("tanh", "descent", cell.rate, cell.before, 1, cell.images, seed=cell.seed)
    model = network(run.start, device)
    objective = Objective(model, half_mse, (x, y))
    lr = optimiser(run, objective).param_groups[0]["lr"]
    tracker = Tracker(TOP, tol=0.05, generator=stream(cell, "search"))
    H, rows = hessian(objective, check=False, engine="reverse"), []
    for step in range(cell.before + cell.steps + 1):
        gradient = objective.gradient()
        if step >= cell.before:
            rows.append({"step": step - cell.before, "loss": float(objective.loss())})
            if cell.way != "all":
                vectors = tracker.look(H).vectors
                inside = vectors @ (vectors.mT @ gradient)
                gradient = inside if cell.way == "top" else gradient - inside
        with torch.no_grad():
            for p, part in zip(objective.parameters.values(), objective.layout.unflatten(gradient).values()):
                p -= lr * part
        H.release()
    return rows


def _scalar(cell: Scalar, device: torch.device) -> list[Row]:
    """Shares of the gradient in the eigenvectors of the large outlier and of both, and where the small one lies."""
    draw = stream(cell)
    x, w, v = (torch.randn(n, generator=draw, dtype=torch.float64).to(device) for n in (50, cell.width, cell.width))
    y, w, v, rows = 1.5 * x, w / cell.width**0.5, v / cell.width**0.5, []
    for step in range(cell.steps + 1):
        exact = scalar_linear(w, v, x, y)
        slope = (x * ((w @ v) * x - y)).mean()
        gradient = slope * torch.cat([w, v])  # in the order (v; w)
        small, bulk = float(exact.values[1]), float(slope.abs())
        rows.append(
            {
                "step": step,
                "large_share": _share(gradient, exact.eigenspace(0)),
                "small_share": _share(gradient, exact.eigenspace(1)),
                "large": float(exact.values[0]),
                "small": small,
                "bulk": bulk,
                "hidden": abs(small) <= bulk * (1 + 1e-12),
            }
        )
        w, v = w - cell.lr * slope * v, v - cell.lr * slope * w
    return rows


def _share(gradient: Tensor, basis: Tensor) -> float:
    return float((basis.mT @ gradient).square().sum() / gradient.square().sum())


SHARE = Experiment("along-the-run/share", share_cells, measure)
APART = Experiment("along-the-run/apart", apart_cells, measure_apart)


def _kinds(rows: Rows) -> dict[str, Rows]:
    found = {label: rows.where(optimiser=o, rate=rate) for o, (rate, label) in SHARES.items()}
    return found | {BELOW[1]: rows.where(optimiser="descent", rate=BELOW[0])}


@styled
def draw(tables: dict[str, Rows]) -> Drawing:
    """The share along three runs; the loss in three ways to go on; the shares in both outliers of the scalar network."""
    fig = canvas(10.4, 3.7)
    left, middle, right = fig.subplots(1, 3)
    for colour, (label, part) in zip(COLOURS, _kinds(tables[SHARE.name]).items()):
        left.plot(part["step"], part["gradient_share"], color=colour, linewidth=1.2, label=label)
    left.set(xlabel="step", ylabel=f"share of |gradient|² in the top {TOP}", title="Where the gradient is", ylim=(-0.02, 1.35))
    apart = tables[APART.name]
    for colour, style, (way, label) in zip(COLOURS, ("-", "-", "--"), WAYS.items()):
        part = apart.where(way=way)
        middle.plot(part["step"], part["loss"], style, color=colour, linewidth=1.4, label=label)
    log_axis(middle, "y")
    middle.set(xlabel="step after the parting", ylabel="loss", title="Where learning happens")
    scalar = apart.where(lambda r: "small_share" in r)
    right.plot(scalar["step"], scalar["large_share"], color=COLOURS[0], label="in the large outlier")
    right.plot(scalar["step"], scalar["small_share"], color=COLOURS[1], label="in the small outlier")
    right.plot(scalar["step"], scalar["large_share"] + scalar["small_share"], color=INK, linestyle=":", label="in both")
    place = np.abs(scalar["small"]) / scalar["bulk"]
    right.plot(scalar["step"], place, color=MUTED, linestyle="--", linewidth=1.0, label="|small outlier| / |bulk|")
    right.set(xlabel="step", ylabel="share of |gradient|²", title="The scalar network", ylim=(-0.02, 1.55))
    for ax in (left, right):
        ax.legend(loc="upper right", fontsize=7.5)
    middle.legend(loc="best", fontsize=7.5)
    return fig


def claims(tables: dict[str, Rows]) -> list[Verdict]:
    """How much of the gradient is in the top subspace, what that part does, and what the scalar network says."""
    shares = {label: late(part, "gradient_share") for label, part in _kinds(tables[SHARE.name]).items()}
    most = [s > 0.5 for s in shares.values()]
    apart = tables[APART.name]
    ends = {way: apart.where(way=way)["loss"] for way in WAYS}
    fall = {way: 1 - loss[-1] / loss[0] for way, loss in ends.items()}
    scalar = apart.where(lambda r: "small_share" in r)
    both, hidden = scalar["large_share"] + scalar["small_share"], bool(np.all(scalar["hidden"]))
    least = float(scalar["large_share"].min())
    return [
        verdict(
            f"most of the gradient lies in the top {TOP} eigenvectors",
            "Gur-Ari et al. 2018",
            paper="soon after the start, and from then on",
            ours="; ".join(f"{label}: {s:.2f}" for label, s in shares.items()),
            holds=all(most),
            partly=any(most),
            why="median share over the last quarter; agrees if it is above 0.5 in every run. Full-batch descent below the edge "
            "has long finished along the sharp directions; what brings them back is the edge, or noise",
        ),
        verdict(
            "that part of the gradient does not train the network, the rest does",
            "Song et al. 2025",
            paper="the loss falls without the top part, and not with it alone",
            ours="the loss falls by " + "; ".join(f"{fall[way]:.0%} with {label}" for way, label in WAYS.items()),
            holds=bool(fall["rest"] > 0.5 * fall["all"] and fall["top"] < 0.5 * fall["all"]),
            partly=bool(fall["rest"] > fall["top"]),
            why="from the same weights at the edge; agrees if without the top part the loss falls by more than half of what "
            "the whole gradient gives, and with it alone by less",
        ),
        verdict(
            "of the scalar network the gradient lies in two outliers, and the small one hides in the bulk",
            "[cracking] Corollary 3.1",
            paper="exactly",
            ours=f"share outside both at most {float(np.abs(1 - both).max()):.0e}; in the large one alone down to {least:.2f}; "
            f"|small outlier| at most {float((np.abs(scalar['small']) / scalar['bulk']).max()):.3f} of the bulk's",
            holds=bool(np.abs(1 - both).max() < 1e-9) and hidden,
            why="agrees if nothing is outside to 1e-9, and the small outlier is always within the bulk's interval: a cut "
            "by size would count it as bulk, and its part of the gradient with it",
        ),
    ]


SUBSPACE = Figure(
    id="along-the-run/subspace",
    title="The gradient and the top subspace",
    source="Gur-Ari et al. 2018, Song et al. 2025, on MNIST; [cracking] Corollary 3.1",
    experiments=(SHARE, APART),
    draw=draw,
    claims=claims,
    reading="Left: share of the gradient's squared length in the ten top eigenvectors. Middle: training goes on from one "
    "point with the gradient or a part of it. Right: for f(x) = <w, v> x two eigenvectors hold the gradient at every step; the "
    "second's eigenvalue is never larger than the bulk's.",
)
