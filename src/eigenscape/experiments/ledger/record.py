"""A run of the ledger as plain data: what was claimed, what was seen, and whether the two agree."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .core import VERDICTS, Outcome
from .evidence import Tally
from .registry import SECTION_OF

FORMAT = 1


def count_verdicts(verdicts: Sequence[str]) -> dict[str, int]:
    """Rows per verdict, in the order of the five verdicts.

    >>> count_verdicts(["false", "holds", "holds"])
    {'holds': 2, 'holds under': 0, 'corrected': 0, 'false': 1, 'not decidable from the text': 0}
    """
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def _tally(tally: Tally | None) -> Mapping[str, Any] | None:
    """Cases, failures and the largest error; an error without a finite value is null."""
    if tally is None:
        return None
    return {"cases": tally.cases, "failures": tally.failures, "error": tally.error if math.isfinite(tally.error) else None}


def describe(outcome: Outcome) -> dict[str, Any]:
    """One row and what the run saw of it."""
    row, evidence = outcome.row, outcome.evidence
    return {
        "id": row.id,
        "section": SECTION_OF.get(row.id, ""),
        "source": row.source,
        "statement": row.statement,
        "verdict": row.verdict,
        "note": row.note,
        "kind": row.kind,
        "tolerance": row.tolerance,
        "seen": evidence.verdict,
        "matches": outcome.matches,
        "printed": _tally(evidence.printed),
        "corrected": _tally(evidence.corrected),
        "under condition": _tally(evidence.inside),
        "library": _tally(evidence.library),
        "numbers": dict(evidence.numbers),
        "seconds": round(outcome.seconds, 3),
    }


def record(outcomes: Sequence[Outcome], profile: str, seed: int) -> dict[str, Any]:
    """Return the whole run, ready for JSON."""
    return {
        "format": FORMAT,
        "profile": profile,
        "seed": seed,
        "torch": torch.__version__,
        "seconds": round(sum(o.seconds for o in outcomes), 1),
        "agree": all(o.matches for o in outcomes),
        "verdicts": count_verdicts([o.row.verdict for o in outcomes]),
        "rows": [describe(o) for o in outcomes],
    }
