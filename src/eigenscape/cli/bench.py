"""`eigenscape bench`: the same work for us and for the tools that people use instead."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..experiments.bench.record import Record, measure, write
from ..experiments.bench.registry import select, suites
from ..experiments.bench.suite import Suite
from ..experiments.bench.table import filled, marked
from ..experiments.machine.tasks import computing_on
from . import options
from .progress import on_stderr
from .verdicts import on_stdout

Names = Annotated[list[str] | None, typer.Argument(metavar="[SUITE]...", help="Suites, as --list names them, globs, or all.")]
List = Annotated[bool, typer.Option("--list", help="List the suites.")]
Brief = Annotated[bool, typer.Option("--brief", help="Smallest sizes, to see that everything runs; its times mean nothing.")]
Threads = Annotated[
    int, typer.Option(help="Threads of PyTorch. On one, processor time counts, so that a busy machine does not decide.")
]
WORDS = ("note", "engine")  # columns that may be folded


def bench(
    names: Names = None,
    list_: List = False,
    brief: Brief = False,
    out: options.Out = Path("out/bench"),
    threads: Threads = 1,
    json_: options.Json = False,
) -> None:
    """Time the same work for us and for the tools that people use instead, and check every answer.

    Costs are in gradients of the same loss on the same data, measured in between, in one run. The other tools come with
    `pip install 'eigenscape[bench]'`, best into an environment of its own, as they bring torchvision; one that is missing
    gets a row that says so. Each suite writes NAME.json, NAME.md, NAME.svg and NAME.png, stopped ones what they have.

        eigenscape bench --list
        eigenscape bench products
        eigenscape bench all --out benchmarks/results
    """
    chosen = select(names or (["all"] if list_ else []))
    if list_:
        return _list(chosen, json_)
    if not chosen:
        raise options.OptionError(f"no suite is named; expected all, or some of {', '.join(suites())}.")
    folder = options.folder_of(out)
    with computing_on(options.whole("--threads", threads)):
        records = _each(chosen, brief, folder, json_)
    if json_:
        typer.echo(json.dumps([asdict(record) for record in records], ensure_ascii=False, indent=1))
    if not all(record.whole for record in records):
        raise typer.Exit(130)


def _each(chosen: list[Suite], brief: bool, folder: Path, quiet: bool) -> list[Record]:
    """Run suites until one is stopped."""
    records: list[Record] = []
    for suite in chosen:
        records.append(_one(suite, brief, folder, quiet))
        if not records[-1].whole:
            break
    return records


def _one(suite: Suite, brief: bool, folder: Path, quiet: bool) -> Record:
    errors = on_stderr()
    record = measure(suite, lambda text: None if quiet else errors.print(text, soft_wrap=True, markup=False), brief)
    paths = write(record, suite, folder)
    if not quiet:
        show(record, suite, on_stdout())
        typer.echo(f"Written to {folder}/: {', '.join(path.name for path in paths)}.\n")
    return record


def show(record: Record, suite: Suite, console: Console) -> None:
    """Print the table of a suite with its notes."""
    columns = filled(suite, record.rows)
    table = Table(title=suite.title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for name in columns:
        numeric = all(isinstance(row.get(name), int | float | None) for row in record.rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=name not in WORDS)
    for row in record.rows:
        style = "red" if row.get("right") is False else ""
        table.add_row(*(Text(marked(row, name), style=style) for name in columns))
    console.print(table)
    for note in (*suite.notes, record.about()):
        console.print(Text(note, style="dim"), soft_wrap=True)


def _list(chosen: list[Suite], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([{"name": s.name, "title": s.title} for s in chosen], ensure_ascii=False, indent=1))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("suite", "what is compared"):
        table.add_column(name)
    for suite in chosen:
        table.add_row(suite.name, suite.title)
    console = on_stdout()
    console.print(table)
    console.print("\nTo run one: eigenscape bench NAME (eigenscape bench --help)", soft_wrap=True)
