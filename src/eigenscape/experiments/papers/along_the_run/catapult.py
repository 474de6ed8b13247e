"""Above 2 / sharpness at the start: the loss rises, the sharpness falls, and training goes on in a flatter place."""

import numpy as np
from matplotlib.figure import Figure as Drawing

from ....dynamics.phases import EDGE, SPIKE
from ....report.numbers import number
from ....report.style import INK, canvas, styled
from ...machine import Experiment, Figure, Rows, Verdict
from ..judging import verdict
from .pictures import column
from .watched import Run, measure

RATES = (0.8, 1.2, 1.5, 1.8, 2.5)  # in units of 2 / sharpness at the start


def cells(profile: str) -> list[Run]:
    """Rates on both sides of 2 / sharpness, and one above 4 / sharpness."""
    images, steps = {"smoke": (20, 12), "quick": (100, 50), "paper": (1000, 100)}[profile]
    return [Run("wide", "descent", rate, steps, every=1, images=images) for rate in RATES]


@styled
def draw(rows: Rows) -> Drawing:
    """Loss and sharpness over the first steps, in units of 2 / lr at the start."""
    fig = canvas(6.4, 5.4)
    axes = fig.subplots(2, 1, sharex=True, height_ratios=[1, 1.2])
    runs = {f"{rate:g} × 2 / sharpness": part for rate, part in rows.by("rate")}
    column(axes, runs, "", edge="two_over_lr")
    first = rows["sharpness"][0]
    axes[0].axhline(rows["loss"][0], color=INK, linewidth=0.8, linestyle=":")
    axes[0].set(ylabel="loss", ylim=(0.5 * float(np.nanmin(rows["loss"])), 100 * rows["loss"][0]))
    axes[1].set(ylabel="sharpness; dashed: 2 / lr", ylim=(0, 1.6 * first))
    axes[1].legend(loc="upper right", fontsize=8, ncols=2)
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """What happens below, between and above."""
    runs = dict(rows.by("rate"))
    between = {rate: part for rate, part in runs.items() if 1 < rate < 2}
    thrown = {rate: _catapulted(part) for rate, part in between.items()}
    calm, wild = runs[RATES[0]], runs[RATES[-1]]
    return [
        verdict(
            "between 2 / sharpness and 4 / sharpness the loss rises, the sharpness falls, and training goes on",
            "Lewkowycz et al. 2020",
            paper="a catapult",
            ours="; ".join(
                f"{rate:g}: loss rises {_rise(p):.2f}-fold and ends at {number(p['loss'][-1], 3)}, sharpness from "
                f"{number(p['sharpness'][0], 3)} to {number(p['sharpness'][-1], 3)} with 2 / lr = "
                f"{number(p['two_over_lr'][0], 3)}, told: {_told(p)}"
                for rate, p in between.items()
            ),
            holds=all(thrown.values()),
            partly=any(thrown.values()),
            why=f"agrees if at every such rate the loss rises to {SPIKE:g} times an earlier value and ends below its start, "
            f"and the sharpness ends below its start and below {EDGE[1]:g} times 2 / lr",
        ),
        verdict(
            "below 2 / sharpness the loss falls all the time",
            "Lewkowycz et al. 2020",
            paper="monotonous",
            ours=f"{RATES[0]:g}: largest rise {_rise(calm):.3f}-fold",
            holds=_rise(calm) < 1.01,
            why="agrees if no loss is 1 % above an earlier one",
        ),
        verdict(
            "above 4 / sharpness training diverges",
            "Lewkowycz et al. 2020",
            paper="diverges, in wide networks without biases; with ReLU later",
            ours=f"{RATES[-1]:g}: loss {number(wild['loss'][-1], 3)} after {int(wild['step'][-1])} steps, told: {_told(wild)}",
            holds=bool(wild["loss"][-1] > 100 * wild["loss"][0]),
            why="agrees if the loss ends a hundred times above its start",
        ),
    ]


def _rise(rows: Rows) -> float:
    """Largest quotient of a loss and the lowest one before it."""
    return float(np.max(rows["loss"] / np.minimum.accumulate(rows["loss"])))


def _catapulted(rows: Rows) -> bool:
    first, last = rows[0], rows[-1]
    calmer = last["sharpness"] < min(first["sharpness"], EDGE[1] * last["two_over_lr"])
    return bool(_rise(rows) > SPIKE and last["loss"] < first["loss"] and calmer)


def _told(rows: Rows) -> str:
    """The phases that the monitor told, each once, in their order."""
    return ", ".join(dict.fromkeys(p for p in rows["phase"] if p != "warming up"))


CATAPULT = Figure(
    id="along-the-run/catapult",
    title="The catapult",
    source="Lewkowycz et al. 2020, on MNIST",
    experiments=(Experiment("along-the-run/catapult", cells, measure),),
    draw=draw,
    claims=claims,
    reading="One start, five learning rates, in units of 2 / sharpness at the start. The dotted line is the loss at the start.",
)
