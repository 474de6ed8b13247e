"""Draw the pictures of the pages on deep linear networks and recognition: bars and lines from formulas, dots measured.

Run `python docs/theory/pictures_deep.py`; it writes `docs/theory/img/*.svg`. Every dot comes from a matrix taken by automatic
differentiation, or from training.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import torch
from matplotlib.figure import Figure
from pictures_scalar import draw_spectrum, randn, two_panels
from torch import Tensor, nn

import eigenscape as es
from eigenscape.report.style import BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, png, styled, svg

DOT = {"ls": "", "marker": "o", "color": INK, "ms": 3.2}


def network(weights: list[Tensor]) -> nn.Sequential:
    """The module with these weights."""
    model = nn.Sequential(*(nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=torch.float64) for W in weights))
    for p, W in zip(model.parameters(), weights):
        p.data = W.clone()
    return model


def dense(weights: list[Tensor], X: Tensor, Y: Tensor, matrix=es.hessian) -> Tensor:
    """All eigenvalues of the Hessian (or another matrix) of the network, measured."""
    op = matrix(es.Objective(network(weights), es.losses.half_mse, (X, Y)))
    return torch.linalg.eigvalsh(op @ torch.eye(op.shape[-1], dtype=torch.float64))


def descend(weights: list[Tensor], X: Tensor, Y: Tensor, rate: float, steps: int) -> list[list[Tensor]]:
    """All iterates of gradient descent."""
    path, n = [weights], len(X)
    for _ in range(steps):
        leaves = [W.clone().requires_grad_() for W in path[-1]]
        f = X
        for W in leaves:
            f = f @ W.mT
        grads = torch.autograd.grad((f - Y).square().sum() / (2 * n), leaves)
        path.append([(W - rate * g).detach() for W, g in zip(leaves, grads)])
    return path


def raw_data(n: int = 40) -> tuple[Tensor, Tensor]:
    """Correlated inputs far from centred, noisy targets."""
    X = randn(1, n, 4) @ (torch.eye(4) + 0.4 * randn(2, 4, 4)) + 0.3
    return X, X @ randn(3, 4, 2) * 0.6 + 0.5 * randn(4, n, 2)


@styled
def deep_linear() -> Figure:
    """The Gauss-Newton spectrum at a random point, and the trace of the full Hessian along training."""
    X, Y = raw_data()
    weights = [0.6 * randn(5 + l, b, a) for l, (a, b) in enumerate(pairwise([4, 3, 3, 2]))]
    fig, left, right = two_panels()
    draw_spectrum(left, es.theory.deep_linear_ggn(weights, X), dense(weights, X, Y, es.ggn), "Widths 4, 3, 3, 2: Gauss-Newton")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    path = descend(weights, X, Y, 0.02, 240)
    steps = range(0, len(path), 4)
    traces = [float(es.theory.deep_linear_trace(path[t], X)) for t in steps]
    bounds = [tuple(map(float, es.theory.deep_linear_bounds(path[t], X))) for t in steps]
    right.plot(steps, traces, color=GREEN, label="trace of the Hessian")
    right.fill_between(steps, *zip(*bounds), color=BLUE, alpha=0.25, lw=0, label="bounds on its sharpness (GGN)")
    for t in range(0, len(path), 20):
        right.plot(t, float(dense(path[t], X, Y).sum()), **DOT)
        right.plot(t, float(dense(path[t], X, Y, es.ggn)[-1]), **DOT)
    right.set(xlabel="step of gradient descent", title="Exact at any loss", ylim=(0, 75))
    right.legend(loc="upper right")
    return fig


@styled
def balanced() -> Figure:
    """The minimum predicted from data and where training ends; sharpness against the largest class."""
    X, Y = raw_data()
    minimum = es.theory.balanced_minimum(X, Y, 3)
    start = es.theory.sample_balanced_weights(torch.full((2,), 0.2, dtype=torch.float64), [4, 2, 2, 2])
    end = descend(start, X, Y, 0.05 / float(minimum.sharpness), 6000)[-1]
    fig, left, right = two_panels()
    measured = dense(end, X, Y)
    draw_near(left, minimum.spectrum, measured, "From data alone; dots after training")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    depth, d = 4, 30
    shares = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    right.plot(shares, es.theory.sharpness_from_proportions(torch.stack([shares, 1 - shares], -1).sort(-1).values, depth), "--",
               color=MUTED, label="labels interpolated", zorder=3)  # fmt: skip
    for n, colour in ((30, BLUE), (60, GREEN), (300, VERMILLION)):
        inputs = es.theory.whiten(randn(n, n, d))
        curve = []
        for share in shares:
            labels = (torch.arange(n) >= round(float(share) * n)).long()
            curve.append(float(es.theory.sharpness_from_labels(inputs, labels, depth)))
        right.plot(shares, curve, color=colour, label=f"n = {n}, {d} inputs")
        for i in range(0, len(shares), 2):
            labels = (torch.arange(n) >= round(float(shares[i]) * n)).long()
            Z = es.theory.one_hot(labels, 2)
            right.plot(
                float(shares[i]), float(top(list(es.theory.balanced_minimum(inputs, Z, depth).weights), inputs, Z)), **DOT
            )
    right.set(xlabel="share of the first class", ylabel="sharpness", title="Depth 4, white inputs", ylim=(0, 5.2))
    right.legend(loc="upper center", fontsize=8, ncols=2)
    return fig


def top(weights: list[Tensor], X: Tensor, Y: Tensor) -> Tensor:
    """Largest eigenvalue of the Hessian, measured."""
    return es.eigsh(es.hessian(es.Objective(network(weights), es.losses.half_mse, (X, Y))), k=1, tol=1e-8).values[0]


def draw_near(ax, spectrum: es.Spectrum, measured: Tensor, title: str) -> None:
    """Draw a prediction with dots that are near it, not equal: training stops before its end."""
    draw_spectrum(ax, spectrum, spectrum.expand(), title)
    ax.lines[-2].set_data(range(1, len(measured) + 1), measured.tolist())
    gap = float((measured - spectrum.expand()).abs().max() / spectrum.max)
    assert gap < 0.02, gap


@styled
def aligned() -> Figure:
    """The full Hessian far from any minimum, and its spectrum along training."""
    g = 9
    R, U = torch.linalg.qr(randn(g, 3, 3)).Q, torch.linalg.qr(randn(g + 1, 2, 2)).Q
    rows = torch.linalg.qr(randn(g + 2, 20, 5)).Q * 20**0.5
    X = rows[:, :3] * torch.tensor([1.3, 1.0, 0.6]).double() @ R.T
    Y = (rows[:, :2] * torch.tensor([2.0, 0.9]).double() + 0.3 * rows[:, 3:]) @ U.T
    first, last = torch.tensor([0.5, 0.2]).double(), torch.tensor([0.3, 0.6]).double()
    weights = [first[:, None] * R[:, :2].T, torch.diag(torch.tensor([0.6, 0.4]).double()), U * last]

    def closed(weights: list[Tensor]) -> es.Spectrum:
        return es.theory.aligned_deep_linear(weights, X, Y, es.theory.aligned_frames(weights, X, Y), tol=1e-9)

    fig, left, right = two_panels()
    draw_spectrum(left, closed(weights), dense(weights, X, Y), "Widths 3, 2, 2, 2: full Hessian")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    path = descend(weights, X, Y, 0.05, 180)
    steps = range(0, len(path), 3)
    values = torch.stack([closed(path[t]).expand() for t in steps])
    for i in range(values.shape[1]):
        right.plot(steps, values[:, i], color=VERMILLION if i == values.shape[1] - 1 else PURPLE, lw=0.9)
    for t in range(0, len(path), 30):
        at = dense(path[t], X, Y)
        right.plot([t] * 6, at[[0, 1, 2, -3, -2, -1]].tolist(), **DOT)
    right.set(xlabel="step of gradient descent", title="All 14 eigenvalues along training")
    return fig


@styled
def recognition() -> Figure:
    """Two recognised modules: exact spectrum against the dense Hessian."""
    fig, left, right = two_panels()
    relu = nn.Sequential(nn.Linear(1, 14, bias=False), nn.ReLU(), nn.Linear(14, 1, bias=False)).double()
    linear = nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 3)).double()
    for k, p in enumerate([*relu.parameters(), *linear.parameters()]):
        p.data = randn(20 + k, *p.shape)
    X, Y = randn(50, 25, 1), randn(51, 25, 1)
    shown = [(left, es.Objective(relu, nn.MSELoss(), (X, Y)), "ReLU, one input, MSELoss")]
    data = (randn(52, 25, 2), torch.arange(25) % 3)
    shown.append((right, es.Objective(linear, nn.CrossEntropyLoss(), data), "Two linear layers, CrossEntropyLoss"))
    for ax, obj, title in shown:
        H = es.hessian(obj) @ torch.eye(obj.layout.size, dtype=torch.float64)
        draw_spectrum(ax, es.spectrum(obj), torch.linalg.eigvalsh(H), title)
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    return fig


PICTURES = {"deep-linear": deep_linear, "balanced": balanced, "aligned": aligned, "recognition": recognition}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of the pages on deep linear networks.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "img")
    parser.add_argument("--png", action="store_true", help="write PNG instead, to look at")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        fig = draw()
        if args.png:
            png(fig, args.out / f"{name}.png", dpi=110)
        else:
            text = svg(fig)
            body = text.index(">", text.index("<svg")) + 1
            white = '<rect width="100%" height="100%" fill="white"/>'  # readable on a dark page too
            (args.out / f"{name}.svg").write_text(text[:body] + white + text[body:], encoding="utf-8")


if __name__ == "__main__":
    main()
