"""The spectrum of the scalar linear network at initialisation as the inputs grow: [cracking] Fig. 7."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from matplotlib.figure import Figure as Drawing

from ....report.style import BLUE, GREEN, INK, VERMILLION, canvas, styled
from ....theory import scalar_linear
from ...machine import Agreement, Experiment, Figure, Row, Rows, Verdict
from .brute import hessian_eigenvalues
from .samples import normal, uniform

NOISE, TAUGHT = "independent", "taught"  # targets that know nothing of the inputs, and the same targets y = 5 x / sigma for all
COLOURS = {"large outlier": VERMILLION, "bulk": BLUE, "small outlier": GREEN}


@dataclass(frozen=True)
class Scale:
    """Inputs of one variance; everything else is the same for all variances."""

    variance: float
    targets: str
    seed: int = 0
    width: int = 10
    samples: int = 100_000


def cells(profile: str) -> list[Scale]:
    """Variances up to 20, and both kinds of targets."""
    count, samples = {"smoke": (5, 20_000), "quick": (20, 100_000), "paper": (40, 100_000)}[profile]
    return [Scale(20 * (i + 1) / count, t, samples=samples) for i, t in product(range(count), (NOISE, TAUGHT))]


def measure(cell: Scale, device: torch.device) -> list[Row]:
    """One row per eigenvalue, ascending, with the dense Hessian's of the same rank."""
    fixed = Scale(1.0, "", cell.seed, cell.width, cell.samples)  # the same draw for all variances and targets
    m = cell.width
    z, noise = normal(fixed, "inputs", cell.samples, device=device), normal(fixed, "targets", cell.samples, device=device)
    v, w = uniform(fixed, "v", m, device=device), uniform(fixed, "w", m, device=device) / m**0.5
    x, y = cell.variance**0.5 * z, noise if cell.targets == NOISE else 5 * z

    def loss(t: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((t[:m] @ t[m:]) * x - y).square().mean()

    exact, dense = scalar_linear(w, v, x, y), hessian_eigenvalues(loss, torch.cat([v, w]))
    roles = ("large outlier", "small outlier", "bulk", "bulk")
    order = sorted(
        (float(value), role) for value, count, role in zip(exact.values, exact.multiplicities, roles) for _ in range(int(count))
    )
    return [
        {"rank": i, "value": value, "role": role, "dense": float(d)} for i, ((value, role), d) in enumerate(zip(order, dense))
    ]


EXPERIMENT = Experiment("cracking/data-scale", cells, measure)


@styled
def draw(rows: Rows) -> Drawing:
    """The whole spectrum for some variances, and each eigenvalue against the variance."""
    fig = canvas(8.4, 3.6)
    left, middle, right = fig.subplots(1, 3, width_ratios=[1.2, 1, 1])
    apart = rows.where(targets=NOISE)
    groups = apart.by("variance")
    for i in np.linspace(0, len(groups) - 1, min(4, len(groups))).round().astype(int):
        variance, part = groups[i]
        left.plot(part["rank"] + 1, part["value"], color=INK, linewidth=0.8, alpha=0.25 + 0.75 * variance / 20, zorder=1)
        for role, colour in COLOURS.items():
            p = part.where(role=role)
            left.scatter(p["rank"] + 1, p["value"], s=16, color=colour, alpha=0.35 + 0.65 * variance / 20, zorder=2)
        left.annotate(
            f"σ² = {variance:g}",
            (part["rank"][-1] + 1, part["value"][-1]),
            (-8, -3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
    left.set(xlabel="rank, from the most negative", ylabel="eigenvalue λ", title="Whole spectrum")
    for ax, targets, title in ((middle, NOISE, "Targets: noise"), (right, TAUGHT, "Targets: 5 x / σ")):
        for role, colour in COLOURS.items():
            part = rows.where(targets=targets, role=role)
            part = part if role != "bulk" else part.where(lambda row: row["value"] >= 0)
            curve = [(variance, p["value"][0], p["dense"][0]) for variance, p in part.by("variance")]
            s2, exact, dense = np.array(curve).T
            ax.plot(s2, exact, color=colour, label=role if role != "bulk" else "bulk, positive half")
            ax.scatter(s2, dense, s=22, facecolors="none", edgecolors=colour, linewidths=1)
            top = exact[-1] / s2[-1]
            ax.plot(s2, top * s2, color=INK, linestyle=":", linewidth=1)
        ax.axhline(0, color=INK, linewidth=0.6)
        ax.set(xlabel="input variance σ²", title=title)
    middle.legend(loc="upper left")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """Eigenvalues are proportional to the variance where targets do not know the inputs, and are not where they do."""
    error = float((abs(rows["value"] - rows["dense"])).max() / abs(rows["dense"]).max())
    apart, taught = (_departure(rows.where(targets=t)) for t in (NOISE, TAUGHT))
    return [
        Verdict(
            "eigenvalues grow in proportion to the input variance",
            "[cracking] Sec. 3.1, Fig. 7",
            "proportional",
            f"λ / σ² of the large outlier varies by {apart:.1%} for targets of pure noise, by {taught:.0%} for targets 5 x / σ",
            Agreement.PARTLY if apart < 0.05 < taught else Agreement.AGREES if taught <= 0.05 else Agreement.DISAGREES,
            "agrees below 5 %: exact if the targets scale with the inputs or mean yx is 0, as in the "
            "paper's experiment, and not otherwise",
        ),
        Verdict(
            "the spectrum is two outliers and a bulk of two values",
            "[cracking] Theorem 3.1",
            "±δx, m - 1 times each, and eq. 1",
            f"largest difference to the dense Hessian: {error:.1e} of the largest eigenvalue",
            Agreement.AGREES if error < 1e-10 else Agreement.DISAGREES,
            "agrees below 1e-10",
        ),
    ]


def _departure(rows: Rows) -> float:
    part = rows.where(role="large outlier")
    ratio = part["dense"] / part["variance"]
    return float(ratio.max() / ratio.min() - 1)


FIGURE = Figure(
    "cracking/fig7",
    "The spectrum of the scalar linear network against the scale of its inputs",
    "[cracking] Fig. 7",
    [EXPERIMENT],
    draw,
    claims,
    "Left: all eigenvalues in order, for a few input variances. Middle and right: the outliers and the bulk against the "
    "variance; lines are the closed form, rings the dense Hessian, dotted lines are proportional to the variance. The width "
    "is not given in the text; here it is 10.",
)
