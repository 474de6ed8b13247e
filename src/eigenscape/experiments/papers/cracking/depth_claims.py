"""What is said of matrices and knocked-out products of deep networks: [cracking] Sec. 4.2 and App. D.3.4."""

from collections.abc import Callable

import numpy as np

from ...machine import Row, Rows, Verdict
from ..judging import verdict
from .norm_claims import SCHEMES, WHEN, trained_well
from .norms import END


def of_depths(rows: Rows, kind: str, norm: str) -> Rows:
    """The correlations of a figure; of two layers, the product without the first matrix is the second."""

    def chosen(row: Row) -> bool:
        if row.get("of") != "sharpness" or row.get("norm") != norm:
            return False
        return row["kind"] == (kind if row["depth"] > 2 else "single")

    found = rows.where(chosen)
    if kind == "single":
        return found
    return Rows([row if row["depth"] > 2 else row | {"matrix": 3 - row["matrix"]} for row in found])


def _last(rows: Rows) -> Rows:
    return rows.where(lambda row: row["matrix"] == row["depth"])


def _winners(rows: Rows) -> tuple[int, int, int]:
    """At how many points the last product has the largest correlation; within two standard errors of it; of how many."""
    best = close = 0
    groups = rows.by("weights", "depth")
    for _, part in groups:
        top, last = part["pearson"].argmax(), _last(part)[0]
        best += part[int(top)]["matrix"] == last["matrix"]
        close += part["pearson"].max() - last["pearson"] <= 2 * np.hypot(part["error"][top], last["error"])
    return best, close, len(groups)


def products(source: str, when_words: str) -> Callable[[Rows], list[Verdict]]:
    """Judge the product of all matrices but the last."""

    def claims(rows: Rows) -> list[Verdict]:
        found = of_depths(rows, "product", "spectral")
        verdicts = []
        for when, words in WHEN.items():
            part = found.where(when=when)
            best, close, of = _winners(part)
            medians = {s: float(np.median(_last(part.where(weights=s))["pearson"])) for s in SCHEMES}
            verdicts.append(
                verdict(
                    f"the product of all but the last matrix correlates most {words}",
                    source,
                    paper=when_words,
                    ours=f"the largest of its network at {best} of {of} points, within two standard errors of it at {close}; "
                    f"medians {', '.join(f'{SCHEMES[s]} {r:.2f}' for s, r in medians.items())}",
                    holds=close == of and min(medians.values()) > 0.5,
                    partly=best > of / 2 or max(medians.values()) > 0.5,
                    why="agrees if the largest, within two standard errors, everywhere and over 0.5 in every median",
                )
            )
        single = of_depths(rows, "single", "spectral").where(lambda row: row["depth"] > 2, when=END)
        product = found.where(lambda row: row["depth"] > 2, when=END)
        one = float(np.median([p["pearson"].max() for _, p in single.by("weights", "depth")]))
        all_but = float(np.median([p["pearson"].max() for _, p in product.by("weights", "depth")]))
        verdicts.append(
            verdict(
                "products without a matrix correlate more than single matrices",
                "[cracking] Sec. 4.2",
                paper="of all quantities the product without the last is strongest, above all near convergence",
                ours=f"after training, deeper than two: {all_but:.2f} for the best product, {one:.2f} for the best matrix",
                holds=all_but > one,
                why="the best of each kind of network, then the median over parametrisations and depths",
            )
        )
        return [*verdicts, *trained_well(rows)]

    return claims


def persists(rows: Rows) -> list[Verdict]:
    """Judge ten inputs."""
    found = _last(of_depths(rows, "product", "spectral")).where(lambda row: row["depth"] > 2, when=END)
    medians = {s: float(np.median(found.where(weights=s)["pearson"])) for s in SCHEMES}
    return [
        *products("[cracking] Sec. 4.2, Fig. 18", "the effect partially persists for larger sizes")(rows)[:2],
        verdict(
            "for ten inputs it persists under μP",
            "[cracking] Sec. 4.2",
            paper="partially, under μP",
            ours=f"after training, medians over depths 3 and up: "
            f"{', '.join(f'{SCHEMES[s]} {r:.2f}' for s, r in medians.items())}",
            holds=medians["mup"] > 0.3 and medians["mup"] >= max(medians.values()),
            partly=medians["mup"] > 0.3,
            why="agrees if over 0.3 and no other parametrisation has more",
        ),
        *trained_well(rows),
    ]


def singles(source: str, norm: str) -> Callable[[Rows], list[Verdict]]:
    """Tell what single matrices show."""

    def claims(rows: Rows) -> list[Verdict]:
        found = of_depths(rows, "single", norm)
        deep = found.where(lambda row: row["depth"] > 2)
        ours = []
        for when, words in WHEN.items():
            part = deep.where(when=when)
            first, last = part.where(matrix=1), _last(part)
            inner = part.where(lambda row: 1 < row["matrix"] < row["depth"])
            ours.append(f"{words} " + ", ".join(f"{np.median(p['pearson']):.2f}" for p in (first, inner, last)))
        strongest = max(abs(deep["pearson"]))
        return [
            verdict(
                f"single matrices of deep networks: how far the {norm.capitalize()} norm goes with the sharpness",
                source,
                paper="shown without a claim in words",
                ours=f"medians of first, inner and last matrix, {'; '.join(ours)}; strongest {strongest:.2f}",
                holds=None,
                why="the numbers are in the figure alone, which the text does not give",
            ),
            *trained_well(rows),
        ]

    return claims
