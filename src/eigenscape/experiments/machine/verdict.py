"""What a run says about a claim."""

from dataclasses import dataclass
from enum import StrEnum


class Agreement(StrEnum):
    """How what was measured stands to what a paper says."""

    AGREES = "agrees"
    PARTLY = "partly"
    DISAGREES = "disagrees"
    OPEN = "cannot be judged"


@dataclass(frozen=True)
class Verdict:
    """One claim, with the numbers on both sides.

    - claim: what is claimed, in a few words of ours.
    - source: where, as `[cracking] Fig. 4`, or `ours` for predictions that no paper makes.
    - paper: the paper's number or statement, as text; ours: what was measured, as text.
    - why: the rule that was applied, or what is missing from the text.
    """

    claim: str
    source: str
    paper: str
    ours: str
    agreement: Agreement
    why: str = ""
