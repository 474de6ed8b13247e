"""Gradient descent on real digits: the sharpness rises to 2 / learning rate, and hovers there."""

from matplotlib.figure import Figure as Drawing

from ....report.numbers import number
from ....report.style import canvas, styled
from ...machine import Experiment, Figure, Rows, Verdict
from ..judging import verdict
from .pictures import column
from .watched import Run, hovers, late, measure

NETWORKS = {"tanh": "MLP, tanh", "relu": "MLP, ReLU", "cnn": "CNN, tanh"}
RATES = (0.5, 0.7, 0.9)


def cells(profile: str) -> list[Run]:
    """Three networks at three rates."""
    images, steps = {"smoke": (50, 60), "quick": (500, 800), "paper": (5000, 3000)}[profile]
    return [Run(net, "descent", rate, steps, every=20, images=images) for net in NETWORKS for rate in RATES]


@styled
def draw(rows: Rows) -> Drawing:
    """Loss above, sharpness below, a column for each network."""
    fig = canvas(9.6, 5.0)
    axes = fig.subplots(2, len(NETWORKS), sharex=True, height_ratios=[1, 1.3])
    for i, (name, title) in enumerate(NETWORKS.items()):
        runs = {f"lr {number(part['lr'][0], 2)}": part for _, part in rows.where(network=name).by("rate")}
        column(axes[:, i], runs, title)
        axes[1, i].set_ylim(bottom=0)
        axes[1, i].legend(loc="best", fontsize=8)
    axes[0, 0].set(ylabel="loss")
    axes[1, 0].set(ylabel="sharpness; dashed: 2 / lr")
    return fig


def claims(rows: Rows) -> list[Verdict]:
    """One verdict for each network."""
    return [_claim(title, rows.where(network=name)) for name, title in NETWORKS.items()]


def _claim(title: str, rows: Rows) -> Verdict:
    runs = [part for _, part in rows.by("rate")]
    good = [hovers(part) for part in runs]
    told = "; ".join(
        f"lr {number(part['lr'][0], 3)}: from {part['ratio'][0]:.2f} to {late(part, 'ratio'):.2f}, loss from "
        f"{number(part['loss'][0], 3)} to {number(part['loss'][-1], 3)}"
        for part in runs
    )
    return verdict(
        f"{title}: at each of three rates the sharpness rises to 2 / lr and hovers there, while the loss falls",
        "Cohen et al. 2021, Sec. 3",
        paper="just above 2 / lr",
        ours=f"sharpness over 2 / lr, {told}",
        holds=all(good),
        partly=any(good),
        why="agrees if the median ratio over the last quarter of the records is between 0.9 and 1.2 at every rate",
    )


EDGE_FIGURE = Figure(
    id="along-the-run/edge",
    title="Full-batch gradient descent ends at the edge of stability",
    source="Cohen et al. 2021, on MNIST",
    experiments=(Experiment("along-the-run/edge", cells, measure),),
    draw=draw,
    claims=claims,
    reading="Learning rates are 0.5, 0.7 and 0.9 of the largest stable one at the start. Dashed lines: 2 / learning rate, "
    "each in its run's colour.",
)
