"""What is kept beside a picture: verdicts, how it was measured, and what that cost; enough for a page without the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from .verdict import Agreement, Verdict


@dataclass(frozen=True)
class Method:
    """One experiment behind a figure: what its cells are, what is done with one of them, and what they cost together."""

    experiment: str
    version: int
    configs: str
    about: str
    doing: str
    cells: int
    rows: int
    seconds: float


@dataclass(frozen=True)
class Record:
    """A figure of a run, in words.

    - cells, measured: that it needs, and that ended well; problem: a sentence where something went wrong.
    - seconds: of all its cells, whichever figure they are shared with.
    - machines, commits, versions: what the cells were measured on and with.
    """

    id: str
    title: str
    source: str
    reading: str
    profile: str
    seed: int
    cells: int
    measured: int
    seconds: float
    problem: str = ""
    verdicts: Sequence[Verdict] = ()
    methods: Sequence[Method] = ()
    machines: Sequence[str] = ()
    commits: Sequence[str] = ()
    versions: Mapping[str, str] | None = None

    @property
    def paper(self) -> str:
        """First part of the id."""
        return self.id.partition("/")[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Undo `to_dict`."""
        verdicts = [Verdict(**v | {"agreement": Agreement(v["agreement"])}) for v in tree["verdicts"]]
        return cls(**dict(tree) | {"verdicts": verdicts, "methods": [Method(**m) for m in tree["methods"]]})


def tally(verdicts: Sequence[Verdict]) -> dict[Agreement, int]:
    """Count verdicts by their agreement, in its order, without those that do not occur."""
    counts = {a: sum(v.agreement is a for v in verdicts) for a in Agreement}
    return {a: count for a, count in counts.items() if count}


def counted(verdicts: Sequence[Verdict]) -> str:
    """Say how many verdicts there are of each kind.

    >>> counted([Verdict("1 + 1", "ours", "2", "2", Agreement.AGREES), Verdict("c", "ours", "", "", Agreement.OPEN)])
    '1 agrees, 1 cannot be judged'
    """
    one = {Agreement.AGREES: "agrees", Agreement.DISAGREES: "disagrees"}
    many = {Agreement.AGREES: "agree", Agreement.DISAGREES: "disagree"}
    found = tally(verdicts).items()
    return ", ".join(f"{count} {(one if count == 1 else many).get(a, str(a))}" for a, count in found) or "none"
