"""What is said of the norms of two weight matrices and the sharpness: [cracking] Sec. 4.2, App. D.3.3 and D.4."""

import numpy as np

from ...machine import Agreement, Rows, Verdict
from ..judging import verdict
from .correlations import NORMS
from .norms import END, START

SCHEMES = {"sp": "SP", "mup": "μP", "ntp": "NTP"}
WHEN = {START: "at initialisation", END: "after training"}
SMALL = 5  # the text's "small D" ends here, for us
ALIKE = 50  # from here on the entries of both matrices have the same size, up to a factor of two, under SP and μP


def strongest(rows: Rows, norm: str, source: str, paper: str) -> list[Verdict]:
    """Judge, before and after training, whether one norm goes with the target best, of whichever matrix serves it best."""
    found = []
    for when, words in WHEN.items():
        part = rows.where(lambda row: row["inputs"] > 1, kind="best", when=when)
        own = part.where(norm=norm)
        ahead = int((own["lead"] > 0).sum())
        clearly = int((own["lead"] > 2 * own["error"]).sum())
        behind = own.where(lambda row: row["lead"] < -2 * row["error"])
        medians = {n: float(np.median(part.where(norm=n)["pearson"])) for n in NORMS}
        rivals = ", ".join(f"{n} {r:.2f}" for n, r in medians.items())
        where = ", ".join(f"{SCHEMES[r['weights']]} D = {r['inputs']}" for r in behind)
        found.append(
            verdict(
                f"the squared {norm.capitalize()} norm correlates most with the {rows[0]['of']} {words}",
                source,
                paper=paper,
                ours=f"it leads at {ahead} of {len(own)} points with D > 1, by over two standard errors at {clearly}, and is "
                f"so far behind at {len(behind)}{f' ({where})' if where else ''}; median correlations {rivals}",
                holds=not len(behind) and ahead >= 0.9 * len(own),
                partly=ahead > len(own) / 2,
                why="of the matrix that suits each norm best; agrees if ahead at nine of ten points and nowhere clearly "
                "behind, partly if ahead at most points; for D = 1 the norms are one",
            )
        )
    return found


def median_of(rows: Rows) -> float:
    """Median correlation of some rows; NaN if there are none."""
    return float(np.median(rows["pearson"])) if len(rows) else float("nan")


def driving(rows: Rows, least: int, most: float = float("inf")) -> dict[str, tuple[float, float]]:
    """Median correlations of the spectral norms of both matrices, by parametrisation, for a range of D."""
    part = rows.where(lambda row: least <= row["inputs"] <= most, kind="single", norm="spectral")
    first, second = part.where(matrix=1), part.where(matrix=2)
    return {s: (median_of(first.where(weights=s)), median_of(second.where(weights=s))) for s in SCHEMES}


def told(found: dict[str, tuple[float, float]]) -> str:
    """Name both correlations of each parametrisation."""
    return ", ".join(f"{SCHEMES[s]} {a:.2f} and {b:.2f}" for s, (a, b) in found.items() if a == a)


def _driver_before(rows: Rows) -> Verdict:
    start = rows.where(when=START, of="sharpness")
    small, large = driving(start, 1, SMALL), driving(start, ALIKE)
    first = all(small[s][0] > 0.5 > abs(small[s][1]) for s in ("sp", "mup") if small[s][0] == small[s][0])
    rest = max((abs(r) for pair in large.values() for r in pair if r == r), default=0.0)
    return verdict(
        "before training the matrix with the larger entries drives the sharpness",
        "[cracking] App. D.3.3",
        paper="W₁ for SP and μP at small D; where both are alike, neither correlates strongly",
        ours=f"medians of W₁ and W₂ for D up to {SMALL}: {told(small)}; from {ALIKE} on: {told(large) or 'not measured'}",
        holds=first and rest < 0.5,
        partly=first,
        why="strongly: over 0.5; the text does not say where small D ends, and from where on the matrices are alike",
    )


def _driver_after(rows: Rows) -> Verdict:
    end = rows.where(when=END, of="sharpness")
    small, large = driving(end, 1, SMALL), driving(end, ALIKE)
    everywhere = [found[s] for found in (small, large) for s in ("sp", "mup") if found[s][0] == found[s][0]]
    second = [b > a for a, b in everywhere]
    return verdict(
        "after training the second matrix drives the sharpness under SP and μP",
        "[cracking] App. D.3.3",
        paper="the second for SP, and also for μP, though the text sets the two apart",
        ours=f"medians of W₁ and W₂ for D up to {SMALL}: {told(small)}; from {ALIKE} on: {told(large) or 'not measured'}",
        holds=all(second),
        partly=any(second),
        why="the first matrix begins with larger entries, and gradient flow keeps W₁W₁ᵀ − W₂ᵀW₂: it stays the larger one "
        "where it was",
    )


def claims_fig4(rows: Rows) -> list[Verdict]:
    """SP and μP."""
    part = rows.where(of="sharpness")
    wide = part.where(lambda row: row["inputs"] > 1, kind="best", norm="spectral")
    lead = {when: float(np.median(wide.where(when=when)["lead"])) for when in WHEN}
    return [
        *strongest(part, "spectral", "[cracking] Sec. 4.2, Fig. 4", "sharpness correlates most with the squared spectral norm"),
        verdict(
            "the lead of the spectral norm is largest in trained networks",
            "[cracking] Sec. 4.2",
            paper="most prominent in trained networks",
            ours=f"median lead {lead[START]:.2f} before, {lead[END]:.2f} after training",
            holds=lead[END] > lead[START],
            why="medians over points with D > 1",
        ),
        _driver_before(rows),
        _driver_after(rows),
        *trained_well(rows),
    ]


def trained_well(rows: Rows) -> list[Verdict]:
    """Whether the runs are what the text describes, and the sharpness what it should be."""
    runs = rows.where(kind="training")
    lost = int(runs["diverged"].sum())
    errors = [row[k] for row in runs for k in ("error_start", "error_end") if row.get(k) is not None]
    found = [
        verdict(
            "the training loss ends close to zero",
            "[cracking] App. D.1.3",
            paper="very close to zero",
            ours=f"per output: from {np.median(runs['loss_start']):.2g} to {np.median(runs['loss_end']):.2g} (medians over "
            f"{len(runs)} configurations; at worst {runs['loss_end'].max():.2g}); {lost} networks diverged, "
            f"{runs['finished'].mean():.0%} came to the smallest rate",
            holds=bool(runs["loss_end"].max() < 0.006 and not lost),
            partly=bool(np.median(runs["loss_end"]) < 0.006),
            why="agrees below 0.006 everywhere: noise of variance 0.01 leaves 0.005 of half a squared error",
        )
    ]
    if errors:
        found.append(
            verdict(
                "the sharpness is that of the networks",
                "ours",
                paper="dense eigenvalues",
                ours=f"within {max(errors):.0e} of the dense Hessian by autograd in {len(errors)} networks",
                holds=max(errors) < 1e-5,
                why="Lanczos to a residual of 1e-3; the error of an eigenvalue is of the order of its square",
            )
        )
    return found


def claims_fig14(rows: Rows) -> list[Verdict]:
    """NTP."""
    part = rows.where(of="sharpness")
    end = part.where(when=END, kind="single", norm="spectral")
    both = [min(abs(p["pearson"])) for _, p in end.by("inputs")]
    return [
        *strongest(part, "spectral", "[cracking] App. D.3.3, Fig. 14", "the spectral norm correlates most"),
        verdict(
            "after training the spectral norms of both matrices correlate well",
            "[cracking] App. D.3.3",
            paper="both correlate well under NTP",
            ours=f"the weaker of the two has {np.median(both):.2f} in the median, {min(both):.2f} to {max(both):.2f} over D",
            holds=min(both) > 0.5,
            partly=float(np.median(both)) > 0.3,
            why="well: over 0.5 at every D; partly if over 0.3 in the median",
        ),
        *trained_well(rows),
    ]


def claims_fig15(rows: Rows) -> list[Verdict]:
    """Alignments against norms, where neither matrix is larger."""
    start = rows.where(when=START, of="sharpness")
    large = start.where(lambda row: row["inputs"] >= ALIKE or row["weights"] == "ntp")
    found = []
    for s, name in SCHEMES.items():
        part = large.where(weights=s)
        if len(part):
            part = part.where(norm="spectral")
            found.append((name, median_of(part.where(kind="aligned")), median_of(part.where(kind="best"))))
    words = ", ".join(f"{name} {a:.2f} against {b:.2f}" for name, a, b in found)
    wins = [a > b for _, a, b in found]
    return [
        verdict(
            "where both matrices begin alike, the alignment correlates more than the norms",
            "[cracking] App. D.3.3, Fig. 15",
            paper="a larger correlation with the alignment",
            ours=f"medians of spectral alignment and best spectral norm: {words}",
            holds=bool(wins) and all(wins),
            partly=any(wins),
            why=f"NTP at all D, SP and μP from D = {ALIKE} on, before training; the text gives no numbers",
        ),
        *trained_well(rows),
    ]


def claims_fig16(rows: Rows) -> list[Verdict]:
    """ReLU networks."""
    part = rows.where(of="sharpness")
    first = part.where(kind="single", norm="spectral", matrix=1)
    inside = ((first["pearson"] >= 0.25) & (first["pearson"] <= 0.75)).sum()
    low, middle, high = np.quantile(first["pearson"], [0, 0.5, 1])
    return [
        *strongest(part, "frobenius", "[cracking] Sec. 4.2, Fig. 16", "in ReLU networks it is the Frobenius norm"),
        Verdict(
            "the spectral norm of the first matrix of a ReLU network keeps some correlation",
            "[cracking] Sec. 4.2",
            "between 0.25 and 0.75",
            f"{low:.2f} to {high:.2f}, median {middle:.2f}; inside at {inside} of {len(first)} points",
            Agreement.AGREES if inside >= 0.8 * len(first) else Agreement.PARTLY if middle >= 0.25 else Agreement.DISAGREES,
            "agrees if eight of ten points lie inside, partly if the median is at least 0.25",
        ),
        *trained_well(rows),
    ]


def claims_fig26(rows: Rows) -> list[Verdict]:
    """The trace."""
    part = rows.where(of="trace")
    best = part.where(kind="best")
    low = {n: float(np.median(best.where(norm=n)["pearson"])) for n in NORMS}
    return [
        *strongest(part, "frobenius", "[cracking] App. D.4, Fig. 26", "it is the squared Frobenius norm"),
        verdict(
            "all squared norms correlate strongly with the trace",
            "[cracking] App. D.4",
            paper="strongly",
            ours=f"medians of the best matrix: {', '.join(f'{n} {r:.2f}' for n, r in low.items())}",
            holds=min(low.values()) > 0.7,
            partly=min(low.values()) > 0.4,
            why="strongly: over 0.7; the text gives no numbers",
        ),
    ]
