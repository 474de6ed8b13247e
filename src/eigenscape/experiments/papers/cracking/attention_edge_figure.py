"""Progressive sharpening and the edge of stability in self-attention, drawn and judged: [cracking] Fig. 27."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Drawing

from ....report.style import AMBER, BLUE, GREEN, GRID, INK, MUTED, PURPLE, VERMILLION, canvas, log_axis, styled
from ...machine import Figure, Rows, Verdict
from ..judging import verdict
from .attention_edge import BELOW, DIVERGES, EDGE, HOVERS, LR, OTHER, PATH, SEARCH

LOOKS = {
    EDGE: (GREEN, "edge of stability, loss falls"),
    HOVERS: (AMBER, "hovers at 2 / η, loss does not fall"),
    OTHER: (PURPLE, "other"),
    BELOW: (BLUE, "stays below 2 / η"),
    DIVERGES: (GRID, "diverges"),
}


@styled
def draw(table: Mapping[str, Rows]) -> Drawing:
    """Which inputs do what, and one that does what the paper shows."""
    path, rows = table[PATH.name], table[SEARCH.name].where(lr=LR, seed=2)
    fig = canvas(9.6, 5.8)
    grid = fig.add_gridspec(2, 3, width_ratios=[1.25, 1, 1])
    _map(fig.add_subplot(grid[:, 0]), rows, path)
    sharp, loss, norms, trace = (fig.add_subplot(grid[i, j]) for i, j in ((0, 1), (0, 2), (1, 2), (1, 1)))
    step = path["step"]
    sharp.plot(step, path["sharpness"], color=BLUE, label="closed form")
    sharp.plot(step[::8], path["measured"][::8], "o", color=INK, markersize=2.4, label="dense Hessian")
    sharp.axhline(2 / LR, color=MUTED, linestyle="--", linewidth=1.2)
    sharp.annotate("2 / η", (step[0], 2 / LR), (0, 4), textcoords="offset points", fontsize=8)
    sharp.set(title="Sharpness", ylim=(0, 1.25 * path["sharpness"].max()))
    sharp.legend(loc="lower right", fontsize=8)
    trace.plot(step, path["trace"], color=VERMILLION)
    trace.set(title="Trace", xlabel="step")
    loss.plot(step, path["loss"], color=VERMILLION, label="loss")
    loss.plot(step, path["residual"], color=PURPLE, label="|residual|")
    log_axis(loss, "y")
    loss.set_title("Loss and residual")
    loss.legend(loc="upper right", fontsize=8)
    for name, colour, label in (
        ("query", BLUE, "|w_Q|"),
        ("key", GREEN, "|w_K|"),
        ("m1", VERMILLION, "|m₁|"),
        ("m2", AMBER, "|m₂|"),
    ):
        norms.plot(step, path[name], color=colour, label=label)
    norms.plot(step, np.abs(path["value"]), color=PURPLE, label="|w_V|")
    norms.set(title="Weights and moments", xlabel="step")
    norms.legend(loc="lower right", fontsize=8, ncol=2)
    return fig


def _map(ax: Axes, rows: Rows, path: Rows) -> None:
    """Colour the whole square: the part that was searched, and its mirror images."""
    axis = np.unique(np.concatenate([rows["x1"], -rows["x1"]]).round(9))
    image = np.full((len(axis), len(axis)), np.nan)
    order = {outcome: i for i, outcome in enumerate(LOOKS)}
    for x1, x2, outcome in zip(rows["x1"], rows["x2"], rows["outcome"]):
        for a, b in ((x1, x2), (x2, x1), (-x1, -x2), (-x2, -x1)):
            image[np.searchsorted(axis, round(b, 9)), np.searchsorted(axis, round(a, 9))] = order[outcome]
    edge = axis[-1] + (axis[1] - axis[0]) / 2
    colours = ListedColormap([colour for colour, _ in LOOKS.values()])
    ax.imshow(image, extent=(-edge, edge, -edge, edge), origin="lower", cmap=colours, vmin=-0.5, vmax=len(LOOKS) - 0.5)
    for colour, label in LOOKS.values():
        ax.plot([], [], "s", color=colour, label=label)
    ax.plot(path["x1"][0], path["x2"][0], marker="*", markersize=13, color=INK, linestyle="none", label="shown on the right")
    ax.set(xlabel="x₁", ylabel="x₂", title="What becomes of each input", aspect="equal")
    ax.grid(visible=False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=8, ncol=2)


def claims(table: Mapping[str, Rows]) -> list[Verdict]:
    """The phenomena exist for some inputs; which one the paper had is unknown."""
    path, rows = table[PATH.name], table[SEARCH.name]
    at = rows.where(lr=LR)
    edge = at.where(outcome=EDGE)
    shares = {lr: np.mean(part["outcome"] == EDGE) for lr, part in rows.by("lr")}
    draws = [np.mean(part["outcome"] == EDGE) for _, part in at.by("seed")]
    example = f"x = ({path['x1'][0]:g}, {path['x2'][0]:g})"
    first = int(np.argmax(path["sharpness"] > 2 / LR))
    before, after = slice(0, first + 1), slice(first, None)
    grown = {name: path[name][first] / path[name][0] for name in ("trace", "query", "key", "m1", "m2")}
    rising = np.mean(np.diff(path["trace"][before]) > 0)
    opposed = np.corrcoef(np.diff(path["sharpness"][after]), np.diff(path["trace"][after]))[0, 1]
    many = edge["opposed"] if len(edge) else np.array([np.nan])
    error = float(abs(path["sharpness"] - path["measured"]).max() / path["measured"].max())
    return [
        verdict(
            "self-attention sharpens progressively and then trains at the edge of stability",
            "[cracking] App. D.2, D.5, Fig. 27",
            paper="η = 2.3, d_K = 2, weights of deviation 0.1, two tokens to be reversed; no input given",
            ours=f"{len(edge)} of {len(at)} inputs and initialisations at η = 2.3 ({min(draws):.1%} to {max(draws):.1%} by "
            f"initialisation) do so with a falling loss; {np.mean(at['outcome'] == DIVERGES):.0%} diverge",
            holds=None if not len(edge) else False,
            partly=True,
            why="inputs from -2 to 2; sharpness has to rise to 2/η from below 0.7 of it, cross it 4 times or more and stay "
            "within a quarter of it, the loss to halve there. It exists, for few inputs",
        ),
        verdict(
            "both are seen for a range of learning rates around 2.3",
            "[cracking] App. D.2",
            paper="a range, not given",
            ours=", ".join(f"η = {lr:g}: {share:.1%} of inputs" for lr, share in shares.items()),
            holds=all(share > 0 for share in shares.values()) if len(shares) > 1 else None,
            partly=True,
            why="agrees if some input does so at every learning rate tried; smoke tries one only",
        ),
        verdict(
            "progressive sharpening comes with a growing trace, and growing norms",
            "[cracking] App. D.5",
            paper="trace, weights and attention moments grow",
            ours=f"{example}: the trace grows in {rising:.0%} of the steps to the edge; up to there by factors of "
            + ", ".join(f"{value:.2g} ({name})" for name, value in grown.items()),
            holds=bool(
                rising > 0.9 and min(grown["query"], grown["key"], grown["trace"]) > 1 and min(grown["m1"], grown["m2"]) > 1
            ),
            partly=bool(grown["trace"] > 1 and grown["query"] > 1),
            why="agrees if all of them grow and the trace does in 90 % of the steps",
        ),
        verdict(
            "at the edge, sharpness and trace oscillate in opposite phases",
            "[cracking] App. D.5",
            paper="completely opposite",
            ours=f"correlation of their changes from step to step: {opposed:+.3f} for {example}; over all inputs at the edge "
            f"median {np.nanmedian(many) if len(edge) else np.nan:+.3f}, positive for {int((many > 0).sum())} of {len(edge)}",
            holds=bool(opposed < -0.9),
            partly=bool(opposed < 0) or bool((many < 0).any()),
            why="agrees below -0.9",
        ),
        verdict(
            "the closed form follows training",
            "ours",
            paper="-",
            ours=f"sharpness within {error:.0e} of the dense Hessian of a run by autograd, over {len(path)} steps",
            holds=error < 1e-6,
            why="rounding grows along the way, where descent is unstable",
        ),
    ]


FIGURE = Figure(
    "cracking/fig27",
    "Progressive sharpening and the edge of stability in self-attention",
    "[cracking] Fig. 27",
    [PATH, SEARCH],
    draw,
    claims,
    "Left: every input (x₁, x₂) of a grid, trained to reverse its two tokens with η = 2.3 from small weights. Right: one input "
    "at the edge. The text names no input.",
)
