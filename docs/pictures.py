"""Draw the picture of the first page from a finished demo and one closed form.

Run `make demo && .venv/bin/python docs/pictures.py`; it writes `docs/img/first.png`.
"""

import argparse
import json
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import eigenscape as es
from eigenscape.report.spectra import draw_density
from eigenscape.report.style import BLUE, INK, MUTED, REFERENCE, VERMILLION, canvas, png, styled


def draw_training(ax: Axes, folder: Path) -> None:
    """The sharpness along the demo's training run, against 2 / learning rate."""
    training = json.loads((folder / "training.json").read_text())
    run, limit = training["training"], 2 / training["learning_rate"]
    ax.plot(run["step"], run["sharpness"], color=BLUE, marker="o", ms=2.4, lw=1.1, label="sharpness, measured")
    ax.axhline(limit, color=REFERENCE, ls="--", lw=1.3, label=f"2 / learning rate = {limit:g}")
    ax.set(xlabel="gradient-descent step", ylabel="largest eigenvalue", title="Along a training run")
    ax.set_xlim(0, run["step"][-1])
    ax.set_ylim(0, 1.25 * limit)
    ax.legend(loc="lower right")


def draw_exact(ax: Axes) -> None:
    """Every eigenvalue of a two-layer linear network: bars from the formula, dots from the dense Hessian."""
    g = torch.Generator().manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 9, bias=False), torch.nn.Linear(9, 2, bias=False)).double()
    for p in model.parameters():
        p.data = 0.6 * torch.randn(p.shape, generator=g, dtype=torch.float64)
    X = torch.randn(40, 3, generator=g, dtype=torch.float64)
    obj = es.Objective(model, es.losses.half_mse, (X, torch.randn(40, 2, generator=g, dtype=torch.float64)))
    spectrum, dense = es.spectrum(obj), es.dense(es.hessian(obj)).expand()
    exact = spectrum.expand()
    assert (exact - dense).abs().max() < 1e-10 * dense.max()
    outlier = torch.tensor([label == "outlier" for label in spectrum.labels]).repeat_interleave(spectrum.multiplicities)
    outlier = outlier[spectrum.values.repeat_interleave(spectrum.multiplicities).argsort()]
    ranks = torch.arange(1, len(dense) + 1)
    for kept, colour, label in ((outlier, VERMILLION, "outliers, formula"), (~outlier, BLUE, "bulk and zeros, formula")):
        ax.bar(ranks[kept].tolist(), exact[kept].tolist(), color=colour, alpha=0.75, width=0.75, label=label)
    ax.plot(ranks.tolist(), dense.tolist(), "o", color=INK, ms=2.4, label="dense Hessian")
    ax.axhline(0, color=MUTED, lw=0.6)
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="rank", ylabel="eigenvalue", title="Exactly, where a formula exists")
    ax.legend(loc="upper left")


@styled
def first(folder: Path) -> Figure:
    """What a demo measures, and what a formula knows."""
    found = es.load(folder)
    fig = canvas(11.4, 3.3)
    left, middle, right = fig.subplots(1, 3)
    draw_training(left, folder)
    draw_density(
        middle, {"Hessian": found.density}, found.hessian.values, title=f"Measured: {found.num_parameters:,} eigenvalues"
    )
    draw_exact(right)
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=Path("out/demo"))
    png(first(parser.parse_args().demo), Path(__file__).parent / "img" / "first.png", dpi=140)


if __name__ == "__main__":
    main()
