"""The machinery of the ledger: a row is one sentence of a paper, a verdict, and a check that is run afresh."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, get_args

import torch
from torch import Tensor

from eigenscape.core import EigenscapeError

Verdict = Literal["holds", "holds under", "corrected", "false", "not decidable from the text"]
Kind = Literal["mathematics", "misprint", "damaged text", "ours"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
UNSETTLED = "unsettled"
TOLERANCE = 1e-9
CLEAR = 1e-6  # an error above this is no rounding: only then has a printed statement been seen to fail


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


@dataclass(frozen=True)
class Seen:
    """What a check saw on one batch of cases: relative errors, one per case (inf or nan where a formula has no value).

    `printed` belongs to the statement as printed, `corrected` to what the ledger adds or puts in its place, `library` to
    what `eigenscape.theory` returns for the same cases; `condition` says in which cases the condition of a "holds under"
    is met.
    """

    printed: Tensor | None = None
    corrected: Tensor | None = None
    condition: Tensor | None = None
    library: Tensor | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """Cases tried, cases whose error exceeded the tolerance, and the largest error.

    >>> Tally.of([torch.tensor([0.0, 1e-12]), torch.tensor([float("nan")])], 1e-9)
    Tally(cases=3, failures=1, error=inf)
    """

    cases: int
    failures: int
    error: float

    @classmethod
    def of(cls, errors: Sequence[Tensor], tolerance: float) -> "Tally | None":
        """Count over batches; None if the check never spoke about this."""
        if not errors:
            return None
        flat = torch.cat([e.detach().reshape(-1).to(torch.float64).nan_to_num(nan=math.inf, posinf=math.inf) for e in errors])
        worst = float(flat.max()) if flat.numel() else 0.0
        return cls(flat.numel(), int((flat > tolerance).sum()), worst)


@dataclass(frozen=True)
class Evidence:
    """The numbers of one run of one check, and the verdict they imply.

    >>> wrong, right = Tally(9, 4, 0.5), Tally(9, 0, 1e-15)
    >>> Evidence(right).verdict, Evidence(wrong, corrected=right).verdict, Evidence(wrong, inside=right).verdict
    ('holds', 'corrected', 'holds under')
    >>> Evidence(wrong).verdict, Evidence(wrong, corrected=wrong).verdict, Evidence().verdict
    ('false', 'unsettled', 'not decidable from the text')
    """

    printed: Tally | None = None
    corrected: Tally | None = None
    inside: Tally | None = None
    library: Tally | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def collect(cls, seen: Iterable[Seen], tolerance: float = TOLERANCE) -> "Evidence":
        """Add up what a check yields."""
        batches = list(seen)

        def tally(errors: Iterable[Tensor | None]) -> Tally | None:
            return Tally.of([e for e in errors if e is not None], tolerance)

        return cls(
            printed=tally(s.printed for s in batches),
            corrected=tally(s.corrected for s in batches),
            inside=tally(s.printed[s.condition] for s in batches if s.printed is not None and s.condition is not None),
            library=tally(s.library for s in batches),
            numbers={name: value for s in batches for name, value in s.numbers.items()},
        )

    @property
    def verdict(self) -> str:
        """Return the verdict that this run supports; "unsettled" if what should hold failed, or nothing was tried."""
        if self.printed is None:
            return "not decidable from the text" if self.corrected is None and self.library is None else UNSETTLED
        promised = [t for t in (self.corrected, self.inside, self.library) if t is not None]
        if self.printed.cases == 0 or any(t.cases == 0 or t.failures for t in promised):
            return UNSETTLED
        if self.printed.failures == 0:
            return "holds"
        if self.printed.error <= CLEAR:
            return UNSETTLED
        if self.corrected is not None:
            return "corrected"
        return "false" if self.inside is None else "holds under"


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
