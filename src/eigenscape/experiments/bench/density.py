"""What a spectral density costs: a hundred Lanczos steps from one random vector."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ... import solvers as own
from ...curvature import hessian
from . import peers, plain
from .contest import Solver, Watched, contest, weigh
from .eigenpairs import counted, truth
from .memory import beyond
from .plain import Problem, Product
from .suite import Bars, Row, Say, Suite
from .workloads import networks

STEPS, ROUNDS = 100, 3
TOLERANCE = 2e-3  # of moments, and of the largest node


@dataclass
class Rule:
    """A quadrature rule, the vector it started from, and the products it took."""

    nodes: Tensor
    weights: Tensor
    start: Tensor
    products: int


def ours(problem: Problem, reorthogonalize: Any, steps: int = STEPS) -> Rule:
    """`es.density`, watched only in that its first vector is kept."""
    H = hessian(problem.objective)
    watched = Watched(H.matmat, problem.size)
    found = own.density(watched, steps, probes=1, reorthogonalize=bool(reorthogonalize))
    return Rule(found.nodes.flatten(), found.weights.flatten(), watched.first, watched.products)


def eigenthings(problem: Problem, _: Any, steps: int = STEPS) -> Rule:
    """Use hessian-eigenthings' density, which reorthogonalises and keeps every vector."""
    from hessian_eigenthings import spectral_density

    operator: Any = Watched(peers.eigenthings_product(problem), problem.size)
    found = spectral_density(operator, num_runs=1, lanczos_steps=steps, seed=0)
    return Rule(found.raw_eigenvalues.flatten(), found.raw_weights.flatten(), operator.first, operator.products)


def curvlinops(problem: Problem, given: Any, steps: int = STEPS) -> Rule:
    """Use curvlinops' density: with the ends of the spectrum given, or as shipped, which finds them by ARPACK first."""
    import curvlinops as theirs
    from curvlinops.papyan2020traces import spectrum

    operator: Any = Watched(peers.curvlinops_product(problem), problem.size)
    kept: list[Any] = []

    def lanczos(A: Any, ncv: int) -> tuple[Tensor, Tensor]:
        before = operator.products
        operator.products = 0  # so that the vector that Lanczos starts from is kept
        kept.append(fast(A, ncv))
        operator.products += before
        return kept[-1]

    fast = spectrum.fast_lanczos
    torch.manual_seed(0)  # it draws from the global stream
    with patch.object(spectrum, "fast_lanczos", lanczos):
        theirs.lanczos_approximate_spectrum(operator, steps, boundaries=given)
    nodes, vectors = kept[0]
    return Rule(nodes, vectors[0].square(), operator.first, operator.products)


def pyhessian(problem: Problem, _: Any, steps: int = STEPS) -> Rule:
    """Use PyHessian's density, with `torch.eig`, which it calls and which is no more, put back for the time of the call."""
    made = peers.pyhessian(problem)
    torch.manual_seed(0)  # it draws from the global stream
    with counted(made) as watched, peers.as_shipped(), patch.object(torch, "eig", _eig):
        nodes, weights = made.density(iter=steps, n_v=1)
    return Rule(torch.tensor(nodes[0]), torch.tensor(weights[0]), watched.first, watched.products)


def _eig(T: Tensor, eigenvectors: bool) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(T)
    return torch.stack([values, torch.zeros_like(values)], -1), vectors


def solvers(brief: bool, steps: int = STEPS, ends: tuple[float, float] = (-1.0, 1.0)) -> list[Solver]:
    """Everybody who computes densities."""
    return [
        Solver("eigenscape", partial(ours, steps=steps)),
        Solver("eigenscape, reorthogonalised", partial(_reorthogonalised, steps=steps)),
        Solver("curvlinops, ends given", partial(_given, ends=ends, steps=steps)),
        Solver("curvlinops", partial(curvlinops, steps=steps)),
        Solver("hessian-eigenthings", partial(eigenthings, steps=steps)),
        Solver("PyHessian", partial(pyhessian, steps=steps)),
    ]


def _reorthogonalised(problem: Problem, _: Any, steps: int) -> Rule:
    return ours(problem, True, steps)


def _given(problem: Problem, _: Any, ends: tuple[float, float], steps: int) -> Rule:
    return curvlinops(problem, ends, steps)


def judged(product: Product, largest: float, rule: Rule) -> Row:
    """Compare four moments of the rule with those of its own vector, and its largest node with the largest eigenvalue.

    The moments `v^T H^k v` come from two products in float64; odd ones are measured against their even neighbours.
    """
    v = rule.start.double() / rule.start.double().norm()
    Hv = product(v)
    HHv = product(Hv)
    exact = [float(v @ Hv), float(Hv @ Hv), float(Hv @ HHv), float(HHv @ HHv)]
    scales = [exact[1] ** 0.5, exact[1], (exact[1] * exact[3]) ** 0.5, exact[3]]
    nodes, weights = rule.nodes.double(), rule.weights.double()
    found = [float((weights * nodes**k).sum()) for k in (1, 2, 3, 4)]
    moments = max(abs(f - e) / s for f, e, s in zip(found, exact, scales))
    top = abs(float(nodes.max()) / largest - 1)
    return {"products": rule.products, "moments": moments, "top": top, "right": max(moments, top) <= TOLERANCE}


def kept_by(network: str, steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Gradients with a few steps, and then a density of `steps` steps, for the memory that steps add."""
    from .workloads import workload

    problem = Problem.of(workload(network))
    return lambda: ours(problem, None, 20), lambda: ours(problem, None, steps)


def run(say: Say, brief: bool) -> Iterator[Row]:
    """Measure every network; then our memory at different numbers of steps."""
    steps = 40 if brief else STEPS
    for name, objective in networks(brief):
        say(f"{name}: the ends of the spectrum in float64, to judge by")
        product = plain.exact(objective, "Hessian")
        largest = float(truth(product, objective.layout.size, 1)[0])
        smallest = -float(truth(lambda V, p=product: -p(V), objective.layout.size, 1)[0])
        judge = partial(judged, product, largest)
        everybody = solvers(brief, steps, (smallest, largest))
        found = contest(name, Problem.of(objective), everybody, judge, 1 if brief else ROUNDS, say)
        if not brief:
            say(f"{name}: the memory of each, in processes of their own")
            weigh(found, __name__)
            for more in (50, 100, 200):
                growth = beyond(kept_by, name, more)
                found.append({"network": name, "contestant": f"eigenscape, {more} steps after 20", "MB": growth})
        yield from found


SUITE = Suite(
    name="density",
    title=f"A spectral density: {STEPS} Lanczos steps from one random vector",
    run=run,
    columns=("network", "contestant", "gradients", "products", "seconds", "MB", "moments", "top", "right", "note"),
    notes=(
        "gradients: a whole call from nothing, operator included, in gradients of the same loss on the same data, measured in "
        "between; medians of three; processor time on one thread.",
        "moments: the largest relative error of the first four moments, against products in float64 with the same vector; "
        f"top: relative distance of the largest node from the largest eigenvalue. Right: both at most {TOLERANCE:g}.",
        "MB: peak memory of a process of its own, beyond what gradients need. Lines of steps: what a density of so many steps "
        "needs beyond one of 20 in the same process: no more for 200 steps than for 50, since no vectors are kept.",
        "curvlinops looks for the ends of the spectrum by ARPACK unless they are given; finding them is not priced then. "
        "PyHessian calls torch.eig, which is no more: it was put back for this run.",
    ),
    bars=Bars(label=f"a density of {STEPS} steps, in gradients"),
)
