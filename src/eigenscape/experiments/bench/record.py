"""A suite that has been run: its rows with the machine, the versions, the command and the date, as files."""

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ...analysis.provenance import command, now
from ...analysis.provenance import versions as own_versions
from ...report.style import write_figures
from .drawing import draw
from .peers import versions as peer_versions
from .registry import BenchError
from .suite import Row, Say, Suite
from .table import markdown


@dataclass(frozen=True)
class Record:
    """Rows of a suite, and what one needs to measure them again."""

    suite: str
    title: str
    rows: list[Row]
    machine: str
    threads: int
    load: float | None
    versions: Mapping[str, str]
    command: str
    started: str
    seconds: float
    brief: bool
    whole: bool = True

    def about(self) -> str:
        """One sentence on where the numbers come from."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        busy = "" if self.load is None else f", load {self.load:.1f}"
        short = " Brief: sizes at which times mean nothing." if self.brief else ""
        short += "" if self.whole else " Stopped before the end."
        return (
            f"{self.machine}, {self.threads} thread{'s' if self.threads != 1 else ''}{busy}; {versions}; "
            f"{self.started[:10]}, {self.seconds:.0f} s: `{self.command}`.{short}"
        )


def measure(suite: Suite, say: Say, brief: bool = False) -> Record:
    """Run a suite; one that is stopped keeps the rows that it has."""
    start, started = time.perf_counter(), now()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    rows: list[Row] = []
    whole = True
    try:
        for row in suite.run(say, brief):
            rows.append(plainly(row))
    except KeyboardInterrupt:
        if not rows:
            raise
        whole = False
    return Record(
        suite.name,
        suite.title,
        rows,
        machine(),
        torch.get_num_threads(),
        load,
        own_versions() | peer_versions(),
        command(),
        started,
        time.perf_counter() - start,
        brief,
        whole,
    )


def plainly(row: Row) -> Row:
    """Keep numbers, words and truth values: what JSON has words for."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in row.items() if value is not None}


def machine() -> str:
    """Name of the processor, its cores and the memory."""
    info = Path("/proc/cpuinfo")
    named = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if (info.is_file())
        else []
    )
    name = named[0] if named else platform.processor() or platform.machine()
    try:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
    except (ValueError, OSError, AttributeError):
        memory = ""
    return f"{name}, {os.cpu_count()} cores{memory}"


def write(record: Record, suite: Suite, folder: Path) -> list[Path]:
    """Write `SUITE.json`, `SUITE.md`, and the figure as `SUITE.svg` and `SUITE.png`."""
    paths = [folder / f"{suite.name}.{kind}" for kind in ("json", "md")]
    paths[0].write_text(json.dumps(asdict(record), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    paths[1].write_text(page(record, suite), encoding="utf-8")
    fig = draw(suite, record.rows)
    if fig is not None:
        write_figures({suite.name: fig}, folder)
        paths += [folder / f"{suite.name}.{kind}" for kind in ("svg", "png")]
    return paths


def page(record: Record, suite: Suite) -> str:
    """Write the table with its notes, in Markdown."""
    notes = "".join(f"- {note}\n" for note in suite.notes)
    return f"# {record.title}\n\n{markdown(suite, record.rows)}\n{notes}\n{record.about()}\n"


def read(path: Path) -> Record:
    """Read what `write` wrote."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Record(**kept)
    except (OSError, ValueError, TypeError) as error:
        raise BenchError(f"{path} cannot be read ({error}); expected a file that eigenscape bench has written.") from None
