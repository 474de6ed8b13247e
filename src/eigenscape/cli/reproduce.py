"""`eigenscape reproduce`: the papers' figures measured again, resumable, with a verdict on each claim."""

import json
import os
import shlex
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..core import DataError
from ..experiments.machine import Backend, Figure, Plan, Store, measure_missing, publish
from ..experiments.machine.export import ROWS, export
from ..experiments.machine.files import summary
from ..experiments.machine.gallery import write_gallery
from ..experiments.machine.record import Record, counted
from ..experiments.machine.store import NAME
from ..experiments.papers import registry
from ..report.numbers import duration
from . import options
from .cells import Cells
from .progress import Reporter, on_stderr
from .verdicts import on_stdout, verdicts_of

Done = tuple[list[Record], float]  # what was drawn, and what its cells have cost


class Profile(StrEnum):
    """How much is measured."""

    smoke = "smoke"
    quick = "quick"
    paper = "paper"


class Where(StrEnum):
    """What cells are measured on."""

    local = "local"
    dask = "dask"


Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="A figure (cracking/fig4), a paper (cracking), a glob, or all.")
]
List = Annotated[bool, typer.Option("--list", help="List the figures with their cells, and how many of them are measured.")]
Size = Annotated[
    Profile | None,
    typer.Option(help="smoke: minutes for everything; quick: about an hour (default); paper: the papers' own sizes."),
]
Workers = Annotated[int | None, typer.Option(help="Processes on this machine [default: 2, or 1 without joblib].")]
Kind = Annotated[Where, typer.Option("--backend", help="Measure on this machine, or on a Dask cluster that is running.")]
Address = Annotated[str | None, typer.Option(help="Of the Dask scheduler, as tcp://host:8786.")]
Redraw = Annotated[bool, typer.Option("--redraw", help="Measure nothing: draw and judge again what is in the folder.")]
Export = Annotated[bool, typer.Option("--export", help="Also write the rows as Parquet and CSV files.")]
Gallery = Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the pages of a documentation gallery there.")]
SeedOf = Annotated[
    int | None,
    typer.Option(
        help="0 (default) gives the published numbers, any other number independent ones: every random draw is made afresh, "
        "and the rows are kept beside the others."
    ),
]


def reproduce(
    names: Names = None,
    list_: List = False,
    profile: Size = None,
    out: options.Out = Path("out/reproduce"),
    device: options.Device = "cpu",
    seed: SeedOf = None,
    json_: options.Json = False,
    workers: Workers = None,
    backend: Kind = Where.local,
    address: Address = None,
    redraw: Redraw = False,
    export_: Export = False,
    gallery: Gallery = None,
) -> None:
    """Measure the figures of the papers again, draw them, and judge every claim they make.

    Each figure is a list of cells. A cell's rows go to `rows.sqlite` in the folder as soon as they are measured, so that a run
    may be stopped or killed at any time: the same command goes on where it ended, with the same numbers. Look at
    `out/reproduce/index.html`. Exit code 1 means that a cell or a figure failed; disagreeing with a paper is not a failure.

        eigenscape reproduce --list
        eigenscape reproduce spectral-view --profile smoke
        eigenscape reproduce cracking/fig4 'data/fig*' --workers 2 --export
        eigenscape reproduce all --profile paper --device cuda --out out/paper
        eigenscape reproduce all --backend dask --address tcp://10.0.0.1:8786
        eigenscape reproduce --redraw
    """
    if list_ or not (names or redraw):
        return _list(registry.select(names or ["all"]), profile or Profile.quick, out, seed or 0, json_)
    chosen = registry.select(names or ["all"])
    size, number = _last(out, profile, seed) if redraw else (str(profile or Profile.quick), seed or 0)
    if not 0 <= number < 2**63:
        raise options.OptionError(f"--seed is {number}; expected a whole number from 0 to 2^63 - 1.")
    if redraw:
        records, cost = _redrawn(chosen, size, number, out, keep=bool(names), quiet=json_, rows=export_, gallery=gallery)
    else:
        how = _backend(backend, address, workers, device)
        where = device if backend is Where.dask else str(options.device_of(device))
        plan = Plan(chosen, size, number, where)
        records, cost = _measured(plan, options.folder_of(out), how, quiet=json_, rows=export_, gallery=gallery)
    if json_:
        typer.echo(json.dumps(summary(records), ensure_ascii=False, indent=1))
    else:
        _show(records, cost, out, export_, gallery)
    if any(record.problem for record in records):
        raise typer.Exit(1)


def _measured(plan: Plan, folder: Path, how: Backend, *, quiet: bool, rows: bool, gallery: Path | None) -> Done:
    with Store.writing(folder) as store:
        try:
            with Cells(quiet=quiet) as progress:
                measure_missing(plan, store, how, progress)
            return _published(plan, store, folder, quiet, rows, gallery)
        except KeyboardInterrupt:
            safe = len(plan.tasks) - len(plan.missing(store))
            on_stderr().print(
                f"\nstopped: {safe} of {len(plan.tasks)} cells are safe in {folder / NAME}. To go on, type the same command "
                f"again; to see what is there: eigenscape reproduce --redraw {_again(plan, folder)}",
                soft_wrap=True,
                markup=False,
            )
            raise typer.Exit(130) from None


def _redrawn(
    chosen: list[Figure], profile: str, seed: int, folder: Path, *, keep: bool, quiet: bool, rows: bool, gallery: Path | None
) -> Done:
    with Store.reading(folder) as store:
        kept = [f for f in chosen if keep or _complete(f, profile, seed, store)]
        if not kept:
            raise DataError(
                f"{folder} holds no figure of profile {profile} and seed {seed} with all of its cells; expected a run to have "
                "ended: eigenscape reproduce NAME, or name the figure to draw what is there."
            )
        return _published(Plan(kept, profile, seed), store, folder, quiet, rows, gallery)


def _complete(figure: Figure, profile: str, seed: int, store: Store) -> bool:
    plan = Plan([figure], profile, seed)
    return len(store.kept(plan.tasks.values())) == len(plan.tasks)


def _published(plan: Plan, store: Store, folder: Path, quiet: bool, rows: bool, gallery: Path | None) -> Done:
    with Reporter(quiet=quiet) as progress:
        progress("drawing", 0, len(plan.figures))
        count = iter(range(1, len(plan.figures) + 1))
        order = [figure.id for figure in registry.figures()]
        done = publish(plan, store, folder, order, lambda _: progress("drawing", next(count), len(plan.figures)))
        if rows:
            export(plan, store, folder / ROWS)
        if gallery is not None:
            write_gallery(plan, store, gallery)
        cost = sum(kept.seconds for kept in store.kept(plan.tasks.values()).values())
    return [shown.record for shown in done], cost


def _last(folder: Path, profile: Profile | None, seed: int | None) -> tuple[str, int]:
    """What was asked for, and for the rest what the folder's last run had."""
    with Store.reading(folder) as store:
        runs = store.runs()
    last = runs[max(runs)] if runs else None
    given = profile.value if profile else last.profile if last else Profile.quick.value
    return given, seed if seed is not None else last.seed if last else 0


def _backend(kind: Where, address: str | None, workers: int | None, device: str) -> Backend:
    if kind is Where.dask:
        if address is None:
            raise options.OptionError("--backend is dask without --address; expected the scheduler's, as tcp://host:8786.")
        if workers is not None:
            raise options.OptionError("--workers is for this machine; a cluster has its own: leave out --workers.")
        return Backend(address=address)
    if address is not None:
        raise options.OptionError(f"--address is {address!r} without --backend dask; expected both or neither.")
    several = device == "cpu" and find_spec("joblib") is not None and (os.cpu_count() or 1) > 1
    return Backend(options.whole("--workers", workers) if workers is not None else 2 if several else 1)


def _again(plan: Plan, folder: Path) -> str:
    words = ["--profile", plan.profile, *(["--seed", str(plan.seed)] if plan.seed else []), "--out", str(folder)]
    return shlex.join(words)


def _show(records: list[Record], cost: float, folder: Path, rows: bool, gallery: Path | None) -> None:
    console = on_stdout()
    for record in records:
        console.print(verdicts_of(record, console.width))
    verdicts = [v for record in records for v in record.verdicts]
    lines = [
        f"{len(records)} figure{'s' if len(records) != 1 else ''}, {len(verdicts)} claims judged: {counted(verdicts)}; "
        f"{duration(cost)} of computing.",
        *(f"failed: {record.id}: {record.problem}" for record in records if record.problem),
        f"page    {folder / 'index.html'}",
        *([f"rows    {folder / ROWS}"] if rows else []),
        *([f"gallery {gallery}"] if gallery else []),
    ]
    console.print("\n".join(lines), soft_wrap=True, markup=False)


def _list(figures: list[Figure], profile: Profile, folder: Path, seed: int, as_json: bool) -> None:
    """List figures: what they show, their cells at each profile, and how many are measured in the folder."""
    rows = []
    store = Store.reading(folder) if (folder / NAME).is_file() else None
    kept: dict[str, int] = {}
    if store is not None:
        with store as found:
            plans = {f.id: Plan([f], profile.value, seed) for f in figures}
            kept = {id: sum(k.rows is not None for k in found.kept(plan.tasks.values()).values()) for id, plan in plans.items()}
    for f in figures:
        cells = {p.value: len(f.cells(p.value)) for p in Profile}
        rows.append({"id": f.id, "title": f.title, "source": f.source, "cells": cells, "measured": kept.get(f.id, 0)})
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name, right in (("figure", False), ("title", False), *((p.value, True) for p in Profile), ("measured", True)):
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=name == "figure")
    for row in rows:
        table.add_row(row["id"], row["title"], *(str(n) for n in row["cells"].values()), str(row["measured"]))
    console = on_stdout()
    console.print(table)
    console.print(
        f"\n{len(rows)} figures; numbers are cells, 'measured' those of profile {profile} in {folder}. To measure, draw and "
        "judge: eigenscape reproduce NAME... (eigenscape reproduce --help)",
        soft_wrap=True,
    )
