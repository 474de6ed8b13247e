"""Draw the pictures of the pages on networks of two factors: closed forms as lines and bars, measurements as dots.

Run `python docs/theory/pictures_two_layer.py`; it writes `docs/theory/img/*.svg`. Every dot comes from a Hessian taken by
automatic differentiation, every line from a formula.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from pictures_scalar import draw_spectrum, measured, randn, two_panels

import eigenscape as es
from eigenscape.report.style import AMBER, BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, png, styled, svg

DOT = {"ls": "", "marker": "o", "color": INK, "ms": 3.2}


def flat(W, V):
    """Parameters in the order of a Sequential."""
    return torch.cat([V.flatten(), W.flatten()])


def network(K, m, D, X, Y, activation=lambda z: z):
    """Half the mean squared error of the flat parameters."""

    def loss(t):
        V, W = t[: m * D].reshape(m, D), t[m * D :].reshape(K, m)
        return 0.5 * (activation(X @ V.T) @ W.T - Y).square().sum(-1).mean()

    return loss


@styled
def two_layer() -> Figure:
    """The whole spectrum at one point, and the smallest eigenvalue against the width."""
    K, m, D, n = 2, 9, 3, 40
    X = randn(1, n, D) * torch.tensor([1.2, 0.9, 0.6])
    Y = X @ randn(2, D, K) + 0.3 * randn(3, n, K)
    W, V = 0.6 * randn(4, K, m), 0.6 * randn(5, m, D)
    fig, left, right = two_panels()
    dense = measured(network(K, m, D, X, Y), flat(W, V))
    draw_spectrum(left, es.theory.two_layer_linear(W, V, X, Y), dense, "Three inputs, two outputs, width 9")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    widths = range(1, 13)
    lows, bounds = [], []
    for m in widths:
        W, V = 0.6 * randn(6, K, 12)[:, :m], 0.6 * randn(7, 12, D)[:m]
        lows.append(float(es.theory.two_layer_linear(W, V, X, Y).min))
        bounds.append(float(es.theory.two_layer_linear_bounds(W, V, X, Y).smallest))
        right.plot(m, float(measured(network(K, m, D, X, Y), flat(W, V))[0]), **DOT)
    right.plot(widths, lows, color=VERMILLION, label="smallest eigenvalue")
    right.plot(widths, bounds, "--", color=BLUE, label="−|Ω|")
    right.axvline(K + D, color=MUTED, lw=0.8, ls=":")
    right.text(K + D + 0.1, 0.02, "K + D", color=MUTED, transform=right.get_xaxis_transform(), fontsize=8.5)
    right.set(xlabel="width", title="Wide enough, the bound is met")
    right.legend(loc="upper right")
    return fig


@styled
def two_layer_relu() -> Figure:
    """Neurons that share patterns, and the certified gap along the way to the targets."""
    K, m, D, n = 1, 12, 2, 4
    angle = torch.arange(n, dtype=torch.float64) * torch.pi / 4 + 0.2
    X, Y = torch.stack([angle.cos(), angle.sin()], -1), randn(11, n, K)
    W, V = randn(12, K, m), randn(13, m, D)
    V[:6] = V[0] + 0.1 * V[:6]
    fig, left, right = two_panels()
    dense = measured(network(K, m, D, X, Y, torch.relu), flat(W, V))
    draw_spectrum(left, es.theory.two_layer_relu(W, V, X, Y), dense, "Width 12, six neurons of one pattern")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    n, m, D = 60, 8, 3
    X, W, V = randn(14, n, D), 0.6 * randn(15, K, m), 0.6 * randn(16, m, D)
    fit, noise = torch.relu(X @ V.T) @ W.T, randn(17, n, K)
    strengths = torch.linspace(0, 6, 41).tolist()
    ggn = float(es.theory.two_layer_relu_ggn(W, V, X).max)
    gaps = [float(es.theory.two_layer_relu_bounds(W, V, X, fit + s * noise).gap) for s in strengths]
    right.fill_between(
        strengths, [ggn - g for g in gaps], [ggn + g for g in gaps], color=BLUE, alpha=0.25, lw=0, label="certified"
    )
    right.axhline(ggn, color=BLUE, label="sharpness of Gauss-Newton")
    tops = [float(es.theory.two_layer_relu(W, V, X, fit + s * noise).max) for s in strengths]
    right.plot(strengths, tops, color=VERMILLION, label="sharpness")
    for s in strengths[::5]:
        right.plot(s, float(measured(network(K, m, D, X, fit + s * noise, torch.relu), flat(W, V))[-1]), **DOT)
    right.set(xlabel="size of the residuals", title="The gap to Gauss-Newton")
    right.legend(loc="upper left")
    return fig


@styled
def product_bulk() -> Figure:
    """A tanh network under cross-entropy: its measured spectrum with the predicted bulk, and how often it occurs."""
    K, D, n = 2, 2, 30
    X, C, Y = randn(21, n, D), randn(22, 3, K), torch.randint(3, (n,), generator=torch.Generator().manual_seed(23))

    def of(B, C):
        return torch.nn.functional.cross_entropy(torch.tanh(X @ B.T) @ C.T, Y)

    def draw(m):
        W, V = randn(24, K, 14)[:, :m] / 2, randn(25, 14, D)[:m] / 2

        def loss(t):
            V, W, C = t[: m * D].reshape(m, D), t[m * D : m * (D + K)].reshape(K, m), t[m * (D + K) :].reshape(3, K)
            return of(W @ V, C)

        bulk = es.theory.product_bulk(W, V, torch.func.grad(of)(W @ V, C))
        return bulk, measured(loss, torch.cat([flat(W, V), C.flatten()]))

    fig, left, right = two_panels()
    bulk, dense = draw(9)
    left.plot(range(1, len(dense) + 1), dense.tolist(), **DOT, label="measured, all parameters")
    for i, value in enumerate(bulk.values.tolist()):
        times = int(bulk.multiplicities[i])
        near = (dense - value).abs() < 1e-12
        assert int(near.sum()) >= times
        ranks = near.nonzero()[:, 0] + 1
        left.plot([float(ranks.min()) - 0.4, float(ranks.max()) + 0.4], [value] * 2, color=BLUE, lw=4, alpha=0.6,
                  label="predicted bulk" if i == 0 else None)  # fmt: skip
    left.set(xlabel="rank", ylabel="eigenvalue", title="A tanh network under cross-entropy", ylim=(-0.34, 0.42))
    left.legend(loc="upper left")
    widths = range(2, 15)
    counts = [int(draw(m)[0].multiplicities[0]) if draw(m)[0].labels[0] == "bulk" else 0 for m in widths]
    right.plot(widths, counts, color=BLUE, label="m − K − D, at least")
    right.plot(widths, [max(m - K - D + 1, 0) for m in widths], "--", color=GREEN, label="m − K − D + 1, in general")
    for m in widths:
        bulk, dense = draw(m)
        top = torch.linalg.svdvals(_gradient(of, m, K, D, C))[0]
        right.plot(m, int(((dense - top).abs() < 1e-12).sum()), **DOT)
    right.set(xlabel="width m", title="Copies of the largest bulk value")
    right.legend(loc="upper left")
    return fig


def _gradient(of, m, K, D, C):
    return torch.func.grad(of)(randn(24, K, 14)[:, :m] / 2 @ (randn(25, 14, D)[:m] / 2), C)


@styled
def attention() -> Figure:
    """One head at one point, and what an attention sink does to its spectrum."""
    d, L = 5, 6
    a, q, k = torch.tensor(1.2, dtype=torch.float64), randn(31, d), randn(32, d)
    X, Y = randn(33, 1, L), 2 * randn(34, 1, L)

    def loss(t, X=X, sink=0.0):
        q, k = t[1 : d + 1], t[d + 1 :]
        scores = (X.T * q) @ (X.T * k).T / d**0.5 + sink * (torch.arange(L) == 0)
        return 0.5 * (t[0] * (scores.softmax(-1) @ X[0]) - Y[0]).square().mean()

    theta = torch.cat([a[None], q, k])
    fig, left, right = two_panels()
    draw_spectrum(left, es.theory.self_attention(a, q, k, X, Y), measured(loss, theta), "One head of width 5, six tokens")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    X = X.clone()
    X[0, 0] = 3.0
    sinks = torch.linspace(-6, 10, 161, dtype=torch.float64)
    s = es.theory.self_attention(a, q, k, X, Y, sink=sinks)
    for i, colour, name in (
        (0, VERMILLION, "outliers"),
        (1, VERMILLION, None),
        (2, VERMILLION, None),
        (3, BLUE, "bulk"),
        (4, BLUE, None),
    ):
        right.plot(sinks, s.values[:, i], color=colour, label=name)
    for i in range(0, 161, 20):
        dense = measured(lambda t, sink=float(sinks[i]): loss(t, X, sink), theta)
        right.plot([float(sinks[i])] * len(dense), dense.tolist(), **(DOT | {"ms": 2.6}))
    right.axhline(float(X[0, 0] ** 2), color=GREEN, ls="--", lw=0.9)
    right.text(-6, float(X[0, 0] ** 2), "x² of the sink", color=GREEN, va="bottom", fontsize=8.5)
    right.set(xlabel="bias on the first token", title="An attention sink")
    right.legend(loc="lower left")
    return fig


@styled
def pairing() -> Figure:
    """A spectrum whose outliers pair up, and how the pair is lost as the columns lose orthogonality."""
    m, D, n = 7, 3, 30
    X = torch.linalg.qr(randn(41, n, D)).Q * n**0.5
    V, w = torch.linalg.qr(randn(42, m, D)).Q * 1.3, randn(43, m)
    fit = X @ V.T @ w
    noise = randn(44, n)
    y = 0.3 * fit + noise - X @ (X.T @ noise) / n
    fig, left, right = two_panels()
    spectrum = es.theory.paired_outliers(w, V, X, y)
    dense = measured(network(1, m, D, X, y[:, None]), flat(w[None], V))
    draw_spectrum(left, spectrum, dense, "White inputs, orthogonal columns")
    left.set_ylabel("eigenvalue")
    left.legend(loc="upper left")
    strengths = torch.logspace(-12, 0, 49, dtype=torch.float64).tolist()
    best, second = [], []
    other = randn(45, m, D)
    for s in strengths:
        gaps = _gaps(es.theory.two_layer_linear(w[None], V + s * other, X, y[:, None]).expand(), D)
        best.append(gaps[0])
        second.append(gaps[1])
    right.loglog(strengths, second, color=AMBER, label="second best pair")
    right.loglog(strengths, best, color=PURPLE, label="best pair")
    for s in strengths[16::8]:
        dense = measured(network(1, m, D, X, y[:, None]), flat(w[None], V + s * other))
        right.plot(s, _gaps(dense, D)[0], **DOT)
    right.set(xlabel="departure from orthogonal columns", ylabel="|λ₁ + λ₂ − tr / D| / tr", title="A pair under conditions")
    right.legend(loc="lower right")
    return fig


def _gaps(values, D):
    """How far the two best pairs of eigenvalues are from summing to the trace over D, relative to the trace."""
    i, j = torch.triu_indices(len(values), len(values), 1)
    nonzero = (values.abs() > 1e-9 * values[-1])[i] & (values.abs() > 1e-9 * values[-1])[j]
    gaps = ((values[i] + values[j] - values.sum() / D).abs() / values.sum())[nonzero].sort().values
    return [max(float(g), 1e-17) for g in gaps[:2]]


PICTURES = {
    "two-layer": two_layer,
    "two-layer-relu": two_layer_relu,
    "product-bulk": product_bulk,
    "attention": attention,
    "pairing": pairing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of the pages on networks of two factors.")
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
