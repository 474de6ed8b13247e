"""What the trained networks say about [data] eq. 14 and the three assumptions behind it."""

import numpy as np

from ....report.numbers import number
from ...machine import Rows, Verdict
from ..judging import verdict
from .pictures import LOOKS


def spread(rows: Rows, of: str, over: str) -> tuple[float, float]:
    """Least and largest ratio of two columns."""
    ratio = rows[of] / rows[over]
    return float(ratio.min()), float(ratio.max())


def between(ratios: tuple[float, float]) -> str:
    """Write a range of ratios; both ends once if they are the same number."""
    low, high = (f"{r:.3g}" if abs(r - 1) > 0.1 else f"{r:.4f}" for r in ratios)
    return low if low == high else f"{low} to {high}"


def within(rows: Rows, of: str, over: str, allowed: float) -> bool:
    """Whether two columns differ by at most that share of the second."""
    low, high = spread(rows, of, over)
    return 1 - allowed <= low and high <= 1 + allowed


def rising(rows: Rows, what: str = "sharpness") -> tuple[int, int]:
    """How many curves rise strictly with the largest class, and how many there are."""
    curves = [np.array([p[what].mean() for _, p in part.by("largest")]) for _, part in rows.by("images", "start")]
    return sum(bool((np.diff(c) > 0).all()) for c in curves), len(curves)


def sets(rows: Rows) -> str:
    """Say on what it was found."""
    names = [LOOKS[name][0] for name, _ in rows.by("images")]
    counts = sorted(set(rows["n"].tolist()))
    return f"{', '.join(names)}; n = {', '.join(map(str, counts))}, {rows['steps'].max():,} steps"


def labels_claims(rows: Rows) -> list[Verdict]:
    """Fig. 1 right: white inputs, balanced weights."""
    up, curves = rising(rows)
    gap = rows["loss"] - rows["least"]
    off = np.abs(rows["sharpness"] / rows["from_data"] - 1)
    return [
        verdict(
            "the sharpness reached is that of eq. 14, from the class proportions alone",
            "[data] eq. 14, Fig. 1 right",
            paper="L (largest proportion)^(1 - 1/L)",
            ours=f"trained over predicted: {between(spread(rows, 'sharpness', 'printed'))}",
            holds=within(rows, "sharpness", "printed", 0.01),
            partly=within(rows, "sharpness", "printed", 0.2),
            why=f"an upper bound: labels are no linear functions of these inputs; agrees within 1 %, partly within 20 % "
            f"({sets(rows)})",
        ),
        verdict(
            "it is L s2 (|Y^T X| / (n s2))^(2 - 2/L), from inputs and labels",
            "ours",
            paper="labels alone",
            ours=f"trained over predicted: {between(spread(rows, 'sharpness', 'from_data'))}; median difference "
            f"{number(float(np.median(off)), 2)}",
            holds=within(rows, "sharpness", "from_data", 0.01),
            partly=float(np.median(off)) < 0.01,
            why=f"runs end {number(float(gap.max()), 2)} or less above the least loss: smaller modes are still on their way, "
            "which the sharpness does not feel once the largest has arrived",
        ),
        verdict(
            "one class with very many samples makes the solution sharper",
            "[data] Sec. 4, Fig. 1 right",
            paper="rises with the largest proportion",
            ours=f"rises strictly in {up} of {curves} sets",
            holds=up == curves,
            partly=up > 0,
        ),
    ]


def raw_claims(rows: Rows) -> list[Verdict]:
    """Fig. 2 left: inputs as they are."""
    up, curves = rising(rows)
    left = (rows["loss"] - rows["least"]) / rows["least"]
    return [
        verdict(
            "on raw inputs the sharpness varies inconsistently with the largest proportion",
            "[data] Sec. 5, Fig. 2 left",
            paper="inconsistent",
            ours=f"rises strictly in {up} of {curves} sets",
            holds=up < curves,
            partly=False,
            why=f"{sets(rows)}; pixels from 0 to 1: the text does not say how they are scaled",
        ),
        verdict(
            "on raw inputs the theory breaks down immediately",
            "[data] Sec. 5, Fig. 2 left",
            paper="breaks down",
            ours=f"trained over eq. 14: {between(spread(rows, 'sharpness', 'printed'))}; trained over the balanced formula for "
            f"inputs that need not be white, at the map that training reached: "
            f"{between(spread(rows, 'sharpness', 'at_map'))}",
            holds=not within(rows, "sharpness", "at_map", 0.02),
            partly=not within(rows, "sharpness", "printed", 0.2),
            why="eq. 14 does, as it needs white inputs; balance, and the formula for it, do not",
        ),
        verdict(
            "the balanced minimum, from data alone, is where training ends",
            "ours",
            paper="-",
            ours=f"losses end {number(float(left.min()), 2)} to {number(float(left.max()), 2)} of the least loss above it, "
            f"sharpness is {between(spread(rows, 'sharpness', 'from_data'))} of that of the minimum",
            holds=None,
            why="directions in which the inputs hardly vary are not learned within these steps; beyond/imbalance trains to the "
            "end on fewer directions",
        ),
    ]


def start_claims(rows: Rows) -> list[Verdict]:
    """Fig. 2 middle: PyTorch's initialisation."""
    up, curves = rising(rows)
    gaps = rows["imbalance"]
    return [
        verdict(
            "without balance, predictions stay intact: sharpness rises with label imbalance",
            "[data] Sec. 5, Fig. 2 middle",
            paper="intact",
            ours=f"rises strictly in {up} of {curves} sets; trained over eq. 14: "
            f"{between(spread(rows, 'sharpness', 'printed'))}",
            holds=up == curves and within(rows, "sharpness", "printed", 0.05),
            partly=up == curves,
            why=f"the trend stays, the numbers do not; layers end out of balance by {number(float(gaps.min()), 2)} to "
            f"{number(float(gaps.max()), 2)} of the largest squared norm ({sets(rows)})",
        ),
        verdict(
            "the balanced solution is the flattest that maps the inputs so",
            "ours",
            paper="not said",
            ours=f"trained over the balanced sharpness at the same map: {between(spread(rows, 'sharpness', 'at_map'))}",
            holds=float((rows["sharpness"] / rows["at_map"]).min()) > 0.999,
            why="white inputs",
        ),
    ]


def tanh_claims(rows: Rows) -> list[Verdict]:
    """Fig. 2 right: tanh between the layers."""
    up, curves = rising(rows)
    return [
        verdict(
            "with tanh results differ slightly and stay qualitatively similar",
            "[data] Sec. 5, Fig. 2 right",
            paper="similar",
            ours=f"rises strictly in {up} of {curves} curves; trained over eq. 14: "
            f"{between(spread(rows, 'sharpness', 'printed'))}",
            holds=up == curves,
            partly=up > 0,
            why=f"balanced start, as App. C has it, and PyTorch's, as the caption's 'unbalanced' suggests ({sets(rows)})",
        )
    ]
