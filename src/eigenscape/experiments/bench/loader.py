"""What a product costs where the data comes in batches, per sample, with memory for the graphs and without."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from ...curvature import Objective, hessian
from . import peers, plain
from .clock import Entry, failure, race
from .plain import Plain, Problem, Product
from .products import TOLERANCE, WARM, apply
from .suite import Bars, Row, Say, Suite
from .workloads import workload

BATCHES, SIZE, ROUNDS = 20, 100, 8
SMALL = 32e6  # bytes: the graphs of a few batches


@dataclass(frozen=True)
class Way:
    """A way to multiply by the Hessian of all batches."""

    name: str
    build: Callable[[Problem], Any]
    warm: int = 1


def ours(memory: float | None, problem: Problem) -> Any:
    """Our operator with a budget for what is kept between products."""
    return hessian(problem.objective, memory=memory)


def ways() -> list[Way]:
    """Everybody who multiplies by the Hessian of a loader."""
    return [
        Way("eigenscape", partial(ours, None), WARM),
        Way(f"eigenscape, memory={SMALL / 1e6:g}e6", partial(ours, SMALL), WARM),
        Way("eigenscape, memory=0", partial(ours, 0.0), WARM),
        Way("curvlinops", peers.curvlinops_product),
        Way("hessian-eigenthings", peers.eigenthings_product),
        Way("PyHessian", peers.pyhessian_product),
    ]


def data(batches: int, size: int) -> tuple[Tensor, Tensor]:
    """Images of the same kind as the CNN was trained on."""
    stream = torch.Generator().manual_seed(1)
    return torch.randn(batches * size, 3, 32, 32, generator=stream), torch.randint(10, (batches * size,), generator=stream)


def problem_of(source: Objective, pairs: Any) -> Problem:
    """The network of an objective on other data, which everybody reads in the same way."""
    return Problem(
        Objective(source.model, source.criterion, pairs), Plain(source.model, False), torch.nn.CrossEntropyLoss(), pairs
    )


def timed_on(problem: Problem, unit: Callable[[], Any], v: Tensor, found: list[Way], rounds: int) -> list[tuple[Entry, Any]]:
    """Everybody's product with one vector, timed in turn; with the operators."""
    entries = []
    for way in found:
        row: Row = {"contestant": way.name}
        operator = None
        try:
            operator = way.build(problem)
            for _ in range(way.warm):
                apply(operator, v)
        except Exception as error:  # whatever another library may raise
            row["note"] = failure(error)
        entries.append((Entry(row, partial(apply, operator, v)), operator))
    race([entry for entry, _ in entries if "note" not in entry.row], unit, rounds)
    return entries


def compare(source: Objective, found: list[Way], batches: int, size: int, rounds: int, say: Say) -> list[Row]:
    """Time everybody on one batch, and on the loader; what a product costs per sample is compared."""
    x, y = data(batches, size)
    one = problem_of(source, [(x[:size], y[:size])])
    unit, v = plain.gradient(one.objective), torch.randn(one.size, generator=torch.Generator().manual_seed(0))
    say(f"one batch of {size}, everybody in turn")
    alone = [entry.row for entry, _ in timed_on(one, unit, v, found, rounds)]
    say(f"a DataLoader of {batches} such batches, everybody in turn")
    loader = problem_of(source, DataLoader(TensorDataset(x, y), batch_size=size))
    together = timed_on(loader, unit, v, found, rounds)
    whole: Product = plain.exact(problem_of(source, [(x, y)]).objective, "Hessian")
    truth = whole(v)
    rows = []
    for (entry, operator), single in zip(together, alone):
        row: Row = {"network": "cnn", **entry.row}
        if "gradients" in row:
            price = row["gradients"] / batches
            error = float((entry.work().double() - truth).norm() / truth.norm())
            row |= {"gradients": price, "alone": single.get("gradients"), "error": error, "right": error <= TOLERANCE}
            row["ratio"] = price / row["alone"] if row["alone"] else None
            row["engine"] = getattr(operator, "engine", None)
        rows.append(row)
    return rows


def run(say: Say, brief: bool) -> list[Row]:
    """Measure the CNN."""
    source = workload("cnn", training=0 if brief else 20)
    return compare(source, ways(), *((3, 4, 1) if brief else (BATCHES, SIZE, ROUNDS)), say)


SUITE = Suite(
    name="loader",
    title=f"A product on a DataLoader of {BATCHES} batches",
    run=run,
    columns=("network", "contestant", "gradients", "alone", "ratio", "seconds", "error", "right", "engine", "note"),
    notes=(
        f"gradients: one Hessian-vector product over {BATCHES} batches of {SIZE} images, in gradients of the same batches; "
        "alone: the same on a single batch, in gradients of that batch; ratio: of the two, the price per sample; medians; "
        "processor time on one thread.",
        "memory: bytes that our operator may keep between products; by itself it takes half of what is free, here enough for "
        "all graphs.",
        f"error: relative distance from double backward in float64 on all images at once; right: at most {TOLERANCE:g}.",
    ),
    bars=Bars(label="one product on a DataLoader, in gradients of its data"),
)
