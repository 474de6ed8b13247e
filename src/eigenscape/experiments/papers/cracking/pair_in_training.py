"""The pair of outliers through training on a wedge: [cracking] Fig. 8, the same runs as [closed-form] Fig. 3."""

from dataclasses import replace

from ...machine import Rows, Verdict
from ..closed_form.pairing import PAIRING


def claims(rows: Rows) -> list[Verdict]:
    """Of the claims on these runs, the one that this paper makes."""
    return [replace(v, source="[cracking] Fig. 8") for v in PAIRING.claims(rows) if "pairs" in v.claim or "wedge" in v.claim]


FIGURE = replace(PAIRING, id="cracking/fig8", source="[cracking] Fig. 8, [closed-form] Fig. 3", claims=claims)
