"""One look for every figure: colours, type, axes, and writers whose output is the same every time."""

import io
import math
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

P = ParamSpec("P")

INK, MUTED, GRID = "#1b1f24", "#5d6772", "#d8dde3"
# Okabe and Ito's palette: distinct under every common colour blindness, and in grey by its order of lightness.
BLUE, VERMILLION, GREEN, PURPLE, AMBER = "#0072b2", "#d55e00", "#009e73", "#a64d86", "#e69f00"
HESSIAN, GGN, REFERENCE, NEGATIVE, EXACT = BLUE, VERMILLION, GREEN, PURPLE, INK

# On a page each colour becomes a CSS variable, so that figures follow the reader's light or dark scheme.
CSS_NAMES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    BLUE: "blue",
    VERMILLION: "vermillion",
    GREEN: "green",
    PURPLE: "purple",
    AMBER: "amber",
}

RC: dict[Any, Any] = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "eigenscape",
    "path.simplify": True,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a drawing function under this module's style, and leave matplotlib's own settings as they were."""

    @wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(RC):
            return draw(*args, **kwargs)

    return wrapper


def canvas(width: float = 7.2, height: float = 3.6) -> Figure:
    """Make an empty figure (inches) that no global state knows about and whose parts keep clear of each other."""
    return Figure(figsize=(width, height), layout="constrained")


def power_of_ten(value: float) -> str:
    """Write a power of ten in characters that need no formula renderer.

    >>> power_of_ten(1e-3), power_of_ten(1.0), power_of_ten(-100.0)
    ('10⁻³', '1', '−10²')
    """
    exponent = round(math.log10(abs(value))) if value else 0
    sign = "−" if value < 0 else ""
    if value == 0:
        return "0"
    if exponent in (0, 1):
        return sign + ("1" if exponent == 0 else "10")
    return sign + "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def log_axis(ax: Axes, axis: str) -> None:
    """Make an axis logarithmic, with plain labels: powers of ten, or 1, 2, 5 where the data span less than two decades."""
    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    target = ax.xaxis if axis == "x" else ax.yaxis
    low, high = sorted(ax.dataLim.intervalx if axis == "x" else ax.dataLim.intervaly)
    narrow = low > 0 and high < 100 * low
    target.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if narrow else (1,), numticks=8))
    target.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if narrow else power_of_ten(value)))
    target.set_minor_formatter(NullFormatter())
    target.set_minor_locator(NullLocator())


def png(fig: Figure, path: Path, dpi: int = 160) -> None:
    """Write a picture on white."""
    with rc_context(RC):
        fig.savefig(path, format="png", dpi=dpi, facecolor="white", metadata={"Software": "eigenscape"})


def svg(fig: Figure) -> str:
    """Draw as SVG text: the same bytes for the same figure; letters stay letters."""
    buffer = io.StringIO()
    with rc_context(RC):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "eigenscape"})
    return buffer.getvalue()


def inline_svg(fig: Figure, key: str, label: str) -> str:
    """Draw for embedding in a page: ids prefixed with `key`, colours as CSS variables, a label for screen readers."""
    return embedded(svg(fig), key, label)


def embedded(text: str, key: str, label: str) -> str:
    """Make SVG text, as `svg` returns it, a part of a page; see `inline_svg`."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{key}-", text)
    for colour, name in CSS_NAMES.items():
        text = text.replace(colour, f"var(--{name})")
    opening = re.sub(r'\s(width|height)="[^"]*"', "", text[: text.index(">")])
    return f'{opening} role="img" aria-label="{label}"{text[text.index(">") :]}'


def write_figures(figures: Mapping[str, Figure], folder: Path) -> dict[str, Path]:
    """Write each figure as `NAME.png` and `NAME.svg`; return the paths of the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, fig in figures.items():
        png(fig, folder / f"{name}.png")
        (folder / f"{name}.svg").write_text(svg(fig), encoding="utf-8")
    return {name: folder / f"{name}.png" for name in figures}
