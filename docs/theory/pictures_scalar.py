"""Draw the pictures of the pages on scalar networks: closed forms as lines and bars, measurements as dots.

Run `python docs/theory/pictures_scalar.py`; it writes `docs/theory/img/*.svg`. Every dot comes from a Hessian taken by
automatic differentiation, every line from a formula.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

import eigenscape as es
from eigenscape.report.style import AMBER, BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, canvas, png, styled, svg

COLOURS = {"outlier": VERMILLION, "bulk": BLUE, "zero": MUTED}


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def measured(loss, theta: Tensor) -> Tensor:
    """All eigenvalues of the Hessian of a loss, by autograd and a dense solver."""
    return torch.linalg.eigvalsh(torch.func.jacrev(torch.func.jacrev(loss))(theta))


def labels_of(spectrum: es.Spectrum) -> list[str]:
    """The label of each eigenvalue of `expand()`."""
    repeated = [label for label, times in zip(spectrum.labels, spectrum.multiplicities.tolist()) for _ in range(times)]
    order = spectrum.values.repeat_interleave(spectrum.multiplicities).argsort(stable=True)
    return [repeated[i] for i in order.tolist()]


def draw_spectrum(ax: Axes, spectrum: es.Spectrum, dense: Tensor, title: str) -> None:
    """Bars from the formula, coloured by label; dots from the Hessian, by rank."""
    exact, names = spectrum.expand(), labels_of(spectrum)
    assert (exact - dense).abs().max() < 1e-10 * dense.abs().max()
    for label, colour in COLOURS.items():
        ranks = [i for i, name in enumerate(names) if name == label]
        if ranks:
            ax.bar([r + 1 for r in ranks], exact[ranks].tolist(), color=colour, width=0.72, label=label, alpha=0.75)
            if label == "zero":
                ax.plot([r + 1 for r in ranks], [0] * len(ranks), "_", color=colour, ms=6)
    ax.plot(range(1, len(dense) + 1), dense.tolist(), "o", color=INK, ms=3.2, label="measured")
    ax.axhline(0, color=MUTED, lw=0.6)
    ax.grid(axis="x", visible=False)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set(xlabel="rank", title=title)


def two_panels(width: float = 7.2, height: float = 3.2) -> tuple[Figure, Axes, Axes]:
    fig = canvas(width, height)
    left, right = fig.subplots(1, 2)
    return fig, left, right


@styled
def scalar_linear() -> Figure:
    """The whole spectrum at one point, and the five values along a line from 0 beyond the target."""
    m, x, y = 8, randn(1, 30), randn(2, 30)
    w, v = randn(3, m), randn(4, m)
    y = 1.5 * x + 0.3 * y

    def loss(t):
        return 0.5 * ((t[:m] @ t[m:]) * x - y).square().mean()

    fig, left, right = two_panels()
    draw_spectrum(left, es.theory.scalar_linear(w, v, x, y), measured(loss, torch.cat([v, w])), "One point, width 8")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    target = float((x * y).mean() / x.square().mean())
    way = torch.linspace(-0.4, 1.5, 191, dtype=torch.float64)  # c / target
    u = w / w.norm()
    scale = (way * target).abs().sqrt().unsqueeze(-1)
    path_w, path_v = scale * u * way.sign().unsqueeze(-1) + 0.4 * _across(u, v), scale * u
    s = es.theory.scalar_linear(path_w, path_v, x, y)
    for i, colour, name in (
        (0, VERMILLION, "large outlier"),
        (1, AMBER, "small outlier"),
        (2, BLUE, "+δx"),
        (3, PURPLE, "−δx"),
    ):
        right.plot(way, s.values[:, i], color=colour, label=name)
    for i in range(0, 191, 19):
        dense = measured(loss, torch.cat([path_v[i], path_w[i]]))
        right.plot([float(way[i])] * 4, [float(d) for d in dense[[0, 1, -2, -1]]], "o", color=INK, ms=2.6)
    right.axvspan(1 / 3, 1, color=GREEN, alpha=0.1, lw=0)
    right.text(2 / 3, 0.03, "late phase", ha="center", color=GREEN, transform=right.get_xaxis_transform(), fontsize=8.5)
    right.set(xlabel="⟨w, v⟩ / target", title="On the way to the target")
    right.legend(loc="upper left", fontsize=8)
    return fig


def _across(u: Tensor, v: Tensor) -> Tensor:
    """Unit vector orthogonal to u."""
    z = v - (v @ u) * u
    return z / z.norm()


@styled
def scalar_relu() -> Figure:
    """A network with neurons in both cells and two dead ones, and how the cells add up to it."""
    m, x, y = 10, randn(5, 40), randn(6, 40)
    w, v = randn(7, m), randn(8, m)
    v[:6], v[6:8], v[8:] = v[:6].abs(), -v[6:8].abs(), 0
    y = 6 * torch.relu(x) - 3 * torch.relu(-x) + 0.2 * y

    def loss(t):
        return 0.5 * (torch.relu(x[:, None] * t[:m]) @ t[m:] - y).square().mean()

    spectrum = es.theory.scalar_relu(w, v, x, y)
    fig, left, right = two_panels()
    draw_spectrum(left, spectrum, measured(loss, torch.cat([v, w])), "Six, two and two dead neurons")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    rows = (("v > 0", spectrum.values[[0, 1, 4, 5]]), ("v < 0", spectrum.values[[2, 3, 6, 7]]))
    for height, (_, values) in enumerate(rows):
        large, small, plus, minus = values.tolist()
        right.plot([large, small], [height] * 2, "o", color=VERMILLION, ms=6)
        right.plot([plus, minus], [height] * 2, "|", color=BLUE, ms=14, mew=2)
    dense = measured(loss, torch.cat([v, w]))
    right.plot(dense.tolist(), [-1] * len(dense), "o", color=INK, ms=3.2)
    right.set_yticks([-1, 0, 1], ["measured", *(name for name, _ in rows)])
    right.set(xlabel="eigenvalue", ylim=(-1.6, 1.6), title="Two cells that share nothing")
    right.grid(axis="y", visible=False)
    return fig


@styled
def scalar_bias() -> Figure:
    """A generic point, and one where the outliers are radicals: a pair around tr/4 and a triple around tr/6."""
    m, x, y = 7, randn(9, 30), randn(10, 30)
    w, v, b = randn(11, m), randn(12, m), randn(13, m)

    def loss(t, x, y):
        w, v, b = t.chunk(3)
        return 0.5 * ((w @ v) * x + w @ b - y).square().mean()

    fig, left, right = two_panels()
    theta = torch.cat([w, v, b])
    draw_spectrum(
        left, es.theory.scalar_linear_bias(w, v, b, x, y), measured(lambda t: loss(t, x, y), theta), "Any point, any data"
    )
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    x = x - x.mean()
    x = x / x.square().mean().sqrt()
    v, b = (torch.linalg.qr(torch.stack([v, b], -1)).Q * 1.4).unbind(-1)
    basis = torch.stack([x, torch.ones_like(x)], -1)
    y = y - basis @ torch.linalg.lstsq(basis, y.unsqueeze(-1)).solution.squeeze(-1) + 2 * ((w @ v) * x + w @ b)
    radicals = es.theory.scalar_linear_bias_radicals(w, v, b, x, y)
    dense = measured(lambda t: loss(t, x, y), torch.cat([w, v, b]))
    draw_spectrum(right, radicals.spectrum, dense, "Where there are radicals")
    trace = float(radicals.spectrum.trace)
    for part, name in ((4, "tr / 4"), (6, "tr / 6")):
        right.axhline(trace / part, color=GREEN, lw=0.9, ls="--")
        right.text(0.5, trace / part, name, color=GREEN, va="bottom", fontsize=8.5)
    return fig


@styled
def block_diagonal() -> Figure:
    """Correlated inputs: the union of scalar networks misses, the coupled matrix does not."""
    D, m, n = 3, 4, 200
    w, v, noise = randn(14, D, m), randn(15, D, m), randn(16, n)
    base = randn(17, n, D) * torch.tensor([1.5, 1.0, 0.6])
    theta = torch.stack([v, w], 1).flatten()
    fig, left, right = two_panels()

    def loss(t, X, y):
        v, w = t.reshape(D, 2, m).unbind(1)
        return 0.5 * (X @ (w * v).sum(-1) - y).square().mean()

    def draw(X):
        y = X @ torch.tensor([1.0, -1.0, 0.5]).double() + 0.1 * noise
        return X, y, es.theory.block_diagonal_inputs(w, v, X, y), measured(lambda t: loss(t, X, y), theta)

    mixing = torch.tensor([[1.0, 0.6, 0.3], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]).double()
    X, y, spectrum, dense = draw(base @ mixing)
    draw_spectrum(left, spectrum, dense, "Three correlated inputs")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    errors = []
    strengths = torch.linspace(0, 1, 21).tolist()
    white = torch.linalg.qr(base).Q * n**0.5
    for strength in strengths:
        X, y, spectrum, dense = draw(white @ torch.lerp(torch.eye(3).double(), mixing, strength))
        union = torch.cat([es.theory.scalar_linear(w[d], v[d], X[:, d], y).expand() for d in range(D)]).sort().values
        errors.append([float((s - dense).abs().max() / dense.max()) for s in (union, spectrum.expand())])
    wrong, right_ones = zip(*errors)
    right.semilogy(strengths, [max(e, 1e-16) for e in wrong], "-", color=PURPLE, label="union of scalar networks")
    right.semilogy(strengths, [max(e, 1e-16) for e in right_ones], "-", color=GREEN, label="coupled closed form")
    right.set(
        xlabel="strength of the correlation",
        ylabel="largest error / sharpness",
        title="What correlation costs",
        ylim=(1e-17, 30),
    )
    right.legend(loc="center right")
    return fig


@styled
def dynamics() -> Figure:
    """Sharpness along three runs with a measured dot here and there, and a grid of runs."""
    m, x = 5, torch.ones(1, dtype=torch.float64)
    y = 2 * x
    w, v = randn(22, m), 0.5 * randn(23, m)
    v = v + (1.8 - w @ v) / (w @ w) * w  # c = 1.8, on the way to 2
    net = es.theory.ScalarNet.of(w, v, x, y)
    fig, left, right = two_panels(height=3.4)

    def loss(t):
        return 0.5 * ((t[:m] @ t[m:]) * x - y).square().mean()

    for lr, colour in ((0.04, BLUE), (0.156, GREEN), (0.171, VERMILLION)):
        run = es.theory.dynamics.gradient_descent(net, lr, 40)
        left.plot(run.times, run.net.sharpness, color=colour, label=f"η = {lr}")
        if lr > 0.1:
            left.axhline(2 / lr, color=colour, lw=0.8, ls=":")
            left.text(40, 2 / lr, f"2 / {lr}", color=colour, ha="right", va="bottom", fontsize=8.5)
        theta = torch.cat([v, w])
        for step in range(41):
            if step % 5 == 0:
                left.plot(step, float(measured(loss, theta)[-1]), "o", color=INK, ms=3)
            theta = theta - lr * torch.func.grad(loss)(theta)
    limit = float(es.theory.dynamics.flow_limit(net).sharpness)
    left.axhline(limit, color=MUTED, lw=0.9, ls="--")
    left.text(40, limit, "limit of gradient flow", ha="right", va="bottom", color=MUTED, fontsize=8.5)
    left.set(xlabel="step", ylabel="sharpness", title="Descent, exactly")
    left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.5))
    lr = torch.linspace(0.02, 0.75, 120, dtype=torch.float64)[:, None]
    start = torch.linspace(0.02, 30, 120, dtype=torch.float64)
    grid = es.theory.dynamics.gradient_descent(es.theory.ScalarNet.from_norms(start, 0.3 * start, x, y), lr, 4000, every=4000)
    ends = torch.where(grid.net.slope[-1].abs() < 1e-6, grid.net.sharpness[-1], torch.nan)
    image = right.imshow(
        ends, origin="lower", aspect="auto", extent=(0.02, 30, 0.02, 0.75), cmap="viridis", interpolation="nearest"
    )
    right.axhline(float(es.theory.dynamics.largest_learning_rate(x, y)), color=VERMILLION, lw=1.2)
    right.text(29.5, 0.51, "no minimum is stable above", ha="right", va="bottom", color=VERMILLION, fontsize=8.5)
    right.grid(visible=False)
    right.set(xlabel="|w + v|² at the start", ylabel="learning rate", title="Where 14,400 runs end")
    fig.colorbar(image, ax=right, label="sharpness at the end")
    return fig


@styled
def quadratic() -> Figure:
    """How fast each direction of the worked example shrinks, and how the best rate falls with conditioning."""
    s = es.theory.quadratic.worked_example()
    lrs = torch.linspace(0.001, 0.13, 200, dtype=torch.float64)
    fig, left, right = two_panels()
    steep, flat = es.theory.quadratic.contraction(s.values, lrs).unbind(-1)
    left.plot(lrs, steep, color=VERMILLION)
    left.text(0.031, 0.55, "along the steep v₁", color=VERMILLION, fontsize=8.5)
    left.plot(lrs, flat, color=BLUE)
    left.text(0.03, 0.93, "along the flat v₂", color=BLUE, fontsize=8.5)
    H = torch.tensor([[4.0, 4.0], [4.0, 16.0]], dtype=torch.float64)
    for lr in (0.02, 0.05, 0.08, 0.1, 0.115):
        for i in range(2):
            z = s.eigenspace(i).squeeze(-1)
            for _ in range(5):
                before, z = z, z - lr * (H @ z)
            left.plot(lr, float(z.norm() / before.norm()), "o", color=INK, ms=3.2)
    for lr, name in ((0.1, "2 / (λ₁ + λ₂)"), (2 / float(s.max), "2 / λ₁")):
        left.axvline(lr, color=MUTED, lw=0.8, ls="--")
        left.text(lr, 1.28, name, ha="right", va="top", rotation=90, color=MUTED, fontsize=8.5)
    left.set(xlabel="learning rate", ylabel="factor per step", ylim=(0, 1.3), title="The steep direction is the fast one")
    kappa = torch.logspace(0.01, 4, 100, dtype=torch.float64)
    ends = torch.stack([kappa, torch.ones_like(kappa)], -1)
    for name, tuning, colour in (
        ("heavy ball, tuned", es.theory.quadratic.tune(ends, momentum=True), GREEN),
        ("descent, tuned", es.theory.quadratic.tune(ends), BLUE),
    ):
        right.loglog(kappa, -1 / tuning.rate.log10(), color=colour, label=name)
    right.loglog(kappa, -1 / es.theory.quadratic.rate(ends, 1 / kappa).log10(), color=PURPLE, label="descent, η = 1 / λ₁")
    right.set(xlabel="condition number", ylabel="steps per digit", title="What conditioning costs")
    right.legend(loc="upper left", fontsize=8.5)
    return fig


PICTURES = {
    "scalar-linear": scalar_linear,
    "scalar-relu": scalar_relu,
    "scalar-bias": scalar_bias,
    "block-diagonal": block_diagonal,
    "dynamics": dynamics,
    "quadratic": quadratic,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of the pages on scalar networks.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "img")
    parser.add_argument("--png", action="store_true", help="write PNG instead, to look at")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        fig = draw()
        if args.png:
            png(fig, args.out / f"{name}.png", dpi=110)
        else:
            text = svg(fig)
            body = text.index(">", text.index("<svg")) + 1
            white = '<rect width="100%" height="100%" fill="white"/>'  # readable on a dark page too
            (args.out / f"{name}.svg").write_text(text[:body] + white + text[body:], encoding="utf-8")


if __name__ == "__main__":
    main()
