"""Full-batch training on real digits, watched by the monitor: the runs that the figures of this folder share."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from ....curvature import Objective
from ....curvature.losses import half_mse
from ....dynamics import Monitor, max_stable_lr
from ....dynamics.phases import EDGE
from ...data import mnist_5k, one_hot
from ...machine import Row, Rows, stream

EXPLODED = 1e4  # loss at which a run counts as diverged
SIDE = 14  # images are averaged over 2 x 2 pixels, so that full-batch training takes seconds
MOMENTUM = 0.9
LAYERS: Mapping[str, Callable[[], list[nn.Module]]] = {
    "tanh": lambda: [nn.Flatten(), nn.Linear(196, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)],
    "relu": lambda: [nn.Flatten(), nn.Linear(196, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)],
    "cnn": lambda: [nn.Conv2d(1, 6, 3, 2), nn.Tanh(), nn.Conv2d(6, 12, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(48, 10)],
    "wide": lambda: [nn.Flatten(), nn.Linear(196, 1024), nn.Tanh(), nn.Linear(1024, 10)],
}
KEPT = (
    "step",
    "loss",
    "lr",
    "two_over_lr",
    "sharpness",
    "sharpness_low",
    "sharpness_high",
    "effective_sharpness",
    "threshold",
    "ratio",
    "gradient_share",
    "update_share",
    "phase",
)


@dataclass(frozen=True)
class Start:
    """What decides the weights at the start: runs that differ in nothing of this begin at the same point."""

    network: str
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Run:
    """One run on the first images of each digit.

    - network: `tanh` or `relu`, two hidden layers of 32; `cnn`, two convolutions with tanh; `wide`, one tanh layer of 1024.
    - optimiser: `descent`, `momentum` (0.9), `Adam`, or `minibatches`: descent on a random tenth of the images at each step.
    - rate: in units of the largest stable one at the start; of Adam the learning rate itself.
    - scale: factor on the initial weights, which without it are uniform within 1 / sqrt(inputs of the neuron).
    """

    network: str
    optimiser: str
    rate: float
    steps: int
    every: int
    images: int
    scale: float = 1.0
    k: int = 1
    seed: int = 0

    @property
    def start(self) -> Start:
        """Where it begins."""
        return Start(self.network, self.scale, self.seed)


def digits(images: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """The first images of each digit, the mean image taken off, at unit variance; labels as rows with a one."""
    X, y = mnist_5k()
    kept = torch.cat([(y == k).nonzero().flatten()[: images // 10] for k in range(10)])
    small = nn.functional.avg_pool2d(X[kept].double().reshape(-1, 1, 28, 28), 28 // SIDE)
    small = small - small.mean(0)
    return (small / small.std()).to(device), one_hot(y[kept]).to(device)


def network(start: Start, device: torch.device | None = None) -> nn.Module:
    """Build a network with the weights of this start."""
    layers = LAYERS[start.network]()
    generator = stream(replace(start, scale=1.0))
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = start.scale / math.sqrt(layer.weight[0].numel())
            layer.double()
            for p in layer.parameters():
                nn.init.uniform_(p, -bound, bound, generator=generator)
    return nn.Sequential(*layers).to(device)


def optimiser(run: Run, objective: Objective) -> torch.optim.Optimizer:
    """Make the optimiser, at the rate that the run names."""
    parameters = list(objective.model.parameters())
    if run.optimiser == "Adam":
        return torch.optim.Adam(parameters, lr=run.rate)
    made = torch.optim.SGD(parameters, lr=1.0, momentum=MOMENTUM if run.optimiser == "momentum" else 0.0)
    made.param_groups[0]["lr"] = run.rate * float(max_stable_lr(objective, made, generator=stream(run.start, "search")))
    return made


def measure(run: Run, device: torch.device) -> list[Row]:
    """One row per record of the monitor, the first before the first step; a run that diverges ends there."""
    x, y = digits(run.images, device)
    model = network(run.start, device)
    objective = Objective(model, half_mse, (x, y))
    stepping = optimiser(run, objective)
    monitor = Monitor(objective, stepping, every=run.every, k=run.k, measures=("effective",), seed=run.seed)
    rows = [_row(monitor.measure(), model)]
    for part in batches(run, len(x)):
        stepping.zero_grad()
        half_mse(model(x[part]), y[part]).backward()
        stepping.step()
        record = monitor.step()
        if record is not None:
            rows.append(_row(record, model))
            if record["phase"] == "diverged" or record["loss"] > EXPLODED:
                break
    return rows


def batches(run: Run, images: int) -> Iterator[Tensor | slice]:
    """Yield what each step trains on."""
    order = stream(run, "order")
    for _ in range(run.steps):
        yield torch.randperm(images, generator=order)[: images // 10] if run.optimiser == "minibatches" else slice(None)


def _row(record: Row, model: nn.Module) -> Row:
    norm = math.sqrt(sum(float(p.detach().square().sum()) for p in model.parameters()))
    return {name: record.get(name) for name in KEPT} | {"norm": norm}


def late(rows: Rows, name: str) -> float:
    """Median of a column over the last quarter of the records."""
    values = rows[name].astype(float)
    return float(np.nanmedian(values[-max(3, len(values) // 4) :]))


def hovers(rows: Rows) -> bool:
    """Whether the sharpness that the optimiser feels stands at its threshold in the end, and the loss fell."""
    return EDGE[0] <= late(rows, "ratio") <= EDGE[1] and rows["loss"][-1] < rows["loss"][0]
