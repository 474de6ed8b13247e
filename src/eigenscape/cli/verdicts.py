"""Verdicts on the terminal: a table where it is wide, a list where it is not."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..experiments.machine import Agreement, Verdict
from ..experiments.machine.record import Record

COLOURS = {Agreement.AGREES: "green", Agreement.PARTLY: "yellow", Agreement.DISAGREES: "red", Agreement.OPEN: "dim"}
WIDE = 110  # columns from which on a table is readable


def verdicts_of(record: Record, width: int) -> RenderableType:
    """A figure's title, its verdicts, and its problem if it has one."""
    title = Text.assemble((record.id, "bold"), "  ", record.title)
    parts: list[RenderableType] = [title]
    if record.problem:
        parts.append(Padding(Text(record.problem, style="red"), (0, 0, 0, 2)))
    if record.verdicts:
        parts.append(_table(record.verdicts) if width >= WIDE else _list(record.verdicts))
    return Group(*parts, "")


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name, ratio in (("  verdict", None), ("claim", 4), ("ours", 4), ("the paper's", 3), ("why", 4)):
        table.add_column(name, ratio=ratio, overflow="fold", min_width=17 if ratio is None else None)
    for v in verdicts:
        cells = (f"{v.claim} ({v.source})", v.ours, v.paper, v.why)
        table.add_row(Text(f"  {v.agreement}", style=COLOURS[v.agreement]), *map(Text, cells))
    return table


def _list(verdicts: Sequence[Verdict]) -> RenderableType:
    lines = []
    for v in verdicts:
        lines.append(
            Padding(Text.assemble((str(v.agreement), COLOURS[v.agreement]), f": {v.claim} ({v.source})"), (0, 0, 0, 2))
        )
        said = f"ours: {v.ours}; the paper's: {v.paper}" + (f"; {v.why}" if v.why else "")
        lines.append(Padding(Text(said, style="dim"), (0, 0, 0, 6)))
    return Group(*lines)


def on_stdout() -> Console:
    """Return a console for results; where there is no terminal, lines are long enough for the table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 160))
