"""The spectrum of self-attention with ten embedding dimensions as a sink grows: [cracking] Fig. 9."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from ....report.style import BLUE, INK, VERMILLION, canvas, log_axis, styled
from ...machine import Experiment, Figure, Row, Rows, Verdict
from ..judging import verdict
from .brute import hessian_eigenvalues
from .samples import normal

BULK = "bulk"
TOP = 0.05  # share of the outliers that is drawn, as in the paper


@dataclass(frozen=True)
class Layer:
    """One layer `softmax(X W_Q W_K^T X^T / sqrt(d_K)) X W_V` on random sequences with random targets, and its sink.

    - massive: factor on the first token of every sequence.
    """

    sink: float
    massive: float
    seed: int = 0
    embedding: int = 10
    width: int = 100
    sequences: int = 10
    length: int = 10


def cells(profile: str) -> list[Layer]:
    """Sinks from none to nearly all of the attention, with a normal and with a massive first token."""
    if profile == "smoke":
        return [Layer(sink, 1.0, embedding=4, width=20) for sink in (0.0, 3.0, 6.0)]
    sinks = [0.0, 1.0, 2.0, 3.0, 5.0, 8.0]
    return [Layer(s, m, seed) for seed in range(2 if profile == "quick" else 10) for m in (1.0, 2.0) for s in sinks]


def measure(cell: Layer, device: torch.device) -> list[Row]:
    """One row per value of the predicted bulk, with how far the dense Hessian's are from it, and one per large outlier.

    The loss sees W_Q and W_K through their product alone. With sigma_i the singular values of its derivative there,
    `+-sigma_i` are eigenvalues `d_K - (2 d - 1)` times each: the product bulk.
    """
    shared = Layer(0.0, 0.0, cell.seed, cell.embedding, cell.width, cell.sequences, cell.length)
    d, m = cell.embedding, cell.width
    X, Y = (normal(shared, name, cell.sequences, cell.length, d, device=device) for name in ("inputs", "targets"))
    X = torch.cat([cell.massive * X[:, :1], X[:, 1:]], 1)
    theta = torch.cat([normal(shared, name, d * k, device=device) / k**0.5 for name, k in (("Q", m), ("K", m), ("V", d))])

    def loss(t: Tensor) -> Tensor:
        Q, K, V = t.split([d * m, d * m, d * d])
        return _loss(Q.reshape(d, m) @ K.reshape(d, m).T, V.reshape(d, d), X, Y, cell)[0]

    dense = hessian_eigenvalues(loss, theta, columns=256)
    Q, K, V = theta.split([d * m, d * m, d * d])
    product = (Q.reshape(d, m) @ K.reshape(d, m).T).requires_grad_()
    value, attention = _loss(product, V.reshape(d, d), X, Y, cell)
    (slope,) = torch.autograd.grad(value, product)
    sigma = torch.linalg.svdvals(slope)
    copies, rest = m - (2 * d - 1), torch.ones(len(dense), dtype=torch.bool)
    shared_row = {"attention": float(attention.detach()), "copies": copies, "parameters": len(dense), "top": float(dense[-1])}
    rows: list[Row] = []
    for target in torch.cat([sigma, -sigma]):
        nearest = (dense - target).abs().argsort()[:copies]
        rest[nearest] = False
        rows.append(shared_row | {"kind": BULK, "value": float(target), "error": float((dense[nearest] - target).abs().max())})
    outliers = dense[rest.to(dense.device)].sort(descending=True).values[: max(1, round(TOP * int(rest.sum())))]
    return rows + [shared_row | {"kind": "outlier", "value": float(v)} for v in outliers]


def _loss(product: Tensor, V: Tensor, X: Tensor, Y: Tensor, cell: Layer) -> tuple[Tensor, Tensor]:
    """Half the squared error per token, and the attention that the first token gets."""
    scores = X @ product @ X.mT / cell.width**0.5
    scores = torch.cat([scores[..., :1] + cell.sink, scores[..., 1:]], -1)
    A = scores.softmax(-1)
    return 0.5 * (A @ X @ V - Y).square().sum(-1).mean(), A[..., 0].mean()


EXPERIMENT = Experiment("cracking/attention-sink", cells, measure)


def summary(part: Rows) -> dict[str, float]:
    """Of one spectrum: sharpness, largest of the bulk, and how far the dense Hessian is from the predicted bulk."""
    bulk = part.where(kind=BULK)
    return {"largest": part["top"][0], "bulk": bulk["value"].max(), "error": bulk["error"].max() / part["top"][0]}


@styled
def draw(rows: Rows) -> Drawing:
    """Bulk and largest outliers of each spectrum, in columns of growing sink."""
    kinds = rows.where(seed=0).by("massive")
    fig = canvas(8.6, 3.9)
    for ax, (massive, kind) in zip(np.atleast_1d(fig.subplots(1, len(kinds))), kinds):
        spectra = kind.by("sink")
        for column, (_, part) in enumerate(spectra):
            for kind_, colour, shift in (("outlier", VERMILLION, 0.14), (BULK, BLUE, -0.14)):
                shown = part.where(lambda row, k=kind_: row["kind"] == k and row["value"] > 0)["value"]
                ax.scatter(np.full(len(shown), column + shift), shown, s=14, color=colour, marker="_", linewidths=1.6)
        ax.plot([], [], color=VERMILLION, label=f"outliers, the largest {TOP:.0%}")
        ax.plot([], [], color=BLUE, label="bulk ±σ, positive half")
        labels = [f"{sink:g}\n{part['attention'][0]:.2f}" for sink, part in spectra]
        ax.set_xticks(range(len(labels)), labels)
        log_axis(ax, "y")
        ax.grid(axis="x", visible=False)
        ax.set(xlabel="number added to the first token's scores, and the attention it gets", ylabel="eigenvalue λ")
        ax.set_title("First token as the others" if massive == 1 else f"First token {massive:g} times as large", color=INK)
        ax.legend(loc="lower left", fontsize=8)
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """The bulk shrinks and the outliers grow with the sink."""
    runs = {key: [summary(part) for _, part in run.by("sink")] for key, run in rows.by("massive", "seed")}
    error = max(s["error"] for run in runs.values() for s in run)
    text = "; ".join(
        f"first token ×{m:g}: σ {k[0]['bulk']:.2g} → {k[-1]['bulk']:.1g}, λ_max {k[0]['largest']:.3g} → {k[-1]['largest']:.3g}"
        for (m, seed), k in runs.items()
        if seed == 0
    )
    shrunk, grown = (
        sum(sign * k[-1][name] > sign * k[0][name] for k in runs.values()) for name, sign in (("bulk", -1), ("largest", 1))
    )
    steady = sum(all(a["bulk"] >= b["bulk"] and a["largest"] <= b["largest"] for a, b in pairwise(k)) for k in runs.values())
    copies, size, count = int(rows["copies"][0]), int(rows["parameters"][0]), len(runs)
    return [
        verdict(
            "the larger the sink, the smaller the bulk and the larger the outliers, also for ten embedding dimensions",
            "[cracking] Fig. 9",
            paper="bulk shrinks, outliers grow",
            ours=f"{text}; from the smallest to the largest sink the bulk shrinks in {shrunk} and λ_max grows in {grown} of "
            f"{count} runs; both do so at every step in {steady}",
            holds=steady == count,
            partly=shrunk + grown > 1.5 * count,
            why="agrees if both hold at every step of every run; the text says neither how large weights nor tokens are",
        ),
        verdict(
            f"±σ_i of the derivative by W_Q W_K^T are eigenvalues, {copies} times each",
            "ours",
            paper="stated for embedding dimension 1 only (Theorem 3.5)",
            ours=f"found in the dense Hessian of size {size} to {error:.0e} of the largest eigenvalue",
            holds=error < 1e-8,
            why="the product bulk: d_K - (2 d - 1) copies; agrees below 1e-8",
        ),
    ]


FIGURE = Figure(
    "cracking/fig9",
    "A sink in self-attention with ten embedding dimensions",
    "[cracking] Fig. 9",
    [EXPERIMENT],
    draw,
    claims,
    "Each column is one spectrum: repeating eigenvalues (bulk) and the largest 5 % of the others, positive ones on a "
    "logarithmic axis. To the right more and more attention goes to the first token. d_K = 100, ten sequences of ten tokens; "
    "inputs and targets are standard normal, weights have the variance 1 / d_K, so that attention starts nearly uniform.",
)
