"""What a check saw, and the verdict that follows from it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

UNSETTLED = "unsettled"
TOLERANCE = 1e-9
CLEAR = 1e-6  # an error above this is no rounding: only then has a printed statement been seen to fail


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
