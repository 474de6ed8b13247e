"""Norms of two weight matrices and the sharpness, drawn and judged: [cracking] Figs. 4, 14, 15, 16 and 26."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from ....report.style import AMBER, BLUE, GREEN, INK, canvas, styled
from ...machine import Figure, Rows, Verdict
from .norm_claims import SCHEMES, WHEN, claims_fig4, claims_fig14, claims_fig15, claims_fig16, claims_fig26
from .norms import EXPERIMENT, Nets

COLOURS = {"spectral": BLUE, "frobenius": AMBER, "nuclear": GREEN}
LINES = {0: ("-", "o"), 1: ("-", "o"), 2: ("--", "s")}


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Input sizes on a logarithmic axis, each with its label as long as they do not touch."""
    ax.set_xscale("log")
    last, ticks = 0.0, []
    for size in sizes:
        if size >= 1.35 * last:
            ticks.append(size)
            last = size
    ax.set_xticks(ticks, [str(size) for size in ticks])
    ax.minorticks_off()


def _panel(ax: Axes, rows: Rows, sizes: Sequence[int]) -> None:
    """One line per norm and matrix, two standard errors shaded."""
    for norm, colour in COLOURS.items():
        for matrix, part in rows.where(norm=norm).by("matrix"):
            style, marker = LINES[matrix]
            D, r, e = part["inputs"], part["pearson"], 2 * part["error"]
            order = D.argsort()
            D, r, e = D[order], r[order], e[order]
            ax.plot(D, r, color=colour, linestyle=style, marker=marker, markersize=3.5)
            ax.fill_between(D, (r - e).clip(-1), (r + e).clip(max=1), color=colour, alpha=0.12, linewidth=0)
    ax.axhline(0, color=INK, linewidth=0.6)
    ax.set_ylim(-1.05, 1.05)
    size_axis(ax, sizes)


def _draw(of: str, kind: str) -> Callable[[Rows], Drawing]:
    @styled
    def draw(rows: Rows) -> Drawing:
        """One row of panels per parametrisation, before and after training."""
        rows = rows.where(of=of, kind=kind)
        schemes = [s for s in SCHEMES if len(rows.where(weights=s))]
        fig = canvas(8.6, 0.9 + 2.4 * len(schemes))
        axes = np.atleast_2d(fig.subplots(len(schemes), 2, sharex=True, sharey=True))
        for line, scheme in zip(axes, schemes):
            for ax, (when, words) in zip(line, WHEN.items()):
                _panel(ax, rows.where(weights=scheme, when=when), sorted(set(rows["inputs"])))
                ax.set_title(f"{SCHEMES[scheme]}, {words}")
            line[0].set_ylabel(f"correlation with the {of}")
        for ax in axes[-1]:
            ax.set_xlabel("input and output size D")
        for norm, colour in COLOURS.items():
            axes[0, 0].plot([], [], color=colour, label=f"{norm.capitalize()} {'alignment' if kind == 'aligned' else 'norm²'}")
        if kind != "aligned":
            for matrix in (1, 2):
                style, marker = LINES[matrix]
                axes[0, 0].plot([], [], color=INK, linestyle=style, marker=marker, markersize=3.5, label=f"W{'₁₂'[matrix - 1]}")
        fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=5)
        return fig

    return draw


def _figure(
    name: str,
    title: str,
    source: str,
    chosen: Callable[[Nets], bool],
    claims: Callable[[Rows], list[Verdict]],
    of: str = "sharpness",
    kind: str = "single",
) -> Figure:
    return Figure(
        f"cracking/{name}",
        title,
        f"[cracking] {source}",
        [EXPERIMENT],
        _draw(of, kind),
        claims,
        f"Pearson's correlation over networks of width 100 that differ in their beginnings, between the {of} and the "
        f"{'squared norms' if kind == 'single' else 'absolute alignments'}; shaded: two standard errors by the bootstrap. All "
        "networks of a point share their samples: the text does not say whether theirs do.",
        {EXPERIMENT.name: lambda cell: cell.depth == 2 and chosen(cell)},
    )


def _linear(cell: Nets) -> bool:
    return cell.activation == "linear"


FIGURES = (
    _figure(
        "fig4",
        "Sharpness and the norms of two weight matrices, SP and μP",
        "Fig. 4",
        lambda c: _linear(c) and c.weights != "ntp",
        claims_fig4,
    ),
    _figure(
        "fig14",
        "Sharpness and the norms of two weight matrices, NTP",
        "Fig. 14",
        lambda c: _linear(c) and c.weights == "ntp",
        claims_fig14,
    ),
    _figure("fig15", "Sharpness and the alignment of two weight matrices", "Fig. 15", _linear, claims_fig15, kind="aligned"),
    _figure(
        "fig16",
        "Sharpness and the norms of two weight matrices of ReLU networks",
        "Fig. 16",
        lambda c: c.activation == "relu",
        claims_fig16,
    ),
    _figure(
        "fig26", "The trace of the Hessian and the norms of two weight matrices", "Fig. 26", _linear, claims_fig26, of="trace"
    ),
)
