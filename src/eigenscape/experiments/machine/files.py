"""A run's folder: pictures with their records beside them, one index page, one file of verdicts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...analysis.store import atomically
from ...core import DataError
from ...report.style import png, svg
from .record import Record, tally
from .results import Result

FIGURES, VERDICTS = "figures", "verdicts.json"


@dataclass(frozen=True)
class Shown:
    """A figure as it lies in a folder: its record, and where its picture would be."""

    record: Record
    stem: Path

    @property
    def has_picture(self) -> bool:
        """Whether there is one."""
        return self.stem.with_suffix(".svg").is_file()

    @cached_property
    def svg(self) -> str:
        """The picture."""
        return self.stem.with_suffix(".svg").read_text(encoding="utf-8")


def write_result(result: Result, folder: Path, raster: bool = True) -> Shown:
    """Write `figures/PAPER/FIGURE.svg`, `.png` and, last, `.json`; a picture that cannot be drawn any more is taken away."""
    stem = folder / FIGURES / result.record.id
    for kind in ("svg", "png"):
        stem.with_suffix(f".{kind}").unlink(missing_ok=True)
    drawing = result.drawing
    if drawing is not None:
        text = svg(drawing)
        atomically(stem.with_suffix(".svg"), lambda part: part.write_text(text, encoding="utf-8"))
        if raster:
            atomically(stem.with_suffix(".png"), lambda part: png(drawing, part))
    _write_json(stem.with_suffix(".json"), result.record.to_dict())
    return Shown(result.record, stem)


def shown_in(folder: Path, order: Sequence[str]) -> list[Shown]:
    """Every figure that lies in a folder, in this order of ids; others, by name, after them."""
    found = {}
    for path in sorted((folder / FIGURES).rglob("*.json")):
        record = _record(path)
        found[record.id] = Shown(record, path.with_suffix(""))
    return [found[id] for id in [*(i for i in order if i in found), *(i for i in found if i not in order)]]


def _record(path: Path) -> Record:
    try:
        return Record.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"{path} is no record of a figure; expected one that this release wrote: delete it, and draw again with --redraw."
        ) from None


def write_verdicts(shown: Iterable[Shown], folder: Path) -> Path:
    """Write every verdict of a folder as JSON."""
    return _write_json(folder / VERDICTS, summary([s.record for s in shown]))


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Return verdicts and costs of some figures as plain JSON values."""
    verdicts = [v for record in records for v in record.verdicts]
    return {
        "verdicts": {str(agreement): count for agreement, count in tally(verdicts).items()},
        "problems": {record.id: record.problem for record in records if record.problem},
        "figures": [record.to_dict() for record in records],
    }


def _write_json(path: Path, tree: Any) -> Path:
    text = json.dumps(tree, indent=1, ensure_ascii=False) + "\n"
    return atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
