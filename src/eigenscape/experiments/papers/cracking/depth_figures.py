"""Matrices and knocked-out products of deep networks and the sharpness, drawn and judged: [cracking] Figs. 17 to 22."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from ....report.style import INK, canvas, styled
from ...machine import Figure, Rows, Verdict
from .depth_claims import of_depths, persists, products, singles
from .norm_claims import SCHEMES, WHEN
from .norms import EXPERIMENT


def _panel(ax: Axes, rows: Rows, depths: list[int]) -> None:
    """Depth downwards, number of the matrix to the right, the correlation as colour and number."""
    table = np.full((len(depths), max(depths)), np.nan)
    for row in rows:
        table[depths.index(row["depth"]), row["matrix"] - 1] = row["pearson"]
    ax.imshow(table, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for (i, j), r in np.ndenumerate(table):
        if r == r:
            ax.text(
                j,
                i,
                f"{round(r, 2) + 0.0:.2f}".replace("-", "−"),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if abs(r) > 0.65 else INK,
            )
    ax.grid(visible=False)
    ax.set_xticks(range(max(depths)), [str(b + 1) for b in range(max(depths))])
    ax.set_yticks(range(len(depths)), [str(B) for B in depths])
    ax.tick_params(length=0)


def _draw(kind: str, norm: str) -> Callable[[Rows], Drawing]:
    @styled
    def draw(rows: Rows) -> Drawing:
        """One column of panels per parametrisation, before and after training."""
        found = of_depths(rows, kind, norm)
        schemes = [s for s in SCHEMES if len(found.where(weights=s))]
        fig = canvas(9.6, 5.2)
        axes = fig.subplots(2, len(schemes), sharex=True, sharey=True, squeeze=False)
        for line, (when, words) in zip(axes, WHEN.items()):
            for ax, scheme in zip(line, schemes):
                _panel(ax, found.where(weights=scheme, when=when), sorted(set(found["depth"])))
                ax.set_title(f"{SCHEMES[scheme]}, {words}")
            line[0].set_ylabel("depth B")
        label = "b of the product without W_b" if kind == "product" else "b of the matrix W_b"
        for ax in axes[-1]:
            ax.set_xlabel(label)
        bar = fig.colorbar(axes[0, 0].images[0], ax=axes, shrink=0.8, pad=0.02)
        bar.set_label("correlation with the sharpness")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        return fig

    return draw


def _figure(
    number: int,
    kind: str,
    inputs: int,
    activation: str,
    norm: str,
    claims: Callable[[Rows], list[Verdict]],
) -> Figure:
    what = "products without one matrix" if kind == "product" else "single matrices"
    nets = f"{'ReLU' if activation == 'relu' else 'linear'} networks, D = {inputs}"
    return Figure(
        f"cracking/fig{number}",
        f"Sharpness and {what} of deep {nets}",
        f"[cracking] Fig. {number}",
        [EXPERIMENT],
        _draw(kind, norm),
        claims,
        f"Pearson's correlation over networks of width 100 between the sharpness and the squared {norm.capitalize()} norm of "
        f"{'the product of all matrices but W_b' if kind == 'product' else 'W_b'}. Rows are depths, columns the number b. With "
        "two layers the product without one matrix is the other.",
        {EXPERIMENT.name: lambda cell: cell.inputs == inputs and cell.activation == activation},
    )


CLOSE = "strongest near convergence and in low dimensions"
FIGURES = (
    _figure(17, "product", 1, "linear", "spectral", products("[cracking] Sec. 4.2, Fig. 17", CLOSE)),
    _figure(18, "product", 10, "linear", "spectral", persists),
    _figure(19, "single", 1, "linear", "spectral", singles("[cracking] Fig. 19", "spectral")),
    _figure(20, "single", 10, "linear", "spectral", singles("[cracking] Fig. 20", "spectral")),
    _figure(21, "product", 1, "relu", "spectral", products("[cracking] App. D.3.4, Fig. 21", "shown for ReLU networks")),
    _figure(22, "single", 1, "relu", "frobenius", singles("[cracking] Fig. 22", "frobenius")),
)
