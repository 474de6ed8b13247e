"""Everything about an analysis in one folder: numbers, figures, a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ..report import Section, write_figures
from .reading import READING
from .record import Analysis


def publish(
    analysis: Analysis, folder: Path, *, opening: Sequence[Section] = (), more: Mapping[str, Figure] | None = None
) -> Path:
    """Write numbers, figures (PNG and SVG, `more` among them) and `report.html` into a folder; return the page's path."""
    drawn = {**analysis.figures(), **(more or {})}
    for stale in (name for name in READING if name not in drawn):
        for kind in ("png", "svg"):
            (folder / f"{stale}.{kind}").unlink(missing_ok=True)
    analysis.save(folder)
    write_figures(drawn, folder)
    return analysis.report(folder / "report.html", opening=opening)
