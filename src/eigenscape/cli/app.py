"""The command `eigenscape`: one line registers one command, and every error on purpose becomes one sentence."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ..core import EigenscapeError
from ..core.version import VERSION
from . import analyze, bench, claims, data, demo, reproduce, watch

app = typer.Typer(
    name="eigenscape",
    help="What does a neural network's curvature look like? Exactly where a closed form exists, measured with a certificate "
    "where none does.",
    epilog="Start with: eigenscape demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("demo")(demo.demo)
app.command("analyze")(analyze.analyze)
app.command("bench")(bench.bench)
app.command("claims")(claims.claims)
app.add_typer(data.app, name="data")
app.command("reproduce")(reproduce.reproduce)
app.command("watch")(watch.watch)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eigenscape {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Hold the options that stand before a command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error on purpose is one sentence on standard error and exit code 2."""
    try:
        app(args=arguments if arguments is None else list(arguments), prog_name="eigenscape")
    except EigenscapeError as error:
        sys.stderr.write(f"eigenscape: {error}\n")
        raise SystemExit(2) from None
