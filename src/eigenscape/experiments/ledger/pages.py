"""Two Markdown pages from one run: the whole ledger, and what the papers get wrong."""

from collections.abc import Iterable, Sequence

from .core import Outcome, Row
from .evidence import Tally
from .record import count_verdicts
from .registry import PAPERS, SECTION_OF

COMMAND = "eigenscape claims"
MEANING = {
    "holds": "the statement as printed survived every case",
    "holds under": "it failed in some cases, and in none where the condition of the last column is met",
    "corrected": "as printed it failed; in the form of the last column it survived every case",
    "false": "it failed, and nothing takes its place",
    "not decidable from the text": "the text gives no setting in which it could be checked",
}


def escape(text: str) -> str:
    """Make mathematics safe inside a Markdown table.

    >>> escape("|w|² <w,v> W*")
    '\\\\|w\\\\|² &lt;w,v&gt; W\\\\*'
    """
    for sign, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*"), ("_", "\\_")):
        text = text.replace(sign, safe)
    return text


def magnitude(error: float) -> str:
    """Print an error to its power of ten, from above: what differs between machines is left out.

    >>> magnitude(3e-15), magnitude(0.0), magnitude(float("inf")), magnitude(2.34)
    ('below 1e-14', 'none', 'no value', '2.3')
    """
    if error == 0:
        return "none"
    if error >= 1e-3:
        return "no value" if error == float("inf") else f"{error:.2g}"
    exponent = int(f"{error:e}".split("e")[1])
    return f"below 1e{exponent + 1}"


def tried(tally: Tally) -> str:
    """Cases and failures in words.

    >>> tried(Tally(9, 4, 0.5)), tried(Tally(9, 0, 1e-15))
    ('fails in 4 of 9 (error up to 0.5)', 'holds in all 9')
    """
    if tally.failures == 0:
        return f"holds in all {tally.cases}"
    largest = magnitude(tally.error)
    return (
        f"fails in {tally.failures} of {tally.cases} (error {'without value' if largest == 'no value' else f'up to {largest}'})"
    )


def evidence_sentence(outcome: Outcome) -> str:
    """Say what the run saw of the printed statement, of the condition and of the correction."""
    seen = outcome.evidence
    parts = [f"{name} {tried(t)}" for name, t in (("printed:", seen.printed), ("under the condition:", seen.inside)) if t]
    if seen.corrected and outcome.row.verdict == "corrected":
        parts.append(f"corrected: {tried(seen.corrected)}")
    elif seen.corrected:
        parts.append(f"what is added {tried(seen.corrected)}")
    parts += [f"{name}: {value:.4g}" for name, value in seen.numbers.items()]
    return "; ".join(parts) or "nothing to try"


def anchor(id: str) -> str:
    """Name of a row inside a link.

    >>> anchor("B1+")
    'B1-plus'
    """
    return id.replace("+", "-plus")


def table(outcomes: Iterable[Outcome]) -> str:
    """Rows of one section as a Markdown table."""
    lines = ["| id | source | statement | verdict | correction, condition, remark | seen |", "|---|---|---|---|---|---|"]
    for o in outcomes:
        name = f'<a id="{anchor(o.row.id)}"></a>{o.row.id}'
        first, last = map(escape, (o.row.source, o.row.statement)), map(escape, (o.row.note, evidence_sentence(o)))
        lines.append("| " + " | ".join([name, *first, f"**{o.row.verdict}**", *last]) + " |")
    return "\n".join(lines)


def _references() -> str:
    """List the papers, and make every [key] on the page a link to that list."""
    items = "\n".join(f"- **{key}**: {title}" for key, title in PAPERS.items())
    links = "\n".join(f"[{key}]: #the-papers" for key in PAPERS)
    return f"## The papers\n\n{items}\n\n{links}\n"


def _provenance(profile: str, seed: int) -> str:
    """Say how the page was made."""
    return f"<!-- Written by `{COMMAND} --profile {profile} --seed {seed} --out docs`; do not edit. -->"


def ledger_page(outcomes: Sequence[Outcome], profile: str, seed: int) -> str:
    """Return the page with every row."""
    counts = count_verdicts([o.row.verdict for o in outcomes])
    meanings = "\n".join(f"| **{v}** | {n} | {MEANING[v]} |" for v, n in counts.items())
    sections: dict[str, list[Outcome]] = {}
    for o in outcomes:
        sections.setdefault(SECTION_OF.get(o.row.id, "Other"), []).append(o)
    body = "\n\n".join(f"## {title}\n\n{table(rows)}" for title, rows in sections.items())
    return f"""{_provenance(profile, seed)}

# The ledger of claims

Every theorem, corollary, remark, formula and mathematical sentence of five papers on closed-form Hessian spectra, with a
verdict. A verdict is not an opinion: `{COMMAND}` tries each statement, as printed and as corrected, on random and degenerate
networks and data, against second derivatives by autograd and dense eigenvalues in float64, and ends with exit code 1 if what it
sees no longer supports what is written here. Rows marked *ours* go beyond the papers.

| verdict | rows | meaning |
|---|---|---|
{meanings}

A case *fails* if its relative error exceeds the tolerance (1e-9 unless the formula itself loses digits); a printed statement
counts as seen to fail only with an error above 1e-6. Letters are those of the papers: `dx` is the mean of x times the residual,
σ² the mean of x², both uncentred. The page [What the papers get wrong](what-the-papers-get-wrong.md) has the corrections alone.

{body}

{_references()}"""


def _entry(outcome: Outcome) -> str:
    """One correction as a list item."""
    row = outcome.row
    return (
        f"- **{escape(row.source)}** ([{row.id}](claims.md#{anchor(row.id)})). Printed: {escape(row.statement)}  \n"
        f"  {escape(row.note)}  \n"
        f"  *Seen: {escape(evidence_sentence(outcome))}.*"
    )


def _listed(title: str, text: str, outcomes: Iterable[Outcome]) -> str:
    """A titled list, or nothing."""
    entries = [_entry(o) for o in outcomes]
    return "\n\n".join([f"## {title}", text, "\n".join(entries)]) if entries else ""


def _is(row: Row, verdicts: tuple[str, ...], kinds: tuple[str, ...]) -> bool:
    return row.verdict in verdicts and row.kind in kinds


def corrections_page(outcomes: Sequence[Outcome], profile: str, seed: int) -> str:
    """Return the page of corrections alone, gravest first."""
    theirs = [o for o in outcomes if o.row.kind != "ours"]
    settled = [o for o in theirs if o.row.verdict == "holds"]
    groups = (
        (
            "Statements that change",
            "These would mislead someone who computes with them.",
            [o for o in theirs if _is(o.row, ("corrected", "false"), ("mathematics",))],
        ),
        (
            "Statements that need a condition",
            "Right where the authors had them in mind; the condition is not in the text, or not where the statement is used.",
            [o for o in theirs if _is(o.row, ("holds under",), ("mathematics", "misprint"))],
        ),
        (
            "Misprints",
            "Slips of notation. The derivations around them are sound; often the correct form stands a few lines further on.",
            [o for o in theirs if _is(o.row, ("corrected", "false"), ("misprint",))],
        ),
        (
            "Damage in the text we read",
            "We worked from text extracted from the PDFs; these are likely losses on the way, not errors of the authors.",
            [o for o in theirs if o.row.kind == "damaged text"],
        ),
        (
            "What we could not decide",
            "Observations about training runs and statements whose setting is not given.",
            [o for o in theirs if o.row.verdict == "not decidable from the text"],
        ),
    )
    body = "\n\n".join(part for group in groups if (part := _listed(*group)))
    return f"""{_provenance(profile, seed)}

# What the papers get wrong

Less than it may seem. This package stands on these papers: of their {len(theirs)} statements in the
[ledger](claims.md), {len(settled)} hold exactly as printed, in every degenerate case we could think of, and most of the rest is
a sign, a square or a missing condition. It is collected here so that nobody has to find it twice. Every entry was seen to fail,
and its correction seen to hold, by the run that wrote this page (`{COMMAND}`); if we are the ones who are wrong, that
command is the place to show it.

{body}

{_references()}"""
