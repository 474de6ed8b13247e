"""Large initial weights: the sharpness falls before it rises."""

from matplotlib.figure import Figure as Drawing

from ....report.numbers import number
from ....report.style import INK, canvas, log_axis, styled
from ...machine import Experiment, Figure, Rows, Verdict
from ..judging import verdict
from .pictures import COLOURS
from .watched import Run, measure

SCALES = (1.0, 2.0, 3.0, 4.0)
FLAT = 0.75  # of its start, below which a sharpness counts as fallen


def cells(profile: str) -> list[Run]:
    """One draw of the weights at four sizes, trained well below the edge."""
    images, steps = {"smoke": (50, 40), "quick": (500, 200), "paper": (5000, 500)}[profile]
    return [Run("tanh", "descent", 0.3, steps, every=5, images=images, scale=scale) for scale in SCALES]


@styled
def draw(rows: Rows) -> Drawing:
    """Loss, sharpness and size of the parameters, over those of the start."""
    fig = canvas(9.6, 3.5)
    axes = fig.subplots(1, 3)
    names = {"loss": "loss / first", "sharpness": "sharpness / first", "norm": "|θ| / first"}
    for ax, (name, label) in zip(axes, names.items()):
        for colour, (scale, part) in zip(COLOURS, rows.by("scale")):
            ax.plot(part["step"], part[name] / part[name][0], color=colour, linewidth=1.3, label=f"weights × {scale:g}")
        if name != "loss":
            ax.axhline(1, color=INK, linewidth=0.8, linestyle=":")
        ax.set(xlabel="step", ylabel=label)
    log_axis(axes[0], "y")
    axes[1].legend(loc="best", fontsize=8)
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """Whether large weights flatten, and whether their size explains it."""
    runs = [(scale, part) for scale, part in rows.by("scale")]
    large = [part for scale, part in runs if scale > 1]
    fallen = [part["sharpness"][-1] < FLAT * part["sharpness"][0] for part in large]
    shrunk = [part["norm"][-1] < part["norm"][0] for part in large]
    return [
        verdict(
            "from large weights the sharpness falls in early training",
            "Kalra et al. 2025; [data] Sec. 3",
            paper="falls",
            ours="; ".join(_change(scale, part, "sharpness") for scale, part in runs),
            holds=all(fallen),
            partly=any(fallen),
            why=f"agrees if it ends below {FLAT:g} of its start for every factor above 1",
        ),
        verdict(
            "the sharpness falls because the norm of the parameters does",
            "[data] Sec. 3",
            paper="the norm falls",
            ours="; ".join(_change(scale, part, "norm") for scale, part in runs),
            holds=all(shrunk),
            partly=any(shrunk),
            why="agrees if the norm ends below its start for every factor above 1; whether it is the cause is not tested",
        ),
    ]


def _change(scale: float, rows: Rows, name: str) -> str:
    values = rows[name]
    return f"weights × {scale:g}: {number(values[0], 4)} to {number(values[-1], 4)} ({values[-1] / values[0]:.3f})"


FLATTENING = Figure(
    id="along-the-run/flattening",
    title="Early flattening from large weights",
    source="Kalra et al. 2025 and [data] Sec. 3, on MNIST",
    experiments=(Experiment("along-the-run/flattening", cells, measure),),
    draw=draw,
    claims=claims,
    reading="The same draw of the weights at four sizes, each trained at 0.3 of its largest stable rate. Everything is "
    "relative to its own start.",
)
