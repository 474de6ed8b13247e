"""Phases of training, by definition: what the last few records say."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

WINDOW = 6  # records that a phase is judged by
EDGE = (0.9, 1.2)  # ratio of sharpness to threshold that counts as "at the edge", in the median over the window
SPIKE = 1.5  # rise of the loss over its lowest value in the window that counts as a spike
FALL = 0.9  # fall of the sharpness against its value before the spike that makes the spike a catapult
DRIFT = 0.03  # relative change of the sharpness over the window that counts as rising or falling

PHASES = {
    "catapult": f"the loss rose to {SPIKE:g} times its lowest value in the window while it was over the threshold and has come "
    f"down since, and the sharpness has fallen below {FALL:g} of its largest value there",
    "divergence ahead": "the sharpness is surely over the threshold at the last two records, and the gradient's part along "
    "the top eigenvectors grew from each of the last three records to the next, as did the loss over the last two",
    "edge of stability": f"the median ratio of sharpness to threshold over the window is between {EDGE[0]:g} and {EDGE[1]:g}",
    "flattening": f"the sharpness fell by more than {100 * DRIFT:g} % over the window, by the median of its first "
    "and second half",
    "beyond the edge": f"the median ratio of sharpness to threshold is above {EDGE[1]:g}",
    "progressive sharpening": f"the sharpness rose by more than {100 * DRIFT:g} % over the window, likewise",
    "steady": "none of the above",
    "warming up": "fewer than three records",
}
"""Definition of each phase; the first that applies, in this order, is the one told. The window is the last six records.

The sharpness is the one that the optimizer feels (`effective_sharpness`: preconditioned for Adam and RMSprop), the threshold
its own (`2/lr`, `2(1+momentum)/lr`, ...), and their quotient is the `ratio`."""


def phase(rows: Sequence[dict[str, Any]]) -> str:
    """Name the phase that the last of these records is in.

    >>> rising = [{"ratio": 0.1 * i, "sharpness": float(i), "loss": 1.0 / i} for i in range(1, 7)]
    >>> phase(rising)
    'progressive sharpening'
    """
    rows = rows[-WINDOW:]
    if len(rows) < 3:
        return "warming up"
    loss, ratio = _column(rows, "loss"), _column(rows, "ratio")
    sharpness = _column(rows, "effective_sharpness")
    sharpness = np.where(np.isnan(sharpness), _column(rows, "sharpness"), sharpness)
    if _catapult(loss, ratio, sharpness):
        return "catapult"
    if _diverging(rows, loss):
        return "divergence ahead"
    known = ratio[~np.isnan(ratio)]
    typical = float(np.median(known)) if len(known) >= 3 else 0.0
    if EDGE[0] <= typical <= EDGE[1]:
        return "edge of stability"
    half = len(sharpness) // 2
    early, late = np.median(sharpness[:half]), np.median(sharpness[-half:])
    if late < (1 - DRIFT) * early:
        return "flattening"
    if typical > EDGE[1]:
        return "beyond the edge"
    return "progressive sharpening" if late > (1 + DRIFT) * early else "steady"


def _column(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    cells = [row.get(name) for row in rows]
    return np.array([math.nan if cell is None else cell for cell in cells], dtype=float)


def _catapult(loss: np.ndarray, ratio: np.ndarray, sharpness: np.ndarray) -> bool:
    peak = int(np.nanargmax(loss)) if not np.isnan(loss).all() else 0
    start = int(np.nanargmin(loss[: peak + 1])) if peak else 0
    spiked = peak > 0 and loss[peak] > SPIKE * loss[start] and loss[-1] < loss[peak]
    return bool(spiked and np.nanmax(ratio[start : peak + 1], initial=0.0) > 1 and sharpness[-1] < FALL * np.nanmax(sharpness))


def _diverging(rows: Sequence[dict[str, Any]], loss: np.ndarray) -> bool:
    over = [row.get("ratio_low") for row in rows[-2:]]
    along = [_top_gradient(row) for row in rows[-3:]]
    growing = all(a < b for a, b in itertools.pairwise(along))
    return all(r is not None and r > 1 for r in over) and growing and bool(loss[-1] > loss[-2])


def _top_gradient(row: dict[str, Any]) -> float:
    share, norm = row.get("gradient_share"), row.get("gradient_norm")
    return math.nan if share is None or norm is None else norm * math.sqrt(share)
