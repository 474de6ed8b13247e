"""What watching costs: a budget is kept, and a record costs a small part of what a fresh eigenvalue costs elsewhere.

Two training runs of each network. In one a monitor with a budget chooses for itself. In the other every contestant computes the
largest eigenvalue on the same samples at the same weights, every ten steps. What is timed is the time inside each contestant,
over the time of the training steps between: the same run, interleaved. Times are the process's own CPU time, so that a busy
machine does not decide.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import Adam, Optimizer

from ...curvature import Objective, hessian
from ...dynamics import Monitor
from ...solvers import eigsh
from .suite import Bars, Row, Say, Suite
from .workloads import WORKLOADS, walks, workload

OVERHEAD, EVERY, TOL = 0.1, 10, 0.02
BATCH = {"mlp": 512, "cnn": 128, "gpt": 16}
SAMPLES = {"mlp": 256, "cnn": 64, "gpt": 8}  # of the common record: about half a batch
SEQUENCES = 128

Look = Callable[[], float]


def training(name: str, brief: bool) -> tuple[Objective, Optimizer, Iterator[Callable[[], None]]]:
    """A network, its optimizer, and its training steps: minibatches in a fixed random order, without end."""
    whole = workload(name, training=0)
    model, criterion = whole.model, whole.criterion
    x, y = next(iter(whole.batches()))
    if name == "gpt":
        x = y = walks(16 if brief else SEQUENCES, torch.Generator().manual_seed(1))
    optimizer = Adam(model.parameters(), lr=1e-3)

    def steps() -> Iterator[Callable[[], None]]:
        order = torch.Generator().manual_seed(0)
        size = 4 if brief else BATCH[name]
        while True:
            rows = torch.randint(0, len(x), (size,), generator=order)

            def step(rows: Tensor = rows) -> None:
                optimizer.zero_grad()
                criterion(model(x[rows]), y[rows]).backward()
                optimizer.step()

            yield step

    return Objective(model, criterion, (x, y)), optimizer, steps()


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returned."""
    start = time.process_time()
    out = work()
    return time.process_time() - start, out


def budgeted(name: str, steps: int, brief: bool) -> Row:
    """A run with a monitor that keeps to a share of the training time by itself."""
    objective, optimizer, work = training(name, brief)
    monitor = Monitor(objective, optimizer, every=1, overhead=OVERHEAD)
    inside = outside = 0.0
    for _, step in zip(range(steps), work):
        outside += cpu(step)[0]
        inside += cpu(monitor.step)[0]
    return {
        "network": name,
        "way": f"Monitor(overhead={OVERHEAD:g})",
        "share": inside / outside,
        "records": len(monitor.history),
        "first": monitor.history[0]["step"] if len(monitor.history) else None,
        "steps per record": steps / max(len(monitor.history), 1),
        "samples": monitor.samples,
        "steps": inside / outside * steps / max(len(monitor.history), 1),
        "note": "all measures of a record, the sharpness that Adam feels among them",
    }


@dataclass
class Contestant:
    """One way to get the largest eigenvalue."""

    name: str
    look: Look
    seconds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def go(self, truth: float) -> None:
        """Take part once."""
        seconds, value = cpu(self.look)
        self.seconds.append(seconds)
        self.errors.append(abs(value / truth - 1))


def tracked(objective: Objective, optimizer: Optimizer) -> Look:
    """Track the eigenvalue by a monitor, from the vectors of the last record; nothing else is measured."""
    monitor = Monitor(objective, optimizer, measures=(), tol=TOL)
    return lambda: monitor.measure()["sharpness"]


def fresh(objective: Objective) -> Look:
    """Compute the eigenvalue from a random start with `es.eigsh`, to the same tolerance, with its search for missed ones."""
    return lambda: float(eigsh(hessian(objective, check=False), k=1, tol=TOL).values[0])


def eigenthings(objective: Objective) -> Look | str:
    """Compute the eigenvalue by hessian-eigenthings' Lanczos: 20 steps (its default of two for one eigenvalue gives none)."""
    try:
        from hessian_eigenthings import HessianOperator, lanczos
    except ImportError as error:
        return str(error)
    batches = list(objective.batches())

    def look() -> float:
        def loss(model: Any, batch: Any) -> Tensor:
            return objective.criterion(model(batch[0]), batch[1])

        operator: Any = HessianOperator(objective.model, batches, loss)
        with sdpa_kernel(SDPBackend.MATH):  # other kernels have no second derivative
            return float(lanczos(operator, k=1, max_iter=20, tol=TOL, seed=0).eigenvalues[0])

    return look


def pyhessian(objective: Objective) -> Look | str:
    """Compute the eigenvalue by PyHessian's power iteration, as shipped."""
    try:
        from pyhessian import hessian as theirs
    except ImportError as error:
        return str(error)
    batch = next(iter(objective.batches()))

    def look() -> float:
        with sdpa_kernel(SDPBackend.MATH):
            value = theirs(objective.model, objective.criterion, data=batch, cuda=False).eigenvalues(top_n=1)[0][0]
        objective.model.zero_grad()  # it leaves gradients, with their graphs
        return float(value)

    return look


def common(name: str, records: int, brief: bool) -> list[Row]:
    """A run in which everybody computes the same number on the same samples, every ten steps."""
    whole, optimizer, work = training(name, brief)
    part = whole.subsample(4 if brief else SAMPLES[name], torch.Generator().manual_seed(0))
    ways = {
        "Monitor, tracked": tracked(part, optimizer),
        "es.eigsh, fresh": fresh(part),
        "hessian-eigenthings, fresh": eigenthings(part),
        "PyHessian, fresh": pyhessian(part),
    }
    contestants = [Contestant(way, look) for way, look in ways.items() if not isinstance(look, str)]
    outside: list[float] = []
    for _ in range(records):
        outside.append(sum(cpu(next(work))[0] for _ in range(EVERY)))
        truth = float(eigsh(hessian(part, check=False), k=1, tol=1e-4).values[0])
        for contestant in contestants:
            contestant.go(truth)
    spent = median(outside)
    rows = [
        {
            "network": name,
            "way": c.name,
            "share": median(c.seconds) / spent,
            "records": records,
            "first": EVERY,
            "steps per record": EVERY,
            "samples": 4 if brief else SAMPLES[name],
            "steps": EVERY * median(c.seconds) / spent,
            "worst error": max(c.errors),
            "note": f"the first record: {EVERY * c.seconds[0] / spent:.3g} steps",
        }
        for c in contestants
    ]
    return rows + [{"network": name, "way": way, "note": look} for way, look in ways.items() if isinstance(look, str)]


def run(say: Say, brief: bool) -> list[Row]:
    """Measure every network."""
    rows: list[Row] = []
    for name in WORKLOADS:
        say(f"{name}: training with a monitor that keeps to {100 * OVERHEAD:g} % of the time")
        rows.append(budgeted(name, 12 if brief else 1000, brief))
        say(f"{name}: the same eigenvalue by everybody, every {EVERY} steps")
        rows += common(name, 2 if brief else 12, brief)
    return rows


SUITE = Suite(
    name="monitor",
    title="Watching a training run",
    run=run,
    columns=("network", "way", "share", "records", "steps per record", "samples", "steps", "worst error", "note"),
    notes=(
        "share: CPU time of the measurements over that of the training steps between them; steps: what a record costs, in "
        "training steps (medians of 12 records, one every 10 steps; of the monitor with a budget, its run of 1,000 steps).",
        "worst error: largest relative distance from a computation to a residual of 1e-4, at the same weights on the same "
        "samples; the tolerance asked for is 0.02.",
        "Predicted: the budget is kept; a tracked record needs 3 products and a gradient, some 8 gradients of its samples, a "
        "fresh one 10 to 30 products.",
    ),
    bars=Bars(
        "steps",
        "one record, in training steps (of the budgeted monitor: with all its measures)",
        by=("way",),
        ours=("Monitor", "es."),
    ),
)
