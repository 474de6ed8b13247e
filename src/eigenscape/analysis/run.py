"""A training run with its picture and its page: the monitor users hold."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .. import dynamics
from ..dynamics import PHASES, read
from ..dynamics.history import FILE
from ..report import write
from ..report.run import run_curves, run_page


class Monitor(dynamics.Monitor):
    """Record curvature along a training run, with its picture and its page; arguments as in `eigenscape.dynamics.Monitor`."""

    def plot(self) -> Figure:
        """Picture the loss above, the sharpness against its threshold below."""
        return run_curves(self.history.rows)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page about the run so far."""
        return write(run_page(self.history.rows, Path(path).stem, {"chosen": self.chosen}, PHASES), path)


def run_report(folder: str | Path, path: str | Path) -> Path:
    """Write the page of a run from its folder alone, while it runs or after."""
    rows: Sequence[dict[str, Any]] = read(folder).rows
    return write(run_page(rows, Path(folder).name, about(folder), PHASES), path)


def about(folder: str | Path) -> dict[str, Any]:
    """What a run's folder says of the run; empty where it says nothing (yet)."""
    path = Path(folder) / "run.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def last_written(folder: str | Path) -> float:
    """When a run's last record was written, in seconds since the epoch."""
    return (Path(folder) / FILE).stat().st_mtime
