"""Momentum and Adam have edges of their own: 2 (1 + beta) / lr, and (2 + 2 beta1) / ((1 - beta1) lr) after preconditioning."""

from matplotlib.figure import Figure as Drawing

from ....report.numbers import number
from ....report.style import canvas, log_axis, styled
from ...machine import Experiment, Figure, Rows, Verdict
from ..judging import verdict
from .pictures import column
from .watched import MOMENTUM, Run, hovers, late, measure

RATES = {"momentum": (0.7, 0.8, 0.95), "Adam": (0.005, 0.01, 0.02)}
SHOWN = {"momentum": "sharpness", "Adam": "effective_sharpness"}


def cells(profile: str) -> list[Run]:
    """Three rates for each optimiser."""
    images, steps = {"smoke": (50, 60), "quick": (500, 800), "paper": (5000, 3000)}[profile]
    return [Run("tanh", o, rate, steps, every=20, images=images) for o, rates in RATES.items() for rate in rates]


@styled
def draw(rows: Rows) -> Drawing:
    """Loss above, the sharpness that the optimiser feels below, a column for each optimiser."""
    fig = canvas(9.0, 5.0)
    axes = fig.subplots(2, 2, sharex=True, height_ratios=[1, 1.3])
    for i, (name, value) in enumerate(SHOWN.items()):
        runs = {f"lr {number(part['lr'][0], 2)}": part for _, part in rows.where(optimiser=name).by("rate")}
        column(axes[:, i], runs, f"{name} {MOMENTUM:g}" if name == "momentum" else name, value=value)
        axes[1, i].legend(loc="lower right", fontsize=8)
    axes[1, 0].set_ylim(bottom=0)
    log_axis(axes[1, 1], "y")
    axes[0, 0].set(ylabel="loss")
    axes[1, 0].set(ylabel="sharpness\ndashed: 2 (1 + β) / lr")
    axes[1, 1].set(ylabel="preconditioned sharpness\ndashed: 38 / lr")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """Both optimisers stand at their own threshold, and not at 2 / lr."""
    heavy, adam = ([part for _, part in rows.where(optimiser=o).by("rate")] for o in SHOWN)
    return [
        verdict(
            "with momentum 0.9 the sharpness hovers at 2 (1 + 0.9) / lr",
            "Cohen et al. 2021, Sec. 3",
            paper="2 (1 + β) / lr, not 2 / lr",
            ours="of the first and of the second: "
            + "; ".join(
                f"lr {number(p['lr'][0], 3)}: {late(p, 'ratio'):.2f} and {(1 + MOMENTUM) * late(p, 'ratio'):.2f}" for p in heavy
            ),
            holds=all(map(hovers, heavy)),
            partly=any(map(hovers, heavy)),
            why="agrees if the median ratio over the last quarter is between 0.9 and 1.2 at every rate",
        ),
        verdict(
            "Adam's preconditioned sharpness hovers at (2 + 2 beta1) / ((1 - beta1) lr) = 38 / lr",
            "Cohen et al. 2022, Sec. 3",
            paper="38 / lr",
            ours="; ".join(
                f"lr {number(p['lr'][0], 3)}: {late(p, 'ratio'):.2f} of it, and the plain sharpness "
                f"{late(p, 'sharpness') / late(p, 'two_over_lr'):.2g} of 2 / lr"
                for p in adam
            ),
            holds=all(map(hovers, adam)),
            partly=any(map(hovers, adam)),
            why="agrees if the median ratio over the last quarter is between 0.9 and 1.2 at every rate",
        ),
    ]


THRESHOLDS = Figure(
    id="along-the-run/thresholds",
    title="Momentum and Adam have edges of their own",
    source="Cohen et al. 2021 and 2022, on MNIST",
    experiments=(Experiment("along-the-run/thresholds", cells, measure),),
    draw=draw,
    claims=claims,
    reading="Left: with momentum the sharpness passes 2 / lr unharmed and stops at 1.9 times that. Right: for Adam it is the "
    "sharpness between two square roots of its preconditioner that stops, at 38 / lr.",
)
