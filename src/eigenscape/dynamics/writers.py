"""Where records go besides the history: CSV, TensorBoard, Weights & Biases. A writer is called with each record."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import CurvatureError
from .history import History, Row, flattened

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


def scalars(row: dict[str, Any], prefix: str = "curvature/") -> dict[str, float]:
    """Keep the numbers of a record, under names for a logger.

    >>> scalars({"step": 3, "loss": 1.0, "phase": "steady", "eigenvalues": [2.0], "trace": None})
    {'curvature/loss': 1.0}
    """
    skipped = ("step", "time")
    return {
        prefix + name: float(value)
        for name, value in row.items()
        if name not in skipped and isinstance(value, int | float) and not isinstance(value, bool)
    }


class CsvWriter:
    """Append records to a CSV file; one with a new column has the whole file written again."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.history = History()

    def __call__(self, row: Row) -> None:
        """Write one record."""
        known = self.history.columns
        self.history.rows.append(row)
        if set(row) <= set(known):
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, known).writerow(flattened(row))
        else:
            self.history.csv(self.path)

    def rewind(self, history: History) -> None:
        """Hold what a resumed run holds."""
        self.history = History(history)
        self.history.csv(self.path)


class TensorBoardWriter:
    """Write records as TensorBoard scalars; needs `pip install eigenscape[tensorboard]`."""

    def __init__(self, target: "str | Path | SummaryWriter", prefix: str = "curvature/"):
        self.prefix, self.own = prefix, isinstance(target, str | Path)
        self.writer: Any = target
        if isinstance(target, str | Path):
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError as error:
                raise CurvatureError(
                    "tensorboard is not installed; expected it here: pip install 'eigenscape[tensorboard]'."
                ) from error
            self.writer = SummaryWriter(str(target))

    def __call__(self, row: Row) -> None:
        """Write one record."""
        for name, value in scalars(row, self.prefix).items():
            self.writer.add_scalar(name, value, row["step"])
        if "phase" in row:
            self.writer.add_text(self.prefix + "phase", row["phase"], row["step"])
        self.writer.flush()

    def close(self) -> None:
        """Close a writer that was made here."""
        if self.own:
            self.writer.close()


class WandbWriter:
    """Log records to a Weights & Biases run (online or offline, as the run is); needs `pip install eigenscape[wandb]`.

    Records are logged against their own step metric, `curvature/step`, so that they never collide with the run's other steps.
    """

    def __init__(self, run: Any = None, prefix: str = "curvature/"):
        self.prefix = prefix
        if run is None:
            try:
                import wandb
            except ImportError as error:
                raise CurvatureError("wandb is not installed; expected it here: pip install 'eigenscape[wandb]'.") from error
            run = wandb.run
            if run is None:
                raise CurvatureError("there is no wandb run; expected wandb.init(...) before, or WandbWriter(run).")
        self.run = run
        run.define_metric(prefix + "*", step_metric=prefix + "step")

    def __call__(self, row: Row) -> None:
        """Log one record."""
        extra = {self.prefix + "step": row["step"], self.prefix + "phase": row.get("phase", "")}
        self.run.log(scalars(row, self.prefix) | extra)
