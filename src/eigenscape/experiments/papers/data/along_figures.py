"""Trace and top eigenvalues along training, drawn and judged: [data] Figs. 3 and 4."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from ....report.numbers import number
from ....report.style import BLUE, INK, MUTED, VERMILLION, canvas, log_axis, styled
from ...machine import Figure, Rows, Verdict
from ..judging import verdict
from .along import TOPS, TRACE
from .trained_claims import sets
from .trained_figures import sets_there


def _row_of_axes(rows: Rows) -> tuple[Drawing, list[tuple[Axes, Rows]]]:
    """One panel per set."""
    there = sets_there(rows)
    fig = canvas(max(5.0, 1.0 + 2.3 * len(there)), 3.7)
    axes = np.atleast_1d(fig.subplots(1, len(there)))
    for ax, (_, _, title, _, _) in zip(axes, there):
        ax.set(title=title.replace(", ", ",\n"), xlabel="step (+ 1)")
    return fig, [(ax, part) for ax, (_, part, *_) in zip(axes, there)]


@styled
def draw_trace(rows: Rows) -> Drawing:
    """Estimates with two standard errors, eq. 7 as a line, and the loss behind."""
    fig, panels = _row_of_axes(rows)
    for ax, part in panels:
        ax.errorbar(part["step"] + 1, part["estimate"], 2 * part["stderr"], fmt="o", color=BLUE, markersize=4, linewidth=1)
        ax.plot(part["step"] + 1, part["exact"], color=INK, linewidth=1.2)
        log_axis(ax, "x")
        behind = ax.twinx()
        behind.plot(part["step"] + 1, part["loss"], color=VERMILLION, linestyle=":", linewidth=1.4)
        behind.set(ylim=(0, None), yticks=[])
        behind.spines["right"].set_visible(False)
    panels[0][0].set_ylabel("trace of the Hessian")
    marks = [
        Line2D([], [], color=BLUE, marker="o", markersize=4, linewidth=1, label="Hutchinson, 100 probes, ± 2 standard errors"),
        Line2D([], [], color=INK, linewidth=1.2, label="eq. 7"),
        Line2D([], [], color=VERMILLION, linestyle=":", label="loss, from 0 (no scale)"),
    ]
    fig.legend(handles=marks, loc="outside lower center", ncols=3 if len(panels) > 2 else 1)
    return fig


@styled
def draw_top(rows: Rows) -> Drawing:
    """Percentage error of eq. 15 for each of the ten largest eigenvalues, with the loss above its end behind."""
    fig, panels = _row_of_axes(rows)
    for ax, part in panels:
        for rank, found in part.by("rank"):
            error = 100 * np.abs(found["theory"] / found["measured"] - 1)
            ax.plot(
                found["step"] + 1, np.maximum(error, 1e-4), color=BLUE, alpha=1 - 0.08 * rank, linewidth=1.8 if rank == 0 else 1
            )
        log_axis(ax, "x")
        log_axis(ax, "y")
    panels[0][0].set_ylabel("error of eq. 15 (%)")
    marks = [
        Line2D([], [], color=BLUE, linewidth=1.8, label="largest eigenvalue"),
        Line2D([], [], color=BLUE, alpha=0.4, linewidth=1, label="second to tenth, fading"),
        Line2D([], [], color=MUTED, linestyle="none", label="errors below 0.0001 % are drawn there"),
    ]
    fig.legend(handles=marks, loc="outside lower center", ncols=3 if len(panels) > 2 else 1)
    return fig


def trace_claims(rows: Rows) -> list[Verdict]:
    """Exactness early and late, and what the norm does."""
    z = np.abs(rows["estimate"] - rows["exact"]) / rows["stderr"]
    share = float((rows["stderr"] / rows["exact"]).max())
    early = rows.where(step=0)
    first = float((np.abs(early["estimate"] - early["exact"]) / early["exact"]).max())
    return [
        verdict(
            "eq. 7 is the trace of the Hessian, early in training as well",
            "[data] eq. 7, Fig. 3",
            paper="holds very well",
            ours=f"estimates within {z.max():.2g} standard errors over {len(rows)} records ({number(100 * share, 2)} % of the "
            f"trace or less each); at initialisation, loss {early['loss'].max():.2g}, within {number(100 * first, 2)} %",
            holds=float(z.max()) < 4.5,
            why=f"exact at any loss: what Gauss-Newton leaves out has zero diagonal blocks; 4.5 allowed ({sets(rows)})",
        )
    ]


def top_claims(rows: Rows) -> list[Verdict]:
    """Precision over training, sums against maxima, and flattening."""
    first, last = rows.where(step=0), rows.where(lambda r: r["step"] == r["steps"])
    start, end = (np.abs(part["theory"] / part["measured"] - 1) for part in (first, last))
    top = last.where(rank=0)
    total = (top["first"] + top["second"]) / top["measured"]
    larger = np.maximum(top["first"], top["second"]) / top["measured"]
    falls = [_falls(part) for _, part in rows.where(rank=0).by("images")]
    sharper, smaller = (sum(flags) for flags in zip(*falls))
    return [
        verdict(
            "eq. 15 becomes increasingly precise as training progresses",
            "[data] eq. 15, Fig. 4",
            paper="increasingly precise",
            ours=f"error of the ten largest eigenvalues {number(100 * float(start.max()), 2)} % or less at initialisation, "
            f"{number(100 * float(end.max()), 2)} % at the end; medians {number(100 * float(np.median(start)), 2)} % and "
            f"{number(100 * float(np.median(end)), 2)} %",
            holds=float(end.max()) < float(start.max()) and float(np.median(end)) < float(np.median(start)),
            partly=float(np.median(end)) < float(np.median(start)),
            why=f"what is missing is at most the residual covariance, which vanishes while the loss does not ({sets(rows)})",
        ),
        verdict(
            "the largest eigenvalue is the sum of both squared spectral norms, not the larger one",
            "[data] eq. 10 against [cracking] App. D.3.3",
            paper="the sum",
            ours=f"over the measured one, at the end: sum {number(float(total.min()), 4)} to {number(float(total.max()), 4)}, "
            f"larger norm {number(float(larger.min()), 4)} to {number(float(larger.max()), 4)}",
            holds=float(np.abs(total - 1).max()) < 0.02 and float(larger.max()) < 0.98,
            partly=float(np.abs(total - 1).max()) < 0.1,
        ),
        verdict(
            "sharpness decreases early in training since the parameter norm does",
            "[data] Sec. 3",
            paper="progressive flattening",
            ours=f"over the first tenth of the steps the sharpness falls in {sharper} of {len(falls)} runs, the norm in "
            f"{smaller}",
            holds=sharper == len(falls) and smaller == len(falls),
            partly=sharper > 0 and smaller > 0,
            why="PyTorch's initialisation; the text names none",
        ),
    ]


def _falls(rows: Rows) -> tuple[bool, bool]:
    """Whether sharpness and norm are smaller after the first tenth of the steps than at the start."""
    early = rows.where(lambda row: row["step"] <= row["steps"] / 10)[-1]
    start = rows.where(step=0)[0]
    return early["measured"] < start["measured"], early["norm"] < start["norm"]


FIGURES = (
    Figure(
        "data/fig3",
        "The trace of the Hessian through training, on three sets",
        "[data] Fig. 3",
        [TRACE],
        draw_trace,
        trace_claims,
        "Four linear layers of width 256 on white inputs. Dots: Hutchinson's estimate; line: eq. 7, from norms of products of "
        "layers. They agree from the first step on, at any loss.",
    ),
    Figure(
        "data/fig4",
        "The ten largest eigenvalues through training, on three sets",
        "[data] Fig. 4",
        [TOPS],
        draw_top,
        top_claims,
        "Two linear layers of width 256 on white inputs. Eq. 15 is exact for the Gauss-Newton matrix; its error for the "
        "Hessian falls as residuals become uncorrelated with the inputs.",
    ),
)
