"""A training run in pictures and as a page, from its rows alone."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .numbers import interval, number
from .page import Fact, Page, Section, Table
from .style import AMBER, BLUE, GREEN, GRID, MUTED, PURPLE, REFERENCE, VERMILLION, canvas, log_axis, styled

Rows = Sequence[Mapping[str, Any]]

TINTS = {
    "progressive sharpening": AMBER,
    "edge of stability": BLUE,
    "catapult": VERMILLION,
    "beyond the edge": VERMILLION,
    "divergence ahead": PURPLE,
    "diverged": PURPLE,
    "flattening": GREEN,
}

READING = {
    "run": "Loss above; below, the sharpness with its interval, against the edge of stability (dashed): above it, the "
    "optimizer's linearised step grows along the sharpest direction. The strip under the curves tells the phase.",
    "shares": "Share of the gradient's and of the update's squared length in the tracked top eigenvectors. Near 1, a step goes "
    "along the sharpest directions; at the edge of stability it then mostly goes back and forth.",
    "rates": "Learning rates: in use, the largest stable one by the sharpness, and the one at which scaling the last update "
    "would have left the loss unchanged, found by forward passes alone. The last can exceed the stable one only where updates "
    "avoid the sharpest direction.",
    "turning": "Angle between the top eigenvectors of successive records, in degrees. A jump means that another direction has "
    "become the sharpest.",
}


def column(rows: Rows, name: str) -> list[float]:
    """Numbers of one column; nan where a row has none."""
    return [float(v) if isinstance(v := row.get(name), int | float) else math.nan for row in rows]


def _has(rows: Rows, name: str) -> bool:
    return any(math.isfinite(v) for v in column(rows, name))


def _adaptive(rows: Rows) -> bool:
    """Whether the optimizer feels another sharpness than the Hessian's."""
    pairs = zip(column(rows, "sharpness"), column(rows, "effective_sharpness"))
    return any(abs(a - b) > 0.01 * abs(a) for a, b in pairs if math.isfinite(a) and math.isfinite(b))


@styled
def run_curves(rows: Rows, title: str = "") -> Figure:
    """Picture loss and sharpness along a run: the loss above, the sharpness against its threshold below."""
    fig = canvas(7.2, 4.8)
    above, below = fig.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1.35]})
    steps = column(rows, "step")
    above.plot(steps, column(rows, "loss"), color=VERMILLION)
    if min((v for v in column(rows, "loss") if math.isfinite(v)), default=0.0) > 0:
        log_axis(above, "y")
    above.set(ylabel="loss", title=title)
    adaptive = _adaptive(rows)
    prefix, name = ("effective", "preconditioned sharpness") if adaptive else ("sharpness", "sharpness")
    value = column(rows, "effective_sharpness" if adaptive else "sharpness")
    below.fill_between(
        steps, column(rows, f"{prefix}_low"), column(rows, f"{prefix}_high"), color=BLUE, alpha=0.25, linewidth=0
    )
    below.plot(steps, value, color=BLUE, marker="o", markersize=2.2, linewidth=1.0, label=name)
    threshold = column(rows, "threshold") if _has(rows, "threshold") else column(rows, "two_over_lr")
    below.plot(steps, threshold, color=REFERENCE, linestyle="--", linewidth=1.3, label=_edge(rows))
    if not adaptive and _has(rows, "ggn"):
        below.plot(steps, column(rows, "ggn"), color=GREEN, linewidth=1.0, label="Gauss-Newton")
    finite = [v for v in [*value, *threshold] if math.isfinite(v)]
    below.set_ylim(0, 1.15 * max(finite, default=1.0))
    below.set(xlabel="step", ylabel=f"{name}\n(largest λ)")
    _strip(below, rows)
    below.legend(loc="best")
    return fig


def _edge(rows: Rows) -> str:
    last = next((row for row in reversed(rows) if row.get("threshold")), None)
    if last is None:
        return "2 / learning rate"
    return "2 / learning rate" if abs(last["threshold"] * last["lr"] - 2) < 1e-9 else "edge of stability"


def _strip(ax: Axes, rows: Rows) -> None:
    """Colour the phases in a narrow band at the bottom."""
    steps, seen = column(rows, "step"), set()
    for i, row in enumerate(rows[1:], start=1):
        phase = row.get("phase")
        if phase not in TINTS:
            continue
        label = phase if phase not in seen else None
        seen.add(phase)
        ax.axvspan(steps[i - 1], steps[i], ymax=0.035, color=TINTS[phase], linewidth=0, label=label)


@styled
def lines(rows: Rows, names: Mapping[str, str], ylabel: str, *, log: bool = False, scale: float = 1.0) -> Figure:
    """Picture some columns over the steps, each under its label."""
    fig = canvas(7.2, 2.8)
    ax = fig.subplots()
    for colour, (name, label) in zip((BLUE, VERMILLION, REFERENCE, GREEN, MUTED), names.items()):
        ax.plot(column(rows, "step"), [scale * v for v in column(rows, name)], color=colour, linewidth=1.2, label=label)
    if log:
        log_axis(ax, "y")
    ax.set(xlabel="step", ylabel=ylabel)
    ax.grid(color=GRID)
    if len(names) > 1:
        ax.legend(loc="best")
    return fig


def run_page(rows: Rows, name: str, about: Mapping[str, Any] | None = None, phases: Mapping[str, str] | None = None) -> Page:
    """Lay out a run: what matters at its end, the pictures, the phases with their definitions, the records."""
    last = next((row for row in reversed(rows) if row.get("sharpness") is not None), None)
    if last is None:
        return Page(f"Training run {name}", "No record has a sharpness yet.")
    stable = [dict(row) | {"stable_lr": _stable(row)} for row in rows]
    sections = [Section("Loss and sharpness", figure=run_curves(rows), reading=READING["run"])]
    if _has(rows, "gradient_share"):
        shares = {"gradient_share": "of the gradient", "update_share": "of the update"}
        drawn = lines(rows, {k: v for k, v in shares.items() if _has(rows, k)}, "share in the top eigenvectors")
        sections.append(Section("How much happens in the sharpest directions", figure=drawn, reading=READING["shares"]))
    if _has(rows, "critical_lr"):
        rates = {"stable_lr": "largest stable", "critical_lr": "critical, by forward passes", "lr": "in use"}
        drawn = lines(stable, {k: v for k, v in rates.items() if _has(stable, k)}, "learning rate", log=True)
        sections.append(Section("Learning rates", figure=drawn, reading=READING["rates"]))
    if _has(rows, "angle"):
        drawn = lines(rows, {"angle": "angle"}, "angle (degrees)", scale=180 / math.pi)
        sections.append(Section("How the sharpest direction turns", figure=drawn, reading=READING["turning"]))
    sections.append(Section("Phases", table=_phase_table(rows, phases or {})))
    sections.append(Section("Records", table=_record_table(rows)))
    facts = [
        Fact("Loss", number(last["loss"]), "", f"at step {last['step']}"),
        Fact("Sharpness", number(last["sharpness"]), f"in {interval(last['sharpness_low'], last['sharpness_high'])}"),
        Fact("Phase", str(last.get("phase", "")), "", "at the last record"),
    ]
    if last.get("ratio") is not None:
        facts.insert(
            2, Fact("Of the threshold", f"{100 * last['ratio']:.3g} %", "", "above 100 %: unstable if the loss were a parabola")
        )
    chosen = (about or {}).get("chosen", "")
    return Page(
        f"Training run {name}", f"{len(rows)} records, steps {rows[0]['step']} to {rows[-1]['step']}. {chosen}", facts, sections
    )


def _stable(row: Mapping[str, Any]) -> float:
    ratio, lr = row.get("ratio"), row.get("lr")
    return lr / ratio if ratio and lr and ratio > 0 else math.nan


def _phase_table(rows: Rows, phases: Mapping[str, str]) -> Table:
    spans: list[list[Any]] = []
    for row in rows:
        if spans and spans[-1][0] == row.get("phase"):
            spans[-1][2] = row["step"]
        else:
            spans.append([row.get("phase"), row["step"], row["step"]])
    cells = [[str(name), f"{a} to {b}", phases.get(name, "")] for name, a, b in spans]
    return Table(("phase", "steps", "definition"), cells)


def _record_table(rows: Rows, most: int = 40) -> Table:
    shown = rows if len(rows) <= most else [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]
    names = ("step", "loss", "sharpness", "effective_sharpness", "threshold", "gradient_norm", "products")
    cells = [[number(v) if isinstance(v := row.get(n), int | float) else "" for n in names] for row in shown]
    heads = ("step", "loss", "sharpness", "felt by the optimizer", "threshold", "gradient norm", "products")
    return Table(heads, cells, numeric=tuple(range(len(names))))
