"""Pages for the documentation, from a store alone: the same store gives the same bytes."""

import shutil
from collections.abc import Sequence
from html import escape as quoted
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import Collection
from matplotlib.lines import Line2D

from ...core import DataError
from ...report.numbers import duration
from ...report.style import svg
from ..ledger.pages import escape
from .export import ROWS, export
from .files import FIGURES, Shown, write_result
from .page import MARK, PAPERS, anchor
from .plan import PROFILES, Plan
from .record import Method, Record, counted, tally
from .results import Result, results
from .store import Store
from .verdict import Agreement, Verdict

LARGEST = 20_000_000  # bytes of a gallery that is to lie in a repository
HEAVY, DENSE, DPI = 250_000, 500, 200  # characters of a picture, and marks of one of its parts, from which on it is pixels
STAMP = "<!-- Written by `eigenscape reproduce --redraw --gallery DIR"
WHITE = '<rect width="100%" height="100%" fill="white"/>'


def write_gallery(plan: Plan, store: Store, folder: Path) -> list[Path]:
    """Write `index.md`, one page per paper, their pictures as SVG and their rows as Parquet; older ones are taken away."""
    _make_room(folder)
    shown = [write_result(lightened(result), folder, raster=False) for result in results(plan, store)]
    for s in shown:
        s.stem.with_suffix(".json").unlink()
        if s.has_picture:
            s.stem.with_suffix(".svg").write_text(_on_white(s.svg), encoding="utf-8")
    export(plan, store, folder / ROWS, ["parquet"])
    pages = {"index": front(shown, plan, store)}
    for paper, group in groupby(shown, lambda s: s.record.paper):
        pages[paper] = page(paper, list(group))
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    written = sorted(path for path in folder.rglob("*") if path.is_file())
    if (size := sum(path.stat().st_size for path in written)) > LARGEST:
        raise DataError(
            f"the gallery in {folder} has {size / 1e6:.1f} MB; expected at most {LARGEST / 1e6:.0f}: a smaller --profile, or "
            "drawings with fewer marks (rasterized=True)."
        )
    return written


def _make_room(folder: Path) -> None:
    """Take an earlier gallery away; a folder with anything else in it is left alone."""
    front = folder / "index.md"
    if not (front.is_file() and front.read_text(encoding="utf-8").startswith(STAMP)) and any(folder.glob("*")):
        raise DataError(f"{folder} holds other files than a gallery; expected an empty folder, or none: use another --gallery.")
    for part in (FIGURES, ROWS):
        shutil.rmtree(folder / part, ignore_errors=True)
    for stale in folder.glob("*.md"):
        stale.unlink()


def lightened(result: Result) -> Result:
    """The same picture, with parts of many marks as pixels where it would be large."""
    drawing = result.drawing
    if drawing is not None and len(svg(drawing)) > HEAVY:
        drawing.dpi = DPI
        for artist in (*drawing.findobj(Line2D), *drawing.findobj(Collection)):
            artist.set_rasterized(artist.get_rasterized() or _marks(artist) > DENSE)
    return result


def _marks(artist: Any) -> int:
    """Count what an artist draws: points of a line, or places and paths of a collection."""
    if isinstance(artist, Line2D):
        return np.size(artist.get_xdata())
    return max(len(np.atleast_1d(artist.get_offsets())), sum(len(path.vertices) for path in artist.get_paths()))


def _on_white(text: str) -> str:
    """A picture that can be read on a dark page too."""
    start = text.index("<svg")
    end = text.index(">", start) + 1
    return text[:end] + WHITE + text[end:]


def front(shown: Sequence[Shown], plan: Plan, store: Store) -> str:
    """Lay out the first page: what was asked, how it went, and what does not simply agree."""
    verdicts = [v for s in shown for v in s.record.verdicts]
    rows = ["| figure | what it shows | verdicts | computing |", "|---|---|---|---:|", *(_line(s.record) for s in shown)]
    marks = ", ".join(f"{MARK[agreement]} {agreement}" for agreement in Agreement)
    return f"""{_made(plan)}

# Gallery: the papers' figures, measured again

{len(shown)} figures and {len(verdicts)} claims: {counted(verdicts)}. Each picture is drawn from rows that one command measures,
`eigenscape reproduce NAME --profile {plan.profile}`; the rows lie beside it as Parquet. A verdict is a rule applied to
numbers, and the rule is written beside it.

{_pictures(shown)}

## How it went

{chr(10).join(rows)}

Marks: {marks}.

## What it costs

{_costs(shown, plan, store)}

## What does not simply agree

{_against(shown) or "Nothing."}
"""


def _pictures(shown: Sequence[Shown]) -> str:
    """Every picture, small, by paper; each leads to its verdicts."""
    parts = []
    for paper, group in groupby(shown, lambda s: s.record.paper):
        links = "\n".join(_thumbnail(s) for s in group if s.has_picture)
        parts.append(f"## {PAPERS.get(paper, paper)}\n\n{links}")
    return "\n\n".join(parts)


def _thumbnail(shown: Shown) -> str:
    r = shown.record
    picture = f'<img src="{FIGURES}/{r.id}.svg" alt="{_label(r)}" width="375" loading="lazy">'
    return f"[{picture}]({r.paper}.md#{anchor(r)})"


def _label(record: Record) -> str:
    """A title where brackets and quotes have a meaning of their own."""
    return quoted(record.title).replace("[", "(").replace("]", ")")


def _costs(shown: Sequence[Shown], plan: Plan, store: Store) -> str:
    """Cells by paper and profile, and what those of this profile have cost; a cell that figures share counts once."""
    lines = [
        f"| paper | figures | {' | '.join(f'cells, {p}' for p in PROFILES)} | computing, {plan.profile} |",
        "|---|" + "---:|" * 5,
    ]
    papers = {paper: {s.record.id for s in group} for paper, group in groupby(shown, lambda s: s.record.paper)}
    for name, ids in (papers | {"all": {s.record.id for s in shown}}).items():
        figures = [figure for figure in plan.figures if figure.id in ids]
        cells = [str(len(Plan(figures, profile, plan.seed).tasks)) for profile in PROFILES]
        seconds = sum(kept.seconds for kept in store.kept(Plan(figures, plan.profile, plan.seed).tasks.values()).values())
        lines.append(f"| {PAPERS.get(name, name)} | {len(figures)} | {' | '.join(cells)} | {duration(seconds)} |")
    return "\n".join(lines)


def _line(r: Record) -> str:
    marks = " ".join(f"{MARK[agreement]} {count}" for agreement, count in tally(r.verdicts).items())
    return f"| [{escape(r.id)}]({r.paper}.md#{anchor(r)}) | {escape(r.title)} | {marks} | {duration(r.seconds)} |"


def _against(shown: Sequence[Shown]) -> str:
    return "\n".join(
        f"- {MARK[agreement]} **{agreement}**: {escape(v.claim)} ({escape(v.source)}): "
        f"[{escape(s.record.id)}]({s.record.paper}.md#{anchor(s.record)})"
        for agreement in (Agreement.DISAGREES, Agreement.PARTLY, Agreement.OPEN)
        for s in shown
        for v in s.record.verdicts
        if v.agreement is agreement
    )


def page(paper: str, shown: Sequence[Shown]) -> str:
    """Lay out one paper's figures."""
    r = shown[0].record
    body = "\n\n".join(map(_figure, shown))
    return f"{_made(r)}\n\n# {PAPERS.get(paper, paper)}\n\n{body}\n"


def _made(what: Plan | Record) -> str:
    return f"{STAMP} --profile {what.profile}`; do not edit. -->"


def _figure(shown: Shown) -> str:
    r = shown.record
    parts = [
        f'<a id="{anchor(r)}"></a>\n\n## {escape(r.title)}',
        f"`{r.id}`, {escape(r.source)}",
        escape(r.problem),
        f"![{_label(r)}]({FIGURES}/{r.id}.svg)" if shown.has_picture else "",
        escape(r.reading),
        _table(r.verdicts) if r.verdicts else "",
        "\n".join(_method(m) for m in r.methods),
    ]
    return "\n\n".join(filter(None, parts))


def _table(verdicts: Sequence[Verdict]) -> str:
    lines = ["| verdict | claim | ours | the paper's | why |", "|---|---|---|---|---|"]
    for v in verdicts:
        cells = (f"{v.claim} ({v.source})", v.ours, v.paper, v.why)
        lines.append(f"| {MARK[v.agreement]} {v.agreement} | " + " | ".join(escape(" ".join(c.split())) for c in cells) + " |")
    return "\n".join(lines)


def _method(m: Method) -> str:
    file = f"[rows]({ROWS}/{m.experiment}.parquet)" if m.rows else "no rows"
    return f"- `{m.experiment}`: {m.cells} cells ({escape(m.configs)}), {m.rows:,} {file}, {duration(m.seconds)} of computing."
