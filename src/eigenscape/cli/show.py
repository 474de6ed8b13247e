"""An analysis on the terminal: a short table, the top of both matrices, and where the files lie."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..analysis import Analysis
from ..analysis.facts import facts, summary
from ..report.numbers import number

WRITTEN = {
    "report": "report.html",
    "density figure": "density.png",
    "training figure": "training.png",
    "numbers": "analysis.json",
    "arrays": "analysis.npz",
}


def _plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))


def facts_table(a: Analysis) -> Table:
    """Tabulate the numbers that matter, with what is known about their errors."""
    table = _plain_table(f"Curvature of {a.name}: {summary(a)}")
    table.add_column("measured")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("certificate", overflow="fold")
    for fact in facts(a):
        table.add_row(fact.name, fact.value, fact.certificate)
    return table


def tops_table(a: Analysis) -> Table:
    """Tabulate the largest eigenvalues of both matrices by rank."""
    table = _plain_table("Largest eigenvalues")
    for heading in ("rank", "Hessian", *(["Gauss-Newton"] if a.ggn else [])):
        table.add_column(heading, justify="right")
    columns = [p.values.tolist() for p in (a.hessian, a.ggn) if p is not None]
    for rank, values in enumerate(zip(*columns), 1):
        table.add_row(str(rank), *(number(v, 5) for v in values))
    return table


def files(folder: Path) -> list[str]:
    """Say what was written where, one a line; paths are never broken."""
    wide = max(map(len, WRITTEN))
    return [f"{what:<{wide}}  {folder / name}" for what, name in WRITTEN.items() if (folder / name).exists()]


def show(a: Analysis, folder: Path) -> None:
    """Print everything in short."""
    console = Console(highlight=False)
    for table in (facts_table(a), tops_table(a)):
        console.print(table)
        console.print()
    console.print("\n".join(files(folder)), soft_wrap=True, markup=False)
