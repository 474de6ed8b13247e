"""`eigenscape claims`: try every claim of the papers again, and say whether the ledger still tells the truth."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ..experiments.ledger.core import PROFILES, Outcome
from ..experiments.ledger.evidence import Tally
from ..experiments.ledger.pages import corrections_page, ledger_page
from ..experiments.ledger.record import count_verdicts, record
from ..experiments.ledger.registry import LEDGER
from .options import Json, Out, Seed, folder_of
from .progress import on_stderr


class Size(StrEnum):
    """How many cases are tried."""

    quick = "quick"
    full = "full"


HEADINGS = ("id", "verdict", "as printed", "mended", "s")
COLOURS = {"holds": "green", "holds under": "yellow", "corrected": "dark_orange", "false": "red"}


def claims(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Try these rows only: ids or globs, as L*.")
    ] = None,
    profile: Annotated[Size, typer.Option(help="Cases per row: quick takes seconds, full takes minutes.")] = Size.quick,
    out: Out = Path("out/claims"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Try every claim of the papers against brute force, and check the verdicts of the ledger.

    Writes claims.json and, after a run of the whole ledger, the pages claims.md and what-the-papers-get-wrong.md. Exit code 1
    if what was seen does not support a verdict.
    """
    rows = LEDGER.select(only or [])
    folder = folder_of(out)
    console = on_stderr()
    steps = rows.run(PROFILES[profile.value], seed)
    outcomes = list(track(steps, "Trying claims", len(rows), console=console, transient=True, disable=not console.is_terminal))
    write(outcomes, profile.value, seed, folder, whole=not only)
    if as_json:
        typer.echo(json.dumps(record(outcomes, profile.value, seed), ensure_ascii=False, indent=1))
    else:
        show(outcomes, folder)
    if not all(o.matches for o in outcomes):
        raise typer.Exit(1)


def write(outcomes: list[Outcome], profile: str, seed: int, out: Path, whole: bool) -> None:
    """Write the record and, after a run of the whole ledger, its two pages."""
    files = {"claims.json": json.dumps(record(outcomes, profile, seed), ensure_ascii=False, indent=1) + "\n"}
    if whole:
        files["claims.md"] = ledger_page(outcomes, profile, seed)
        files["what-the-papers-get-wrong.md"] = corrections_page(outcomes, profile, seed)
    for name, text in files.items():
        (out / name).write_text(text, encoding="utf-8")


def show(outcomes: list[Outcome], out: Path) -> None:
    """Print the table, one line per claim, and the sentence that sums it up."""
    console = Console()
    table = Table(*HEADINGS, "statement", box=None, header_style="bold", pad_edge=False)
    lines = [[Text.from_markup(cell) for cell in cells(o)] for o in outcomes]
    used = sum(max(len(name), *(len(line[i]) for line in lines)) + 2 for i, name in enumerate(HEADINGS))
    for line, o in zip(lines, outcomes):
        statement = Text(o.row.statement)
        statement.truncate(max(console.width - used, 20), overflow="ellipsis")
        table.add_row(*line, statement)
    console.print(table)
    wrong = [f"{o.row.id} ({o.row.verdict}, but seen: {o.evidence.verdict})" for o in outcomes if not o.matches]
    counts = ", ".join(f"{n} {verdict}" for verdict, n in count_verdicts([o.row.verdict for o in outcomes]).items() if n)
    state = f"[bold red]not supported by this run: {', '.join(wrong)}[/]" if wrong else "[green]every verdict is supported[/]"
    seconds = sum(o.seconds for o in outcomes)
    console.print(
        f"\n{len(outcomes)} claims ({counts}): {state} ({seconds:.0f} s). Written to {out}/.", highlight=False, soft_wrap=True
    )


def cells(outcome: Outcome) -> tuple[str, ...]:
    """One line of the table, in markup."""
    row, seen = outcome.row, outcome.evidence
    colour = COLOURS.get(row.verdict, "dim") if outcome.matches else "bold white on red"
    verdict = row.verdict.removesuffix(" from the text")
    mended = brief(seen.corrected or seen.inside)
    return row.id, f"[{colour}]{verdict}[/]", brief(seen.printed), mended, f"{outcome.seconds:.1f}"


def brief(tally: Tally | None) -> str:
    """Failures among cases and the largest error, in a few characters.

    >>> brief(Tally(9, 4, 0.5)), brief(None)
    ('4/9 5e-01', '')
    """
    return "" if tally is None else f"{tally.failures}/{tally.cases} {tally.error:.0e}"
