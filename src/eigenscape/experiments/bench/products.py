"""What one product costs: a Hessian-vector product, eight at once, and a Gauss-Newton product."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...curvature import Objective, ggn, hessian
from ...linop import Operator
from . import peers, plain
from .clock import Entry, failure, race, timed, unit_of
from .memory import beyond
from .plain import Problem, Product
from .suite import Bars, Row, Say, Suite
from .workloads import networks, workload

TOLERANCE = 1e-4  # of a product in float32; rounding alone gives 1e-7 to 1e-5
WARM = 16  # products after which the engine "auto" has chosen
COLUMNS = 8
ENGINES = ("auto", "reverse", "recorded", "compiled", "uncached")


@dataclass(frozen=True)
class Way:
    """A way to multiply: its name, and how it is set up for a problem."""

    name: str
    build: Callable[[Problem], Any]
    warm: int = 2


def ours(engine: str, matrix: str, problem: Problem) -> Any:
    """Our operator."""
    return {"Hessian": hessian, "GGN": ggn}[matrix](problem.objective, engine=engine)


def ways(matrix: str, brief: bool = False) -> list[Way]:
    """Everybody who multiplies by a matrix."""
    engines = [e for e in ENGINES if not (brief and e == "compiled")]
    own = [Way(f"eigenscape, {e}", partial(ours, e, matrix), WARM if e == "auto" else 2) for e in engines]
    if matrix == "GGN":
        return [
            *own,
            Way("torch, graphs kept", plain.ggn_kept),
            Way("curvlinops", partial(peers.curvlinops_product, matrix="GGN")),
            Way("hessian-eigenthings", partial(peers.eigenthings_product, matrix="GGN")),
        ]
    return [
        *own,
        Way("torch, from scratch", plain.fresh),
        Way("torch, graph kept", plain.kept),
        Way("torch, linearize", plain.linearized),
        Way("curvlinops", peers.curvlinops_product),
        Way("hessian-eigenthings", peers.eigenthings_product),
        Way("PyHessian", peers.pyhessian_product),
    ]


def apply(operator: Any, V: Tensor) -> Tensor:
    """Multiply by an operator of ours, or by a function."""
    return operator @ V if isinstance(operator, Operator) else operator(V)


@dataclass
class Ready:
    """A way that has been set up, with what that cost."""

    way: Way
    operator: Any
    setup: float  # seconds until products cost the same, beyond the products themselves


def set_up(way: Way, problem: Problem, v: Tensor) -> Ready:
    """Build, and multiply until the price is steady."""
    build, operator = timed(lambda: way.build(problem))
    laps = [timed(lambda: apply(operator, v))[0] for _ in range(way.warm)]
    steady = timed(lambda: apply(operator, v))[0].cost
    return Ready(way, operator, max(0.0, build.cost + sum(lap.cost - steady for lap in laps)))


def compare(objective: Objective, found: list[Way], truth: Product, works: dict[str, int], rounds: int) -> list[Row]:
    """Set everybody up, let them take turns, and check what they return; `works` gives the columns of each piece of work."""
    problem, unit = Problem.of(objective), plain.gradient(objective)
    n, stream = objective.layout.size, torch.Generator().manual_seed(0)
    rows: list[Row] = []
    ready: list[Ready] = []
    for way in found:
        try:
            ready.append(set_up(way, problem, torch.randn(n, generator=stream)))
        except Exception as error:  # whatever another library may raise
            rows += [{"work": work, "contestant": way.name, "note": failure(error)} for work in works]
    price = unit_of(unit).cost
    for work, columns in works.items():
        V = torch.randn(n, columns, generator=stream) if columns > 1 else torch.randn(n, generator=stream)
        entries = [Entry(head(work, r, price), partial(apply, r.operator, V)) for r in ready]
        rows += race(entries, unit, max(rounds // columns, 1), per=columns)
        check(entries, truth(V))
    return rows


def head(work: str, ready: Ready, unit: float) -> Row:
    """Begin a row."""
    engine = ready.operator.engine if ready.way.name == "eigenscape, auto" else None
    return {"work": work, "contestant": ready.way.name, "engine": engine, "setup": ready.setup / unit}


def check(entries: list[Entry], truth: Tensor) -> None:
    """Compare what everybody returns with the product in float64."""
    for entry in entries:
        if "gradients" in entry.row:
            error = float((entry.work().double() - truth).norm() / truth.norm())
            entry.row |= {"error": error, "right": error <= TOLERANCE}


def alone(network: str, matrix: str, way: str, columns: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Gradients, and then products: for a process in which nothing else happens."""
    objective = workload(network)
    found = {w.name: w for w in ways(matrix)}[way]
    V = torch.randn(objective.layout.size, columns, generator=torch.Generator().manual_seed(0)).squeeze(-1)
    unit = plain.gradient(objective)

    def work() -> None:
        operator = found.build(Problem.of(objective))
        for _ in range(found.warm + 1):
            apply(operator, V)

    return lambda: [unit() for _ in range(3)], work


def run(say: Say, brief: bool) -> Iterator[Row]:
    """Measure every network and every kind of product."""
    for name, objective in networks(brief):
        for matrix, works in {"Hessian": {"H v": 1, f"H V, {COLUMNS} columns": COLUMNS}, "GGN": {"G v": 1}}.items():
            say(f"{name}: {' and '.join(works)}, everybody in turn")
            found = compare(objective, ways(matrix, brief), plain.exact(objective, matrix), works, 1 if brief else 24)
            if not brief:
                say(f"{name}: the memory of each, in processes of their own")
            for row in found:
                if not brief and "gradients" in row:
                    row["MB"] = beyond(alone, name, matrix, row["contestant"], works[row["work"]])
            yield from ({"network": name, **row} for row in found)


SUITE = Suite(
    name="products",
    title="What one product costs",
    run=run,
    columns=("network", "work", "contestant", "gradients", "seconds", "setup", "MB", "error", "right", "engine", "note"),
    notes=(
        "gradients: cost of one product with one vector (of eight at once: a share of the block), in gradients of the same "
        "loss on the same data, measured in between; medians; processor time on one thread.",
        "setup: what comes before products are at that price, in gradients: differentiating once, recording, compiling, "
        "choosing. MB: peak memory of a process of its own, beyond what gradients need.",
        f"error: relative distance from double backward in float64; right: at most {TOLERANCE:g}.",
        "The floor by counting matrix products: 1.33 gradients for H v on the MLP, about 2 on the others; a G v 1.33 or less.",
    ),
    bars=Bars(label="one product, in gradients", panels=("work", "network")),
)
