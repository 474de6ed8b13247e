"""What a trace costs to a relative standard error of three hundredths, as seen from one seed to the next."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean, stdev
from typing import Any

import torch

from ... import solvers as own
from ...core import random_like
from ...curvature import Objective, hessian
from . import peers, plain
from .clock import Entry, failure, race
from .contest import Watched
from .plain import Problem, Product
from .suite import Bars, Row, Say, Suite
from .workloads import brief_workload, workload

AIM, SEEDS, SAMPLES, ROUNDS = 0.03, 16, 400, 3
SLACK = 1.4  # on a standard error that is seen in so few values: within this factor 95 times in 100
LADDER = (30, 60, 90, 120, 180, 240, 360)
NETWORKS, LIMIT = ("mlp", "cnn"), 2000

Guess = tuple[float, int]  # a value, and the products it took


@dataclass(frozen=True)
class Estimator:
    """A way to estimate: `estimate(problem, operator, products to spend, seed)`, on the products of its own library.

    - products: the library's products; None where they cannot be separated from its estimate.
    - ladder: products to spend, from the fewest; None where it decides by itself.
    """

    name: str
    products: Callable[[Problem], Product] | None
    estimate: Callable[[Problem, Watched, Any, int], Guess]
    ladder: tuple[Any, ...] = (None,)


def our_products(problem: Problem) -> Product:
    """Our operator's products."""
    return hessian(problem.objective).matmat


def ours(limit: int, _: Problem, operator: Watched, __: Any, seed: int) -> Guess:
    """`es.trace`, told the tolerance, and a limit that is not meant to be reached."""
    found = own.trace(operator, torch.Generator().manual_seed(seed), rtol=AIM, max_matvecs=limit)
    return float(found.value), found.num_matvecs


def samples(operator: Watched, count: int, seed: int) -> list[float]:
    """Single samples of Hutchinson's estimator, `v^T H v` with random signs v."""
    stream = torch.Generator().manual_seed(seed)
    like = {"dtype": torch.float32, "device": operator.device}
    signs = (random_like((operator.n,), stream, kind="rademacher", **like) for _ in range(count))
    return [float((v.double() * (operator @ v).double()).sum()) for v in signs]


def hutchinson(_: Problem, operator: Watched, count: int, seed: int) -> Guess:
    """Plain Hutchinson."""
    return mean(samples(operator, count, seed)), count


def eigenthings(_: Problem, operator: Any, count: int, seed: int) -> Guess:
    """Use hessian-eigenthings' Hutch++, its default."""
    from hessian_eigenthings import trace

    return float(trace(operator, num_matvecs=count, seed=seed).estimate), count


def curvlinops(method: str, _: Problem, operator: Watched, count: int, seed: int) -> Guess:
    """Use an estimator of curvlinops."""
    with peers.as_shipped():
        import curvlinops as theirs

    torch.manual_seed(seed)  # it draws from the global stream
    return float(getattr(theirs, method)(operator, count)), count


def pyhessian(problem: Problem, _: Watched, __: Any, seed: int) -> Guess:
    """Use PyHessian's Hutchinson, which stops by itself."""
    torch.manual_seed(seed)  # it draws from the global stream
    found = peers.pyhessian(problem).trace()
    return mean(found), len(found)


def estimators(limit: int = LIMIT) -> list[Estimator]:
    """Everybody who estimates traces, with at most so many products."""
    ladder = tuple(n for n in LADDER if n <= limit)
    return [
        Estimator("eigenscape", our_products, partial(ours, limit)),
        Estimator("torch, Hutchinson", plain.kept, hutchinson, (limit,)),
        Estimator("curvlinops, Hutch++", peers.curvlinops_product, partial(curvlinops, "hutchpp_trace"), ladder),
        Estimator("curvlinops, XTrace", peers.curvlinops_product, partial(curvlinops, "xtrace"), ladder),
        Estimator("hessian-eigenthings, Hutch++", peers.eigenthings_product, eigenthings, ladder),
        Estimator("PyHessian", None, pyhessian),
    ]


@dataclass(frozen=True)
class Known:
    """What many samples of plain Hutchinson say: the trace, and the standard deviation of one sample."""

    trace: float
    sigma: float
    count: int

    @property
    def enough(self) -> int:
        """Samples of plain Hutchinson that reach the aim."""
        return max(2, round((self.sigma / (AIM * self.trace)) ** 2))

    def judged(self, guesses: list[Guess]) -> Row:
        """Standard error and bias that were seen, and how many times more products Hutchinson takes for the same error."""
        values, products = [value for value, _ in guesses], mean(count for _, count in guesses)
        error, bias = stdev(values) / abs(self.trace), abs(mean(values) / self.trace - 1)
        doubt = (self.sigma / abs(self.trace)) / self.count**0.5 + error / len(values) ** 0.5
        saved = (self.sigma / (error * self.trace)) ** 2 / products if error > 0 else None
        right = error <= SLACK * AIM and bias <= 3 * doubt
        return {"products": products, "error": error, "bias": bias, "saved": saved, "right": right}


def sufficient(way: Estimator, problem: Problem, operator: Watched, known: Known, seeds: int) -> Row:
    """Fewest products of the ladder that suffice, and what was seen with them."""
    row: Row = {"contestant": way.name}
    for setting in way.ladder:
        row |= {"setting": setting} | known.judged([way.estimate(problem, operator, setting, seed) for seed in range(seeds)])
        if row["error"] <= AIM:
            break
    return row


def once(way: Estimator, problem: Problem, setting: Any) -> Guess:
    """One call from nothing, on the library's own products."""
    product = way.products(problem) if way.products else torch.zeros_like
    return way.estimate(problem, Watched(product, problem.size), setting, 0)


def measure(objective: Objective, ways: list[Estimator], seeds: int, count: int, rounds: int, say: Say) -> list[Row]:
    """Find out what suffices, on the fastest products there are; then time one call of everybody on its own products.

    Plain Hutchinson is given what the spread of its samples says, but no more than the end of its ladder.
    """
    problem = Problem.of(objective)
    fast = Watched(our_products(problem), problem.size)
    say(f"{count} samples of plain Hutchinson, to judge by")
    single = samples(fast, count, 1000)
    known = Known(mean(single), stdev(single), count)
    rows: list[Row] = []
    entries: list[Entry] = []
    for way in ways:
        say(f"{way.name}, {seeds} seeds")
        if way.estimate is hutchinson:
            way = replace(way, ladder=(min(known.enough, way.ladder[-1]),))
        try:
            rows.append(sufficient(way, problem, fast, known, seeds))
            entries.append(Entry(rows[-1], partial(once, way, problem, rows[-1]["setting"])))
        except Exception as error:  # whatever another library may raise
            rows.append({"contestant": way.name, "note": failure(error)})
    race(entries, plain.gradient(objective), rounds)
    return rows


def run(say: Say, brief: bool) -> Iterator[Row]:
    """Measure the networks."""
    for name in NETWORKS[:1] if brief else NETWORKS:
        objective = brief_workload(name) if brief else workload(name)
        ways = estimators(LADDER[0]) if brief else estimators()
        seeds, count, rounds = (3, 12, 1) if brief else (SEEDS, SAMPLES, ROUNDS)
        found = measure(objective, ways, seeds, count, rounds, lambda text, name=name: say(f"{name}: {text}"))
        yield from ({"network": name, **row} for row in found)


SUITE = Suite(
    name="trace",
    title=f"A trace to a relative standard error of {AIM:.0%}",
    run=run,
    columns=("network", "contestant", "setting", "gradients", "products", "saved", "seconds", "error", "bias", "right", "note"),
    notes=(
        "gradients: a whole call from nothing, operator included, in gradients of the same loss on the same data, measured in "
        "between; medians of three; processor time on one thread.",
        "setting: products that the others are told to spend, the fewest of a ladder that suffice (of plain Hutchinson: from "
        "the spread of many samples); Eigenscape is told the tolerance, and PyHessian stops by itself.",
        f"error: relative standard error over {SEEDS} seeds; bias: distance of their mean from that of {SAMPLES} samples; "
        f"right: an error of at most {SLACK * AIM:.1%} (it is known from {SEEDS} values only), and no bias beyond chance.",
        "saved: products of plain Hutchinson for the same error, over the products used.",
    ),
    bars=Bars(label=f"a trace to {AIM:.0%}, in gradients"),
)
