"""One self-contained page: sections of text, figures and tables become HTML that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from .style import inline_svg
from .stylesheet import CSS


@dataclass(frozen=True)
class Fact:
    """A number that matters: its name, its value as text, its interval or error, and what it means in a few words."""

    name: str
    value: str
    certificate: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of text under column names; columns that hold numbers are aligned by the reader's eye, to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()


@dataclass(frozen=True)
class Section:
    """A heading, what there is to say, a figure with the sentence on how to read it, and a table."""

    title: str
    text: str = ""
    figure: Figure | None = None
    reading: str = ""
    table: Table | None = None


@dataclass(frozen=True)
class Page:
    """A whole report: title, one sentence, the facts that matter, the sections."""

    title: str
    summary: str
    facts: Sequence[Fact] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


def _facts(facts: Sequence[Fact]) -> str:
    cards = "".join(
        f'<div class="fact"><dt>{escape(f.name)}</dt><dd><strong>{escape(f.value)}</strong>'
        f'<span class="certificate">{escape(f.certificate)}</span><span class="meaning">{escape(f.meaning)}</span></dd></div>'
        for f in facts
    )
    return f'<dl class="facts">{cards}</dl>' if facts else ""


def _table(table: Table) -> str:
    kind = ["number" if i in table.numeric else "text" for i in range(len(table.columns))]
    head = "".join(f'<th class="{k}" scope="col">{escape(c)}</th>' for k, c in zip(kind, table.columns))
    rows = "".join(
        "<tr>" + "".join(f'<td class="{k}">{escape(cell)}</td>' for k, cell in zip(kind, row)) + "</tr>" for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _section(index: int, section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    if section.figure is not None:
        drawing = inline_svg(section.figure, f"f{index}", escape(section.reading or section.title, quote=True))
        caption = f"<figcaption><b>How to read it.</b> {escape(section.reading)}</figcaption>" if section.reading else ""
        parts.append(f"<figure>{drawing}{caption}</figure>")
    if section.table is not None:
        parts.append(_table(section.table))
    return f"<section>{''.join(parts)}</section>"


def render(page: Page) -> str:
    """Write the page as one HTML text: styles and figures inside, no script, nothing loaded.

    >>> "<h1>Curvature of f &lt; g</h1>" in render(Page("Curvature of f < g", "One sentence."))
    True
    """
    body = "".join(_section(i, s) for i, s in enumerate(page.sections))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{CSS}</style></head><body><main>"
        f"<header><h1>{escape(page.title)}</h1><p>{escape(page.summary)}</p></header>"
        f"{_facts(page.facts)}{body}<footer>Made by Eigenscape. This file needs no network and no script.</footer>"
        "</main></body></html>\n"
    )


def write(page: Page, path: str | Path) -> Path:
    """Write the page to a file, making its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page), encoding="utf-8")
    return path
