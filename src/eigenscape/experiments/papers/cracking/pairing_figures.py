"""Pairs of outliers against the input size, drawn and judged: [cracking] Figs. 3 and 10 to 13."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from ....report.style import AMBER, BLUE, GREEN, VERMILLION, canvas, styled
from ...machine import Figure, Rows, Verdict
from ..judging import verdict
from .pairing import DECORRELATED, EXPERIMENT, ORTHOGONAL, STANDARD, STANDARDISED, Models, median

FLOOR = 1e-17  # gaps below it are drawn here
CURVES = (
    ("gap", BLUE, "-", "o", "best pair"),
    ("next_gap", GREEN, "-", "s", "next best pair"),
    ("random_gap", AMBER, "--", "", "best pair for a random target"),
    ("mean", VERMILLION, ":", "", "mean eigenvalue"),
)
KINDS = {
    (ORTHOGONAL, DECORRELATED): "Orthogonal weights, decorrelated data",
    (STANDARD, STANDARDISED): "Standard weights, standardised data",
    (ORTHOGONAL, STANDARDISED): "Orthogonal weights, standardised data",
    (STANDARD, DECORRELATED): "Standard weights, decorrelated data",
}


def _panel(ax: Axes, rows: Rows) -> None:
    """Medians over models with the middle half of them."""
    groups = rows.by("inputs")
    sizes = [D for D, _ in groups]
    for column, colour, style, marker, label in CURVES:
        q = np.array([np.quantile(np.maximum(part[column], FLOOR), [0.25, 0.5, 0.75]) for _, part in groups])
        ax.plot(sizes, q[:, 1], color=colour, linestyle=style, marker=marker, markersize=3.5, label=label)
        if column != "mean":
            ax.fill_between(sizes, q[:, 0], q[:, 2], color=colour, alpha=0.15, linewidth=0)
    ax.set_yscale("log")
    ax.set(ylim=(FLOOR / 3, 30), xlabel="input size D")
    if sizes[-1] > 20:
        ax.set_xscale("log")
        ax.set_xticks(sizes if len(sizes) < 9 else sizes[::2], [str(D) for D in (sizes if len(sizes) < 9 else sizes[::2])])
        ax.minorticks_off()
    else:
        ax.set_xticks(sizes)


@styled
def draw(rows: Rows) -> Drawing:
    """One panel per kind of weights and data."""
    kinds = [kind for kind in KINDS if len(rows.where(weights=kind[0], data=kind[1]))]
    columns, lines = 2, -(-len(kinds) // 2)
    fig = canvas(8.8, 0.6 + 3.1 * lines)
    axes = np.atleast_2d(fig.subplots(lines, columns, sharey=True))
    for ax, kind in zip(axes.flat, kinds):
        _panel(ax, rows.where(weights=kind[0], data=kind[1]))
        ax.set_title(KINDS[kind])
    for ax in axes[:, 0]:
        ax.set_ylabel("|λᵢ + λⱼ − tr H / D|")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncol=4)
    return fig


def _claims(source: str, exact: bool) -> Callable[[Rows], list[Verdict]]:
    """Verdicts on what a figure shows; `exact`: whether the text says that the first panel has a clear pair."""

    def claims(rows: Rows) -> list[Verdict]:
        checked = rows.where(lambda row: "error" in row and row["error"] is not None and row["error"] == row["error"])
        found = []
        for kind in KINDS:
            part = rows.where(lambda row, k=kind: (row["weights"], row["data"]) == k and row["inputs"] > 1)
            if len(part):
                found.append(_paired(part, kind, source, exact))
        if len(checked):
            error = float(checked["error"].max())
            found.append(
                verdict(
                    "the spectra are those of the networks",
                    "ours",
                    paper="dense eigenvalues",
                    ours=f"within {error:.0e} of the dense Hessian by autograd in {len(checked)} models of all kinds",
                    holds=error < 1e-10,
                    why="agrees below 1e-10; wide two-layer networks by the exact reduction",
                )
            )
        return found

    return claims


def _paired(rows: Rows, kind: tuple[str, str], source: str, exact: bool) -> Verdict:
    """Judge one kind: is there a pair, and is it closer than chance would have it?"""
    near, second, by_chance = (median(rows[c] / rows["target"]) for c in ("gap", "next_gap", "random_gap"))
    text = (
        f"median |λᵢ + λⱼ − tr/D| over tr/D, D > 1: {near:.1e} for the best pair, {second:.1e} for the next, "
        f"{by_chance:.1e} for the best pair of a random target"
    )
    special = near < 0.1 * by_chance
    if kind == (ORTHOGONAL, DECORRELATED) and exact:
        return verdict(
            f"two outliers sum to tr H / D: {KINDS[kind].lower()}",
            source,
            paper="their gap is orders of magnitude below the next best and the mean eigenvalue",
            ours=text,
            holds=near < 0.01 * second and near < 0.01 * median(rows["mean"] / rows["target"]),
            why="agrees if the gap is 100 times below both; a theorem for white inputs, orthogonal V and decorrelated targets",
        )
    return verdict(
        f"two eigenvalues sum to tr H / D: {KINDS[kind].lower()}",
        source,
        paper="holds approximately, without a clear best pair",
        ours=text,
        holds=special and near < 0.01,
        partly=near < 0.01,
        why="agrees if the gap is ten times below that of targets drawn between 0.5 and 1.5 tr/D; partly if below 1 %, as it "
        "is for any number where there are many pairs",
    )


def _figure(name: str, what: str, chosen: Callable[[Models], bool], exact: bool = False) -> Figure:
    source = f"[cracking] Fig. {name[3:]}"
    return Figure(
        f"cracking/{name}",
        f"Pairs of eigenvalues and the trace over D: {what}",
        source,
        [EXPERIMENT],
        draw,
        _claims(source, exact),
        "How close the sum of two eigenvalues comes to tr H / D, against the input size: medians over models, with the middle "
        "half of them shaded. The amber line is how close the best pair comes to a random number of that size.",
        {EXPERIMENT.name: chosen},
    )


def _two_linear(cell: Models) -> bool:
    return cell.depth == 2 and cell.activation == "linear"


FIGURES = (
    _figure("fig3", "two linear layers of width 150", lambda c: _two_linear(c) and c.width == 150, exact=True),
    _figure("fig10", "two linear layers of width 10", lambda c: _two_linear(c) and c.width == 10, exact=True),
    _figure("fig11", "four linear layers of width 10", lambda c: c.depth == 4 and c.activation == "linear"),
    _figure("fig12", "two ReLU layers of width 10", lambda c: c.depth == 2 and c.activation == "relu"),
    _figure("fig13", "four ReLU layers of width 10", lambda c: c.depth == 4 and c.activation == "relu"),
)
