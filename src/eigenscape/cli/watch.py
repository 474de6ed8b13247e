"""`eigenscape watch RUN_DIR`: a running or finished training run, live in the terminal."""

import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..analysis.run import about, last_written, run_report
from ..dynamics import PHASES, History, read
from ..report.numbers import duration, number

BARS = " ▁▂▃▄▅▆▇█"
COLUMNS = {
    "step": "step",
    "loss": "loss",
    "sharpness": "sharpness",
    "effective_sharpness": "felt",
    "threshold": "threshold",
    "ratio": "ratio",
    "gradient_share": "grad. in top",
    "phase": "phase",
}
ALARMS = {
    "divergence ahead": "bold red",
    "diverged": "bold red",
    "catapult": "yellow",
    "beyond the edge": "yellow",
    "edge of stability": "cyan",
}


def sparkline(values: list[float], width: int = 60, log: bool = False) -> str:
    """Draw numbers as bars of eight heights; gaps are blank.

    >>> sparkline([0.0, 1.0, float("nan"), 4.0])
    '▁▃ █'
    """
    shown = values if len(values) <= width else [values[round(i * (len(values) - 1) / (width - 1))] for i in range(width)]
    shown = [math.log(v) if log and v > 0 else math.nan if log else v for v in shown]
    finite = [v for v in shown if math.isfinite(v)]
    low, span = min(finite, default=0.0), (max(finite, default=1.0) - min(finite, default=0.0)) or 1.0
    return "".join(BARS[1 + round(7 * (v - low) / span)] if math.isfinite(v) else " " for v in shown)


def _values(history: History, name: str) -> list[float]:
    return [float(row[name]) if isinstance(row.get(name), int | float) else math.nan for row in history]


def screen(history: History, name: str, facts: dict[str, Any], silent: float | None = None, rows: int = 12) -> RenderableType:
    """Lay out what is known of a run: curves, the phase with its definition, the last records.

    `silent` is how many seconds ago the last record was written, of a run that is not known to have ended.
    """
    if not len(history):
        return Panel(Text("no record yet"), title=name)
    last = history[-1]
    phase = str(last.get("phase", ""))
    lines = Text()
    for label, column, log in (("loss", "loss", True), ("sharpness", "sharpness", False), ("of the edge", "ratio", False)):
        values = _values(history, column)
        if any(math.isfinite(v) for v in values):
            lines.append(
                f"{label:>12}  {sparkline(values, log=log)}  {number(values[-1]) if math.isfinite(values[-1]) else '-'}\n"
            )
    lines.append(f"{'phase':>12}  ")
    lines.append(phase, style=ALARMS.get(phase, "green"))
    lines.append(f": {PHASES.get(phase, 'the loss or the weights are no longer finite')}\n", style="dim")
    table = Table(box=None, header_style="dim")
    names = [c for c in COLUMNS if any(row.get(c) is not None for row in history)]
    if all(row.get("effective_sharpness") == row.get("sharpness") for row in history):
        names = [c for c in names if c != "effective_sharpness"]
    for column in names:
        table.add_column(COLUMNS[column], justify="left" if column == "phase" else "right")
    for row in history[-rows:]:
        cells = [row.get(c) for c in names]
        table.add_row(*(number(c) if isinstance(c, int | float) else str(c or "") for c in cells))
    state = "finished" if silent is None else f"running, the last record {duration(silent)} ago"
    what = facts.get("chosen", "") if silent is None else _described(facts)
    return Panel(Group(lines, table), title=f"{name}: {len(history)} records, {state}", subtitle=str(what))


def _described(facts: dict[str, Any]) -> str:
    size = facts.get("parameters")
    return ", ".join([str(facts.get("optimizer", "")), f"{size:,} parameters"] if size else [])


def watch(
    run_dir: Annotated[Path, typer.Argument(help="the folder given to Monitor(..., run=FOLDER)")],
    once: Annotated[bool, typer.Option("--once", help="show what is there and stop")] = False,
    refresh: Annotated[float, typer.Option(help="seconds between looks at the folder")] = 1.0,
    report: Annotated[Path | None, typer.Option(help="write the run's page to this HTML file and stop")] = None,
) -> None:
    """Watch a training run live; ends when the run does, or with Ctrl-C."""
    console = Console()
    if report is not None:
        console.print(f"wrote {run_report(run_dir, report)}")
        return
    if once:
        console.print(_look(run_dir))
        return
    try:
        with Live(_look(run_dir), console=console, refresh_per_second=4) as live:
            while not about(run_dir).get("finished"):
                time.sleep(refresh)
                live.update(_look(run_dir))
            live.update(_look(run_dir))
    except KeyboardInterrupt:
        console.print("stopped watching; the run goes on")


def _look(run_dir: Path) -> RenderableType:
    history, facts = read(run_dir), about(run_dir)
    silent = None if facts.get("finished") else max(0.0, time.time() - last_written(run_dir))
    return screen(history, run_dir.resolve().name, facts, silent)
