"""What the number of samples does to the sharpness: [data] Sec. 4 says nothing at all."""

import numpy as np

from ...machine import Rows, Verdict
from ..judging import verdict
from .pictures import LOOKS, NOISE
from .trained_claims import between, spread, within


def claims(rows: Rows) -> list[Verdict]:
    """Independence of n, where the labels are linear functions of the inputs and where they are not."""
    pictures = rows.where(lambda row: row["images"] != NOISE)
    fits = rows.where(lambda row: row["least"] < 1e-9)
    rest = rows.where(lambda row: row["least"] >= 1e-9)
    changes = {name: spread_of(part) for name, part in rows.by("images")}
    said = "; ".join(f"{LOOKS[name][0]} {low:.3g} to {high:.3g}" for name, (low, high) in changes.items())
    exact = within(rows, "sharpness", "from_data", 0.01)
    off = np.abs(rows["sharpness"] / rows["from_data"] - 1)
    return [
        verdict(
            "the sharpness of the balanced solution does not depend on the number of samples",
            "[data] Sec. 4",
            paper="independent of n",
            ours=f"trained over eq. 14, from {rows['n'].min()} to {rows['n'].max()} samples: {said}",
            holds=all(low > 0.98 for low, _ in changes.values()),
            partly=len(pictures) > 0 and within(pictures, "sharpness", "printed", 0.2),
            why=(
                f"where labels are linear functions of the inputs: {between(spread(fits, 'sharpness', 'printed'))}; elsewhere: "
                if len(fits)
                else "no labels are linear functions of the inputs here: "
            )
            + (between(spread(rest, "sharpness", "printed")) if len(rest) else "none"),
        ),
        verdict(
            "it depends on n through |Y^T X| / n alone",
            "ours",
            paper="-",
            ours=f"trained over L s2 (|Y^T X| / (n s2))^(2 - 2/L): {between(spread(rows, 'sharpness', 'from_data'))}",
            holds=exact,
            partly=float(np.median(off)) < 0.01,
            why=f"{int((off > 0.01).sum())} of {len(rows)} runs end more than 1 % off: where inputs tell little of the labels, "
            "descent is slow and has not arrived",
        ),
    ]


def spread_of(rows: Rows) -> tuple[float, float]:
    """Least and largest ratio of the trained sharpness to eq. 14 in one set."""
    return spread(rows, "sharpness", "printed")
