"""The index page: every figure of a folder with its verdicts, in one file that needs nothing else."""

import base64
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ...analysis.store import atomically
from ...report.numbers import duration
from ...report.style import embedded
from ...report.stylesheet import CSS
from .files import FIGURES, Shown
from .record import Method, Record, counted
from .verdict import Agreement, Verdict

LARGEST = 600_000  # characters of a vector picture on the page; larger ones come as pixels
KIND = {Agreement.AGREES: "agrees", Agreement.PARTLY: "partly", Agreement.DISAGREES: "disagrees", Agreement.OPEN: "open"}
MORE = """
.layout{display:grid;grid-template-columns:17rem minmax(0,1fr);max-width:84rem;margin:0 auto}
.layout main{max-width:60rem;margin:0;width:100%}
nav{position:sticky;top:0;align-self:start;max-height:100vh;overflow-y:auto;padding:2.5rem 0 2rem 1.25rem;font-size:.86rem}
nav h2{font-size:.8rem;margin:1.25rem 0 .25rem;color:var(--muted);font-weight:600}
nav a{display:flex;gap:.5rem;justify-content:space-between;color:var(--ink);text-decoration:none;padding:.12rem .4rem;
border-radius:.25rem}
nav a:hover{background:var(--card)}
nav .dots{flex:none;letter-spacing:.05em}
main a{color:var(--blue)}
main h2{border-top:1px solid var(--grid);padding-top:2rem}
main h2 a{color:inherit;text-decoration:none}
.source{color:var(--muted);margin:0}
.id{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.85em}
.verdict{white-space:nowrap;font-weight:600}
.agrees{color:var(--green)}.partly{color:var(--amber)}.disagrees{color:var(--vermillion)}.open{color:var(--muted)}
table.verdicts{width:100%}
table.verdicts td{min-width:6rem}
table.verdicts .why{color:var(--muted)}
td .from{display:block;color:var(--muted);font-size:.92em}
.problem{border-left:.25rem solid var(--vermillion);padding:.25rem .75rem;background:var(--card)}
details{margin:1rem 0;font-size:.88rem}
summary{cursor:pointer;color:var(--muted)}
details p,details ul{margin:.4rem 0;max-width:none}
details pre{white-space:pre-wrap;margin:.25rem 0;font:inherit}
figure img{max-width:100%;background:#fff;border-radius:.25rem}
.files{font-size:.85rem;color:var(--muted)}
.files a{color:inherit}
@media (max-width:62rem){.layout{display:block}nav{position:static;max-height:none;padding:1.5rem 1.25rem 0}}
@media print{nav{display:none}.layout{display:block}}
"""
MARK = {Agreement.AGREES: "●", Agreement.PARTLY: "◐", Agreement.DISAGREES: "○", Agreement.OPEN: "–"}
PAPERS = {
    "closed-form": "Closed form of the Hessian spectrum",
    "poster": "Closed form: the poster",
    "cracking": "Cracking the Hessian",
    "data": "The spectrum and the data",
    "spectral-view": "The spectral view",
    "beyond": "Beyond the papers",
    "along-the-run": "What training does to curvature",
}


def write_index(shown: Sequence[Shown], folder: Path) -> Path:
    """Write `index.html`."""
    text = index(shown)
    return atomically(folder / "index.html", lambda part: part.write_text(text, encoding="utf-8"))


def index(shown: Sequence[Shown]) -> str:
    """Lay out the page: a list of figures at the side, what stands against the papers, then figure by figure."""
    verdicts = [v for s in shown for v in s.record.verdicts]
    summary = (
        f"{len(shown)} figures, {len(verdicts)} claims judged: {counted(verdicts)}." if verdicts else f"{len(shown)} figures."
    )
    body = "".join(_figure(s) for s in shown)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>The papers\' figures, measured again</title><style>{CSS}{MORE}</style></head><body><div class="layout">'
        f"{_navigation(shown)}<main><header><h1>The papers' figures, measured again</h1><p>{escape(summary)}</p></header>"
        f"{_against(shown)}{body}<footer>Made by Eigenscape from the rows in this folder. This file needs no network and no "
        "script.</footer></main></div></body></html>\n"
    )


def anchor(record: Record) -> str:
    """Name of a figure inside a link."""
    return record.id.replace("/", "-")


def _navigation(shown: Sequence[Shown]) -> str:
    parts = []
    for paper, group in groupby(shown, lambda s: s.record.paper):
        links = "".join(f'<a href="#{anchor(s.record)}"><span>{escape(_name(s.record))}</span>{_dots(s)}</a>' for s in group)
        parts.append(f"<h2>{escape(PAPERS.get(paper, paper))}</h2>{links}")
    legend = " ".join(f'<span class="{KIND[a]}">{MARK[a]}</span> {a}' for a in Agreement)
    return f'<nav aria-label="Figures">{"".join(parts)}<h2>{legend}</h2></nav>'


def _name(record: Record) -> str:
    return record.id.partition("/")[2] or record.id


def _dots(shown: Shown) -> str:
    marks = "".join(f'<span class="{KIND[v.agreement]}">{MARK[v.agreement]}</span>' for v in shown.record.verdicts)
    return f'<span class="dots" title="{counted(shown.record.verdicts)}">{marks or "…"}</span>'


def _against(shown: Sequence[Shown]) -> str:
    """Everything that does not simply agree, before the figures."""
    rows = "".join(
        f"<tr>{_said(v)}{_claim(v)}<td>{_link(s.record)}</td></tr>"
        for agreement in (Agreement.DISAGREES, Agreement.PARTLY, Agreement.OPEN)
        for s in shown
        for v in s.record.verdicts
        if v.agreement is agreement
    )
    head = "<thead><tr><th>verdict</th><th>claim</th><th>figure</th></tr></thead>"
    table = f'<div class="scroll"><table class="verdicts">{head}<tbody>{rows}</tbody></table></div>'
    return f"<section><h2>What does not simply agree</h2>{table}</section>" if rows else ""


def _link(record: Record) -> str:
    return f'<a href="#{anchor(record)}" class="id">{escape(record.id)}</a>'


def _said(verdict: Verdict) -> str:
    kind = KIND[verdict.agreement]
    return f'<td class="verdict {kind}">{MARK[verdict.agreement]} {verdict.agreement}</td>'


def _claim(verdict: Verdict) -> str:
    return f'<td>{escape(verdict.claim)}<span class="from">{escape(verdict.source)}</span></td>'


def _figure(shown: Shown) -> str:
    r = shown.record
    name = anchor(r)
    parts = [
        f'<h2 id="{name}"><a href="#{name}">{escape(r.title)}</a></h2>',
        f'<p class="source"><span class="id">{escape(r.id)}</span> · {escape(r.source)}</p>',
        f'<p class="problem">{escape(r.problem)}</p>' if r.problem else "",
        _picture(shown) if shown.has_picture else "",
        _verdicts(r.verdicts) if r.verdicts else "",
        _measured(r),
    ]
    return f"<section>{''.join(parts)}</section>"


def _picture(shown: Shown) -> str:
    r, text = shown.record, shown.svg
    label = escape(r.title, quote=True)
    bitmap = shown.stem.with_suffix(".png")
    if len(text) > LARGEST and bitmap.is_file():
        data = base64.b64encode(bitmap.read_bytes()).decode()
        drawing = f'<img src="data:image/png;base64,{data}" alt="{label}">'
    else:
        drawing = embedded(text, anchor(r), label)
    caption = f"<figcaption><b>How to read it.</b> {escape(r.reading)}</figcaption>" if r.reading else ""
    links = " · ".join(f'<a href="{FIGURES}/{r.id}.{kind}">{kind.upper()}</a>' for kind in ("svg", "png"))
    return f'<figure>{drawing}{caption}</figure><p class="files">{links}</p>'


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    head = "".join(f'<th scope="col">{h}</th>' for h in ("verdict", "claim", "ours", "the paper's", "why"))
    rows = "".join(
        f'<tr>{_said(v)}{_claim(v)}<td>{escape(v.ours)}</td><td>{escape(v.paper)}</td><td class="why">{escape(v.why)}</td></tr>'
        for v in verdicts
    )
    return f'<div class="scroll"><table class="verdicts"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _measured(r: Record) -> str:
    cost = f"{r.cells} cells, {duration(r.seconds)} of computing"
    versions = ", ".join(f"{name} {version}" for name, version in (r.versions or {}).items())
    facts = [
        f"Profile {r.profile}, seed {r.seed}. Again: eigenscape reproduce {r.id} --profile {r.profile}"
        + (f" --seed {r.seed}" if r.seed else ""),
        *r.machines,
        versions,
        f"Commit {', '.join(r.commits)}." if r.commits else "",
    ]
    lines = "".join(f"<p>{escape(fact)}</p>" for fact in facts if fact)
    return f"<details><summary>How it was measured: {escape(cost)}</summary>{''.join(map(_method, r.methods))}{lines}</details>"


def _method(m: Method) -> str:
    version = "" if m.version == 1 else f", version {m.version}"
    return (
        f'<p><b class="id">{escape(m.experiment)}</b>{version}: {m.cells} cells, {m.rows:,} rows, {duration(m.seconds)}. '
        f"{escape(m.about)}</p><pre>{escape(m.configs)}</pre><pre>One cell: {escape(m.doing)}</pre>"
    )
