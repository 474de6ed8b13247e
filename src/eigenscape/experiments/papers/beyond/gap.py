"""Where the bound on the gap between the Hessian and its Gauss-Newton part is tight, for networks of two layers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from ....ensembles import Ensemble, initialise, train
from ....report.numbers import number
from ....report.style import BLUE, GREEN, INK, VERMILLION, canvas, log_axis, styled
from ....theory import squared_error_ggn, two_layer_linear_bounds, two_layer_relu_bounds, two_layer_relu_ggn
from ...machine import Experiment, Figure, Row, Rows, Verdict, stream
from ...synthetic import regression
from ..cracking.brute import hessian_eigenvalues
from ..judging import EXACT, verdict

LINEAR, RELU, TWIN = "linear", "relu", "twin"
LOOKS = {
    LINEAR: (BLUE, "o", "linear"),
    RELU: (VERMILLION, "s", "ReLU"),
    TWIN: (GREEN, "^", "scalar, linear, w = v"),
}
SCALES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Scaled:
    """Random networks whose weights are PyTorch's times `scale`; `twin` has one input, one output and equal layers."""

    net: str
    scale: float
    members: int
    inputs: int = 4
    outputs: int = 2
    width: int = 8
    samples: int = 30


@dataclass(frozen=True)
class Descended:
    """Random networks in training on data without structure, half of it out of their reach."""

    net: str
    members: int
    steps: int
    inputs: int = 4
    outputs: int = 2
    width: int = 8
    samples: int = 30
    lr: float = 0.1


def cells(profile: str) -> list[Scaled | Descended]:
    """More networks at larger profiles."""
    members, steps = {"smoke": (10, 300), "quick": (100, 3000), "paper": (1000, 30_000)}[profile]
    scaled = [Scaled(net, scale, members) for net in (LINEAR, RELU) for scale in SCALES]
    twins = [Scaled(TWIN, scale, members, 1, 1) for scale in SCALES]
    return [*scaled, *twins, *(Descended(net, members, steps) for net in (LINEAR, RELU))]


def measure(cell: Scaled | Descended, device: torch.device) -> list[Row]:
    """One row per network (and step): extreme eigenvalues of the dense Hessian beside the Gauss-Newton part and the bound."""
    X, Y = (
        A.to(device) for A in regression(cell.samples, cell.inputs, cell.outputs, stream(cell, "data"), members=cell.members)
    )
    activation = RELU if cell.net == RELU else LINEAR
    sizes = [cell.inputs, cell.width, cell.outputs]
    nets, _ = initialise("sp", sizes, cell.members, stream(cell), activation=activation, device=device)
    if isinstance(cell, Scaled):
        V, W = nets.weights
        weights = (V, V.mT) if cell.net == TWIN else (V, W)
        return compared(nets.replace([cell.scale * A for A in weights]), X, Y)
    marks, rows = [0, *np.unique(np.geomspace(1, cell.steps, 15).round().astype(int)).tolist()], []

    def watch(step: int, now: Ensemble) -> None:
        rows.extend({"step": step} | row for row in compared(now, X, Y))

    train(nets, X, Y, steps=cell.steps, lr=cell.lr, record=marks, watch=watch)
    return rows


def compared(nets: Ensemble, X: Tensor, Y: Tensor) -> list[Row]:
    """Dense Hessians by automatic differentiation, and the certificates of theory."""
    V, W = nets.weights
    split = [V[0].numel(), W[0].numel()]

    def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        first, last = (part.reshape(A[0].shape) for part, A in zip(theta.split(split), (V, W)))
        hidden = x @ first.mT
        return ((hidden.relu() if nets.activation == RELU else hidden) @ last.mT - y).square().sum() / (2 * len(x))

    dense = hessian_eigenvalues(loss, nets.flat(), X, Y, members=50)
    if nets.activation == RELU:
        bound, ggn = two_layer_relu_bounds(W, V, X, Y).gap, two_layer_relu_ggn(W, V, X).max
    else:
        bound, ggn = two_layer_linear_bounds(W, V, X, Y).residual, squared_error_ggn(W, V, X).max
    return [
        {"member": i, "top": float(d[-1]), "bottom": float(d[0]), "ggn": float(g), "bound": float(b)}
        for i, (d, g, b) in enumerate(zip(dense, ggn, bound))
    ]


EXPERIMENT = Experiment("beyond/gap", cells, measure)


def tightness(rows: Rows) -> np.ndarray:
    """Gap between the largest eigenvalues of the Hessian and of its Gauss-Newton part, over the bound."""
    return np.abs(rows["top"] - rows["ggn"]) / rows["bound"]


def depth_below(rows: Rows) -> np.ndarray:
    """Minus the smallest eigenvalue, over the bound."""
    return -rows["bottom"] / rows["bound"]


def in_training(rows: Rows) -> Rows:
    """Records at which the bound of most networks stands above rounding: later ones are ratios of rounding errors."""
    records = rows.where(lambda r: "step" in r).by("net", "step")
    kept = [part for _, part in records if np.median(part["bound"] / part["top"]) > 1e-9]
    return Rows([row for part in kept for row in part])


@styled
def draw(rows: Rows) -> Drawing:
    """Tightness of both bounds against the scale of the weights, and along training."""
    fig = canvas(10.4, 3.9)
    axes = fig.subplots(1, 3, sharey=True)
    scaled, trained = rows.where(lambda r: "scale" in r), in_training(rows)
    for ax, what in ((axes[0], tightness), (axes[1], depth_below)):
        for net, part in scaled.by("net"):
            _band(ax, part, "scale", what, net)
    for net, part in trained.by("net"):
        _band(axes[2], part, "step", tightness, net)
    for ax in axes:
        log_axis(ax, "x")
        ax.axhline(1, color=INK, linewidth=0.8)
        ax.set_ylim(0, 1.08)
    axes[0].set(xlabel="scale of the weights", ylabel="share of the bound", title="Largest: |λ(H) − λ(GGN)|")
    axes[1].set(xlabel="scale of the weights", title="Smallest: −λ(H)")
    axes[2].set(xlabel="step of descent (+ 1)", title="Largest, in training")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return fig


def _band(ax: Axes, rows: Rows, x: str, what: Callable[[Rows], np.ndarray], net: str) -> None:
    """Median with the middle four fifths of the networks."""
    colour, marker, label = LOOKS[net]
    groups = rows.by(x)
    at = np.array([key + (x == "step") for key, _ in groups], dtype=float)
    low, mid, high = np.array([np.quantile(what(part), (0.1, 0.5, 0.9)) for _, part in groups]).T
    ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    ax.plot(at, mid, marker + "-", color=colour, markersize=4.5, label=label)


def claims(rows: Rows) -> list[Verdict]:
    """That the bounds hold, and where they are attained."""
    scaled, trained = rows.where(lambda r: "scale" in r), in_training(rows)
    size = np.maximum(rows["bound"], 1e-12 * np.abs(rows["top"]))
    slack = 1e-9 * np.abs(rows["top"])
    broken = int(((np.abs(rows["top"] - rows["ggn"]) > size + slack) | (-rows["bottom"] > size + slack)).sum())
    both = scaled.where(lambda r: r["net"] != TWIN)
    small, usual = (tightness(both.where(scale=s)) for s in (min(SCALES), 1.0))
    twins = tightness(scaled.where(lambda r: r["net"] == TWIN and r["scale"] >= 1))
    linear, relu = (depth_below(scaled.where(net=net)) for net in (LINEAR, RELU))
    ends = {net: np.median(tightness(part.where(step=int(part["step"].max())))) for net, part in trained.by("net")}
    starts = {net: np.median(tightness(part.where(step=0))) for net, part in trained.by("net")}
    return [
        verdict(
            "Hessian and Gauss-Newton matrix differ in their largest eigenvalue by no more than the residual covariance",
            "ours, after [cracking] eq. 34",
            paper="-",
            ours=f"{broken} of {len(rows)} dense Hessians are outside the bounds on the largest or smallest eigenvalue",
            holds=broken == 0,
        ),
        verdict(
            "the bound is tight where weights are small, and where both layers are the same",
            "ours",
            paper="-",
            ours=f"share of the bound, median: {np.median(small):.4f} at scale {min(SCALES):g}, {np.median(usual):.2g} at "
            f"scale 1; at least {twins.min():.6f} for scalar networks with w = v at scale 1 and more",
            holds=float(np.median(small)) > 0.99 and float(twins.min()) > 1 - EXACT,
            partly=float(np.median(small)) > 0.99,
            why="small weights leave only the functional part; with w = v its leading direction is that of Gauss-Newton",
        ),
        verdict(
            "the smallest eigenvalue attains the bound",
            "ours",
            paper="-",
            ours="linear, at least as wide as inputs and outputs together: within "
            f"{number(float(np.abs(linear - 1).max()), 2)} of it; ReLU: {relu.min():.2g} to {relu.max():.4f} of it",
            holds=float(np.abs(linear - 1).max()) < EXACT and float(relu.min()) > 0.99,
            partly=float(np.abs(linear - 1).max()) < EXACT,
            why="a wide linear network has directions that Gauss-Newton does not feel; a ReLU neuron alone has none to spare",
        ),
        verdict(
            "in training the gap vanishes faster than its bound",
            "ours",
            paper="-",
            ours="median share of the bound at the start and at the last record above rounding: "
            + ", ".join(f"{LOOKS[net][2]} {starts[net]:.2g} and {ends[net]:.2g}" for net in ends),
            holds=all(ends[net] < starts[net] for net in ends),
            why="where Gauss-Newton dominates, its leading direction feels residuals to second order only",
        ),
    ]


FIGURE = Figure(
    "beyond/gap",
    "Where the bound between Hessian and Gauss-Newton matrix is tight",
    "ours",
    [EXPERIMENT],
    draw,
    claims,
    "The bound is the spectral norm of the covariance of residuals and inputs (for ReLU, of the neuron where it is largest). "
    "Lines are medians, bands the middle four fifths of networks; 1 means that the bound is attained.",
)
