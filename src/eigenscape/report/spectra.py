"""Pictures of spectra: the extreme eigenvalues, the density, the cumulative share, the layers."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from torch import Tensor

from ..core import Density, EigenPairs, Spectrum
from .style import AMBER, BLUE, EXACT, GGN, HESSIAN, INK, MUTED, NEGATIVE, REFERENCE, canvas, log_axis, power_of_ten, styled

DECADES = 7  # how far below the largest magnitude the logarithmic axes reach
COLOURS = (HESSIAN, GGN, REFERENCE, AMBER)
MAX_LAYERS = 40

Curves = Mapping[str, Density]
Exact = Mapping[str, Spectrum]


def _array(x: Tensor) -> np.ndarray:
    return x.detach().to("cpu", torch.float64).numpy()


def _pairs(ax: Axes, pairs: EigenPairs, shift: float, colour: str, marker: str, label: str) -> None:
    values, ends = _array(pairs.values), _array(pairs.intervals)
    rank = np.arange(1, len(values) + 1) + shift
    errors = np.clip(np.stack([values - ends[:, 0], ends[:, 1] - values]), 0, None)
    filled = "none" if marker == "s" else colour
    ax.errorbar(
        rank,
        values,
        yerr=errors,
        fmt=marker,
        color=colour,
        markerfacecolor=filled,
        markersize=5.5,
        capsize=3,
        elinewidth=1.2,
        label=label,
    )


def draw_top(
    ax: Axes, hessian: EigenPairs, ggn: EigenPairs | None = None, learning_rate: float | None = None, title: str = ""
) -> None:
    """Draw the largest eigenvalues by rank, each with the interval that surely holds one, beside the line 2 / learning rate."""
    both = 0.14 if ggn is not None else 0.0
    _pairs(ax, hessian, -both, HESSIAN, "o", "Hessian")
    if ggn is not None:
        _pairs(ax, ggn, both, GGN, "s", "Gauss-Newton")
    ax.margins(y=0.14)
    if learning_rate:
        threshold_line(ax, learning_rate, left=float(hessian.values[-1]) > 1.5 / learning_rate)
    if bool((hessian.values > 0).all()):
        ax.set_ylim(0, ax.get_ylim()[1])
    _ranks(ax, len(hessian))
    ax.set(xlabel="rank, from the top", ylabel="eigenvalue λ", title=title)
    if ggn is not None:
        ax.legend(loc="best")


def _ranks(ax: Axes, count: int) -> None:
    """Number the ranks on the horizontal axis."""
    ax.xaxis.set_major_locator(FixedLocator(range(1, count + 1)) if count <= 15 else MaxNLocator(integer=True))
    ax.set_xlim(0.4, count + 0.6)
    ax.grid(axis="x", visible=False)


def threshold_line(ax: Axes, learning_rate: float, left: bool = False) -> None:
    """Draw where gradient descent stops being stable, 2 / learning rate, with its name above the right or left end."""
    limit = 2 / learning_rate
    ax.axhline(limit, color=REFERENCE, linestyle="--", linewidth=1.3, label="_threshold")
    ax.annotate(
        f"2 / learning rate = {limit:.4g}",
        (0 if left else 1, limit),
        xycoords=("axes fraction", "data"),
        xytext=(4 if left else -4, 4),
        textcoords="offset points",
        ha="left" if left else "right",
        color=REFERENCE,
        fontsize=9,
    )


def draw_lowest(ax: Axes, lowest: EigenPairs, title: str = "") -> None:
    """Draw the smallest eigenvalues by rank."""
    _pairs(ax, lowest, 0.0, HESSIAN, "o", "Hessian")
    ax.axhline(0, color=MUTED, linewidth=0.8)
    ax.margins(y=0.14)
    _ranks(ax, len(lowest))
    ax.set(xlabel="rank, from the bottom", title=title)


@styled
def top_eigenvalues(
    hessian: EigenPairs,
    ggn: EigenPairs | None = None,
    lowest: EigenPairs | None = None,
    learning_rate: float | None = None,
) -> Figure:
    """Picture the two ends of the spectrum with their intervals."""
    fig = canvas(7.2, 3.6)
    if lowest is None or not len(lowest):
        draw_top(fig.add_subplot(), hessian, ggn, learning_rate)
        return fig
    left, right = fig.subplots(1, 2, gridspec_kw={"width_ratios": [3, 1]})
    draw_top(left, hessian, ggn, learning_rate, "Largest eigenvalues")
    draw_lowest(right, lowest, "Smallest")
    return fig


def _reach(curves: Curves) -> tuple[float, float, float]:
    """Smallest and largest point of all curves, and the largest magnitude."""
    ends = [d.support for d in curves.values()]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    return low, high, max(abs(low), abs(high)) or 1.0


def _all_curves(curves: Curves, exact: Exact | None) -> dict[str, tuple[Density, str, str]]:
    """Name -> density, colour and line style; exact spectra are thin ink lines."""
    styles = {name: (d, colour, "-") for (name, d), colour in zip(curves.items(), COLOURS * (1 + len(curves)))}
    return styles | {
        f"{name} (exact)": (Density.exact(s.values, s.multiplicities), EXACT, ":") for name, s in (exact or {}).items()
    }


def draw_density(
    ax: Axes, curves: Curves, marks: Float[Tensor, "k"] | None = None, exact: Exact | None = None, title: str = ""
) -> None:
    """Draw densities on a linear axis, log in height, with the eigenvalues found one by one as triangles below."""
    lines = _all_curves(curves, exact)
    low, high, _ = _reach({name: d for name, (d, _, _) in lines.items()})
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
    width = (high - low) / 150 or 0.01 * (abs(high) or 1.0)
    grid = torch.linspace(low - margin, high + margin, 1200, dtype=torch.float64)
    n = max(d.n for d, _, _ in lines.values())
    single = 1 / (n * width * (2 * np.pi) ** 0.5)
    peak = 0.0
    for name, (density, colour, style) in lines.items():
        height = _array(density.pdf(grid, width=width))
        peak = max(peak, float(height.max()))
        ax.plot(grid, height, color=colour, linestyle=style, label=name, linewidth=1.2 if style == ":" else 1.6)
        if style == "-" and len(curves) == 1:
            ax.fill_between(grid, height, single / 1e6, color=colour, alpha=0.12, linewidth=0)
    log_axis(ax, "y")
    ax.set_ylim(single / 6, 4 * peak)
    ax.set_xlim(float(grid[0]), float(grid[-1]))
    if marks is not None:
        at, foot = ax.get_xaxis_transform(), np.full(len(marks), 0.02)
        ax.plot(_array(marks), foot, "^", color=INK, markersize=5, label="eigenvalues found", transform=at)
    ax.set(xlabel="eigenvalue λ", ylabel="share per unit of λ", title=title)
    if len(lines) > 1 or marks is not None:
        ax.legend(loc="upper right")


def _log_points(scale: float, points: int = 600) -> Tensor:
    return torch.logspace(np.log10(scale) - DECADES, np.log10(scale) + 0.3, points, dtype=torch.float64)


def draw_magnitudes(
    ax: Axes, density: Density, exact: Spectrum | None = None, noise: float | None = None, title: str = ""
) -> None:
    """Draw one density by magnitude, each sign by itself; magnitudes below `noise` cannot be told from zero."""
    curves = {"": density} | ({"exact": Density.exact(exact.values, exact.multiplicities)} if exact else {})
    _, _, scale = _reach(curves)
    t = _log_points(scale)
    peak = 0.0
    for suffix, d in curves.items():
        style = {"linestyle": ":" if suffix else "-", "linewidth": 1.2 if suffix else 1.6}
        for sign, name, colour in ((1, "positive", HESSIAN), (-1, "negative", NEGATIVE)):
            height = _array(d.pdf(sign * t, axis="log"))
            if height.max() > 1e-3 / d.n:
                peak = max(peak, float(height.max()))
                label = name if not suffix else "exact" if sign > 0 else None
                ax.plot(t, height, color=EXACT if suffix else colour, label=label, **style)
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set_ylim(0.25 / density.n, 5 * max(peak, 1 / density.n))
    ax.set_xlim(float(t[0]), float(t[-1]))
    if noise is not None and noise > 3 * float(t[0]):
        ax.axvspan(float(t[0]), noise, color=MUTED, alpha=0.12, linewidth=0)
        middle = (float(t[0]) * noise) ** 0.5
        look = {"rotation": 90, "ha": "center", "va": "bottom", "color": MUTED, "fontsize": 9}
        ax.text(middle, 0.03, "rounding", transform=ax.get_xaxis_transform(), **look)
    ax.set(xlabel="magnitude |λ|", ylabel="share per decade of |λ|", title=title)
    if ax.lines:
        ax.legend(loc="best")
    else:
        ax.text(0.5, 0.5, "all eigenvalues vanish", transform=ax.transAxes, ha="center", color=MUTED)


@styled
def density(
    curves: Curves,
    marks: Float[Tensor, "k"] | None = None,
    exact: Exact | None = None,
    noise: float | None = None,
) -> Figure:
    """Picture the density twice: on a linear axis, where outliers stand apart, and by magnitude, where the bulk opens up.

    The second panel shows the first curve. `exact` spectra are laid over as dotted lines.
    """
    fig = canvas(7.2, 3.5)
    left, right = fig.subplots(1, 2)
    draw_density(left, curves, marks, exact, "Density")
    first, name = next(iter(curves.values())), next(iter(curves))
    draw_magnitudes(right, first, (exact or {}).get(name), noise, "By magnitude and sign")
    return fig


def _symlog(ax: Axes, low: float, high: float, threshold: float) -> None:
    """Make the horizontal axis logarithmic beyond the threshold, with a label at every decade, or at every other one."""
    ax.set_xscale("symlog", linthresh=threshold, linscale=0.6)
    decades = [max(0.0, np.log10(abs(end) / threshold)) if end else 0.0 for end in (low, high)]
    powers = threshold * 10.0 ** np.arange(0, max(decades) + 1, 1 if sum(decades) <= 6 else 2)
    ax.xaxis.set_major_locator(FixedLocator([*-powers[::-1], 0.0, *powers]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _symlog_points(low: float, high: float, threshold: float, points: int = 300) -> Tensor:
    reach = [np.geomspace(threshold, 1.6 * abs(end), points) * np.sign(end) for end in (low, high) if abs(end) > threshold]
    inner = np.linspace(-threshold, threshold, points)
    return torch.from_numpy(np.unique(np.concatenate([*reach, inner])))


def draw_cumulative(ax: Axes, curves: Curves, exact: Exact | None = None, level: float = 0.95, title: str = "") -> None:
    """Draw the share of eigenvalues at or below each point, with a confidence band at each point."""
    lines = _all_curves(curves, exact)
    low, high, scale = _reach({name: d for name, (d, _, _) in lines.items()})
    threshold = 10.0 ** np.floor(np.log10(scale) - 4)
    grid = _symlog_points(low, high, threshold)
    for name, (d, colour, style) in lines.items():
        if style == "-" and not d.status.startswith("exact"):
            lower, upper = d.band(level, grid)
            ax.fill_between(grid, lower, upper, color=colour, alpha=0.2, linewidth=0, label=f"{level:.0%} band, {name}")
        ax.plot(grid, d.cdf(grid), color=colour, linestyle=style, label=name)
    _symlog(ax, low, high, threshold)
    ax.set_xlim(float(grid[0]), float(grid[-1]))
    ax.set_ylim(-0.02, 1.02)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    ax.set(xlabel="eigenvalue λ (logarithmic away from 0)", ylabel="share at or below λ", title=title)
    ax.legend(loc="upper left")


@styled
def cumulative(curves: Curves, exact: Exact | None = None, level: float = 0.95) -> Figure:
    """Picture the cumulative share of eigenvalues with its confidence band."""
    fig = canvas(7.2, 3.6)
    draw_cumulative(fig.add_subplot(), curves, exact, level)
    return fig


@styled
def layers(densities: Mapping[str, Density]) -> Figure:
    """Picture the density of each diagonal block by magnitude, one row per block, positive above negative.

    Of more than 40 blocks, the 40 that reach furthest are shown.
    """
    reach = {name: _reach({name: d})[2] for name, d in densities.items()}
    kept = set(sorted(reach, key=lambda name: -reach[name])[:MAX_LAYERS])
    names = [name for name in densities if name in kept]
    fig = canvas(7.2, 1.2 + 0.46 * len(names))
    ax = fig.add_subplot()
    t = _log_points(max(reach.values()))
    for row, name in enumerate(names):
        base = len(names) - 1 - row
        _ridge(ax, t, densities[name], base)
    log_axis(ax, "x")
    ax.set_xlim(float(t[0]), float(t[-1]))
    ax.set_yticks(range(len(names)), names[::-1])
    ax.set_ylim(-0.6, len(names) - 0.1)
    ax.set(xlabel="magnitude |λ|")
    ax.set_title(
        f"{len(names)} of {len(densities)} blocks" if len(names) < len(densities) else "Diagonal blocks of the Hessian"
    )
    handles = [(BLUE, "positive (upwards)"), (NEGATIVE, "negative (downwards)")]
    for colour, label in handles:
        ax.fill_between([], [], color=colour, alpha=0.6, label=label)
    ax.legend(loc="lower left", bbox_to_anchor=(0.45, 1.0), ncols=2, borderaxespad=0.1)
    return fig


def _ridge(ax: Axes, t: Tensor, d: Density, base: float) -> None:
    """One row: heights are logarithms, from a quarter of one eigenvalue per decade up to ten times all of them."""
    up, down = (np.log10(np.maximum(4 * d.n * _array(d.pdf(sign * t, axis="log")), 1)) for sign in (1, -1))
    full = np.log10(40 * d.n)
    ax.axhline(base, color=MUTED, linewidth=0.6)
    ax.fill_between(t, base, base + 0.8 * up / full, color=BLUE, alpha=0.6, linewidth=0.8)
    ax.fill_between(t, base, base - 0.4 * down / full, color=NEGATIVE, alpha=0.6, linewidth=0.8)


@styled
def overview(
    hessian: EigenPairs,
    ggn: EigenPairs | None,
    curves: Curves,
    *,
    learning_rate: float | None = None,
    exact: Exact | None = None,
    noise: float | None = None,
    title: str = "",
) -> Figure:
    """Picture everything measured about one objective on one sheet of two by two panels."""
    fig = canvas(9.6, 6.6 if curves else 3.4)
    fig.suptitle(title, fontsize=11, x=0.01, ha="left")
    if not curves:
        draw_top(fig.add_subplot(), hessian, ggn, learning_rate, "Largest eigenvalues")
        return fig
    axes: Sequence[Axes] = fig.subplots(2, 2).flat
    first = next(iter(curves))
    draw_top(axes[0], hessian, ggn, learning_rate, "Largest eigenvalues")
    draw_density(axes[1], curves, hessian.values, exact, "Density")
    draw_magnitudes(axes[2], curves[first], (exact or {}).get(first), noise, "By magnitude and sign")
    draw_cumulative(axes[3], curves, exact, title="Cumulative share")
    return fig
