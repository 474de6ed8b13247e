"""Phases of learning of the scalar linear network, by the sign of its small outlier: [cracking] App. C."""

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure as Drawing

from ....report.style import AMBER, BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, canvas, styled
from ....theory import Phase, ScalarNet, scalar_linear
from ...machine import Agreement, Experiment, Figure, Row, Rows, Verdict
from .brute import hessian_eigenvalues
from .samples import normal, uniform

NAMES = {Phase.EARLY: "early", Phase.LATE: "late", Phase.DIVERGENT: "divergent"}
COLOURS = {"early": AMBER, "late": GREEN, "divergent": PURPLE}


@dataclass(frozen=True)
class Nets:
    """Random networks whose `<w, v>` is spread around the target of their data."""

    sign: int
    seed: int = 0
    networks: int = 400
    width: int = 5
    samples: int = 20


def cells(profile: str) -> list[Nets]:
    """Positive and negative targets."""
    return [Nets(sign, networks={"smoke": 200, "quick": 2000, "paper": 20_000}[profile]) for sign in (1, -1)]


def measure(cell: Nets, device: torch.device) -> list[Row]:
    """One row per network: where c stands, its outliers over the trace, and the signs in its dense Hessian."""
    shape = (cell.networks, cell.samples)
    x = normal(cell, "inputs", *shape, device=device)
    target = cell.sign * (0.2 + uniform(cell, "target", cell.networks, 1, device=device).abs())
    y = target * x + 0.1 * normal(cell, "noise", *shape, device=device)
    reach = 2.5 * uniform(cell, "reach", cell.networks, 1, device=device) + 0.5  # c over the target, from -2 to 3
    v, across = (normal(cell, name, cell.networks, cell.width, device=device) for name in ("v", "across"))
    theta = (y * x).mean(-1, keepdim=True) / x.square().mean(-1, keepdim=True)
    size = v.square().sum(-1, keepdim=True)
    w = reach * theta * v / size + 0.3 * (across - (across * v).sum(-1, keepdim=True) * v / size)
    net, values = ScalarNet.of(w, v, x, y), scalar_linear(w, v, x, y).values
    dense = hessian_eigenvalues(_loss, torch.cat([v, w], -1), x, y)
    return [
        {
            "reach": float(net.c[i] / theta[i]),
            "c": float(net.c[i]),
            "target": float(theta[i]),
            "phase": NAMES[Phase(int(net.phase[i]))],
            "large": float(values[i, 0] / net.trace[i]),
            "small": float(values[i, 1] / net.trace[i]),
            "negatives": int((dense[i] < -1e-12 * dense[i, -1]).sum()),
            "dense_large": float(dense[i, -1] / net.trace[i]),
        }
        for i in range(cell.networks)
    ]


def _loss(t: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    v, w = t.chunk(2)
    return 0.5 * ((v @ w) * x - y).square().mean()


EXPERIMENT = Experiment("cracking/phases", cells, measure)


def printed(row: Row) -> str:
    """The phase as the text has it: c against the target itself."""
    return "early" if row["c"] <= row["target"] / 3 else "late" if row["c"] <= row["target"] else "divergent"


@styled
def draw(rows: Rows) -> Drawing:
    """Both outliers over the trace, against where c stands; the bands are the phases."""
    fig = canvas(7.6, 3.8)
    for ax, sign, title in zip(fig.subplots(1, 2, sharey=True), (1, -1), ("Target θ* > 0", "Target θ* < 0")):
        part = rows.where(sign=sign)
        part = Rows([part[i] for i in range(0, len(part), max(1, len(part) // 400))])
        for low, high, name in ((-3, 1 / 3, "early"), (1 / 3, 1, "late"), (1, 4, "divergent")):
            ax.axvspan(low, high, color=COLOURS[name], alpha=0.12, linewidth=0)
        ax.scatter(part["reach"], part["large"], s=7, alpha=0.7, color=VERMILLION, label="λ₁ / tr H")
        ax.scatter(part["reach"], part["small"], s=7, alpha=0.7, color=BLUE, label="λ₂ / tr H")
        wrong = part.where(lambda row: (printed(row) == "late") != (row["small"] >= 0))
        if len(wrong):
            ax.scatter(
                wrong["reach"], wrong["small"], s=40, facecolors="none", edgecolors=INK, linewidths=0.8, label="text: λ₂ ≤ 0"
            )
        for level in (0, 1):
            ax.axhline(level, color=MUTED, linewidth=0.8)
        ax.set(xlim=(-2, 3), ylim=(-0.75, 1.75), xlabel="c / θ*,  c = ⟨w, v⟩", title=title)
        for at, name in ((-0.85, "early"), (0.667, "late"), (2, "divergent")):
            ax.text(at, 1.66, name, ha="center", va="center", fontsize=9, color=COLOURS[name])
    fig.axes[0].set_ylabel("outlier over trace")
    fig.axes[1].legend(loc="lower right", fontsize=8)
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """The rule with c / target holds for every sign; with c alone, for positive targets."""
    found = {sign: _tally(rows.where(sign=sign)) for sign in (1, -1)}
    total = len(rows)
    ours = sum(right for _, right, _ in found.values())
    text = ", ".join(f"{_n - p} of {_n} fail for θ* {'>' if sign > 0 else '<'} 0" for sign, (p, _, _n) in found.items())
    return [
        Verdict(
            "late phase: θ*/3 <= c <= θ* exactly where the small outlier is not negative",
            "[cracking] App. C",
            "for every θ*",
            text,
            Agreement.PARTLY if found[1][0] == found[1][2] and found[-1][0] < found[-1][2] else Agreement.AGREES,
            "the sign of λ₂ is read off the number of negative eigenvalues of the dense Hessian",
        ),
        Verdict(
            "late phase: 1/3 <= c/θ* <= 1 exactly where the small outlier is not negative and λ₁ <= tr H",
            "ours",
            "the text's rule, divided by θ*",
            f"{ours} of {total} networks",
            Agreement.AGREES if ours == total else Agreement.DISAGREES,
            "agrees if without exception",
        ),
    ]


def _tally(rows: Rows) -> tuple[int, int, int]:
    """How many networks the printed and our rule put into the right phase, late or not; and how many there are."""
    late = [row["negatives"] == row["width"] - 1 and row["dense_large"] <= 1 + 1e-9 for row in rows]
    not_late = [row["negatives"] == row["width"] and row["dense_large"] >= 1 - 1e-9 for row in rows]
    printed_right = sum(b if printed(row) != "late" else a for row, a, b in zip(rows, late, not_late))
    ours_right = sum(b if row["phase"] != "late" else a for row, a, b in zip(rows, late, not_late))
    return printed_right, ours_right, len(rows)


FIGURE = Figure(
    "cracking/phases",
    "Three phases of learning, by the sign of the small outlier",
    "[cracking] App. C",
    [EXPERIMENT],
    draw,
    claims,
    "Each network is two dots: its outliers over the trace. In the late phase, and there only, the small outlier is not "
    "negative and the large one does not exceed the trace. The text compares c with θ* itself, so that no network with a "
    "negative target is ever in the late phase: it is wrong about the ringed ones.",
)
