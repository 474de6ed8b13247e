"""Pictures of a training run."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from .style import BLUE, REFERENCE, VERMILLION, canvas, log_axis, styled


@styled
def training_curve(
    steps: Sequence[int],
    losses: Sequence[float],
    sharpness_steps: Sequence[int],
    sharpness: Sequence[float],
    learning_rate: float,
) -> Figure:
    """Picture the loss above, and the sharpness against 2 / learning rate below, over the same steps."""
    fig = canvas(7.2, 4.6)
    above, below = fig.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [1, 1.25]})
    above.plot(steps, losses, color=VERMILLION)
    log_axis(above, "y")
    above.set(ylabel="training loss")
    below.plot(sharpness_steps, sharpness, color=BLUE, marker="o", markersize=2.6, linewidth=1.1, label="sharpness, measured")
    below.axhline(
        2 / learning_rate, color=REFERENCE, linestyle="--", linewidth=1.3, label=f"2 / learning rate = {2 / learning_rate:.4g}"
    )
    below.set(xlabel="gradient-descent step", ylabel="sharpness (largest λ)")
    below.set_xlim(min(steps), max(steps))
    below.set_ylim(0, 1.2 * max([*sharpness, 2 / learning_rate]))
    below.legend(loc="lower right")
    return fig
