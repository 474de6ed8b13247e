"""The machinery of the ledger: a row is one sentence of a paper, a verdict, and a check that is run afresh."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, get_args

import torch

from eigenscape.core import EigenscapeError

from .evidence import TOLERANCE, Evidence, Seen

Verdict = Literal["holds", "holds under", "corrected", "false", "not decidable from the text"]
Kind = Literal["mathematics", "misprint", "damaged text", "ours"]
VERDICTS: tuple[str, ...] = get_args(Verdict)


class LedgerError(EigenscapeError, LookupError):
    """A row that does not exist, exists twice, or has a verdict nobody can recompute was asked for."""


@dataclass(frozen=True)
class Profile:
    """How much a run tries: `batch` cases per shape and kind of input."""

    name: str
    batch: int

    def pick(self, quick: int, full: int) -> int:
        """Choose a size that is no multiple of `batch` (a number of runs, of steps, of trials)."""
        return quick if self.name == "quick" else full


PROFILES = {"quick": Profile("quick", 2), "full": Profile("full", 30)}


Check = Callable[[torch.Generator, Profile], Iterable[Seen]]


@dataclass(frozen=True)
class Row:
    """One sentence of a paper, in our words, with its verdict and its check."""

    id: str
    source: str
    statement: str
    verdict: Verdict
    note: str
    kind: Kind
    tolerance: float
    look: Check = field(repr=False)

    def check(self, generator: torch.Generator, profile: Profile) -> Evidence:
        """Try the statement, as printed and as corrected, on random and degenerate cases against brute force."""
        return Evidence.collect(self.look(generator, profile), self.tolerance)


@dataclass(frozen=True)
class Outcome:
    """A row together with what a run saw."""

    row: Row
    evidence: Evidence
    seconds: float

    @property
    def matches(self) -> bool:
        """Whether the run supports the recorded verdict."""
        return self.evidence.verdict == self.row.verdict


class Ledger:
    """An ordered set of rows with unique ids."""

    def __init__(self, rows: Iterable[Row] = ()):
        self.rows: dict[str, Row] = {}
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows.values())

    def add(self, row: Row) -> None:
        """Append a row; its id must be new and its verdict one of the five."""
        if row.id in self.rows:
            raise LedgerError(f"row {row.id!r} exists already; expected a new id.")
        if row.verdict not in VERDICTS:
            raise LedgerError(f"row {row.id!r} has verdict {row.verdict!r}; expected one of {', '.join(VERDICTS)}.")
        self.rows[row.id] = row

    def row(
        self,
        id: str,
        source: str,
        statement: str,
        verdict: Verdict,
        note: str = "",
        *,
        kind: Kind = "mathematics",
        tolerance: float = TOLERANCE,
    ) -> Callable[[Check], Check]:
        """Register the decorated check, a generator of `Seen`, as a row."""

        def register(look: Check) -> Check:
            self.add(Row(id, source, statement, verdict, note, kind, tolerance, look))
            return look

        return register

    def select(self, patterns: Sequence[str]) -> "Ledger":
        """Rows whose id is named or matches a glob pattern; all of them if nothing is named."""
        for pattern in patterns:
            if not any(fnmatchcase(id, pattern) for id in self.rows):
                raise LedgerError(f"no row is called {pattern!r}; expected an id such as {', '.join([*self.rows][:5])}, or L*.")
        return Ledger(r for r in self if not patterns or any(fnmatchcase(r.id, p) for p in patterns))

    def run(self, profile: Profile, seed: int = 0) -> Iterator[Outcome]:
        """Check row after row; a row's random stream depends on the seed and its id only."""
        for row in self:
            start = time.perf_counter()
            evidence = row.check(stream(seed, row.id), profile)
            yield Outcome(row, evidence, time.perf_counter() - start)


def stream(seed: int, id: str) -> torch.Generator:
    """Return the random stream of one row."""
    digest = hashlib.sha256(f"{seed}/{id}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
