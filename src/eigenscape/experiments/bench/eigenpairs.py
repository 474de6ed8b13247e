"""What the ten largest eigenvalues cost, with every residual at most a thousandth of its eigenvalue."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
from scipy.sparse.linalg import eigsh as arpack
from torch import Tensor

from ...curvature import hessian
from ...linop import as_operator
from ...solvers import eigsh
from . import peers, plain
from .contest import Solver, Watched, contest, weigh
from .plain import Problem, Product
from .suite import Bars, Row, Say, Suite
from .workloads import networks

K, TOL = 10, 1e-3
SLACK = 1.05  # on a residual: float32 products are rounded
ROUNDS, CAP = 3, 600
STEPS = (20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100, 120)
TOLERANCES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4)

Pairs = tuple[Tensor, Tensor, int]  # values (k,), vectors (n, k), products


def ours(problem: Problem, setting: Any, k: int = K, verify: bool = True) -> Pairs:
    """`es.eigsh`, with its search for eigenvalues that were missed, or without, as the others."""
    found = eigsh(hessian(problem.objective), k, tol=TOL, verify=verify)
    return found.values, found.vectors, found.num_matvecs


def eigenthings(problem: Problem, steps: int, k: int = K) -> Pairs:
    """Solve by hessian-eigenthings' Lanczos; beyond 50 steps it does not reorthogonalise unless told so."""
    from hessian_eigenthings import lanczos

    operator: Any = Watched(peers.eigenthings_product(problem), problem.size)
    found = lanczos(operator, k=k, max_iter=steps, tol=TOL, which="LA", reorthogonalize=True, seed=0)
    return found.eigenvalues, found.eigenvectors.mT, operator.products


def by_arpack(make: Callable[[Problem], Product], problem: Problem, tol: Any, k: int = K) -> Pairs:
    """Solve by SciPy's ARPACK on a library's products."""
    operator = Watched(make(problem), problem.size)
    start = np.random.default_rng(0).standard_normal(problem.size).astype(np.float32)
    values, vectors = arpack(operator.to_scipy(), k, which="LA", tol=tol, v0=start)
    return torch.from_numpy(values), torch.from_numpy(vectors), operator.products


@contextlib.contextmanager
def counted(made: Any, limit: int | None = None) -> Iterator[Watched]:
    """Let PyHessian multiply through an operator that counts."""
    theirs = import_module("pyhessian.hessian")  # the package has a class of that name, too
    multiply, params = theirs.hessian_vector_product, made.params

    def product(V: Tensor) -> Tensor:
        parts = V[:, 0].split([p.numel() for p in params])
        return plain.flat(multiply(made.gradsH, params, [v.view_as(p) for v, p in zip(parts, params)])).unsqueeze(-1)

    watched = Watched(product, sum(p.numel() for p in params), limit)

    def hooked(_: Any, params: list[Tensor], v: list[Tensor]) -> list[Tensor]:
        parts = (watched @ plain.flat(v)).split([p.numel() for p in params])
        return [part.view_as(p) for part, p in zip(parts, params)]

    with patch.object(theirs, "hessian_vector_product", hooked):
        yield watched


def pyhessian(problem: Problem, tol: float, k: int = K) -> Pairs:
    """Solve by PyHessian's power iteration with deflation; 1e-3 is what it is shipped with."""
    made = peers.pyhessian(problem)
    torch.manual_seed(0)  # it draws from the global stream
    with counted(made, CAP) as watched, peers.as_shipped():
        values, vectors = made.eigenvalues(maxIter=100 if tol == 1e-3 else CAP, tol=tol, top_n=k)
    return torch.tensor(values), torch.stack([plain.flat(v) for v in vectors], -1), watched.products


def solvers(brief: bool, k: int = K) -> list[Solver]:
    """Everybody who finds eigenpairs."""
    return [
        Solver("eigenscape", partial(ours, k=k)),
        Solver("eigenscape, verify=False", partial(ours, k=k, verify=False)),
        Solver("torch, graph kept + ARPACK", partial(by_arpack, plain.kept, k=k), TOLERANCES, TOL),
        Solver("curvlinops + ARPACK", partial(by_arpack, peers.curvlinops_product, k=k), TOLERANCES, TOL),
        Solver("hessian-eigenthings", partial(eigenthings, k=k), STEPS[-1:] if brief else STEPS),
        Solver("PyHessian", partial(pyhessian, k=k), (1e-3, 1e-6), 1e-3, rounds=1),
    ]


def truth(product: Product, n: int, k: int) -> Tensor:
    """Largest eigenvalues in float64, by ARPACK on the judge's products."""
    operator = as_operator(product, n=n, dtype=torch.float64)
    start, tol = np.random.default_rng(1).standard_normal(n), cast(Any, 1e-5)
    values = arpack(operator.to_scipy(), k + 2, which="LA", tol=tol, v0=start, return_eigenvectors=False)
    return torch.from_numpy(values).sort(descending=True).values[:k]


def judged(product: Product, largest: Tensor, pairs: Pairs) -> Row:
    """Residuals with float64 products, and whether these are the largest eigenvalues, each once."""
    values, vectors, products = pairs
    order = values.double().argsort(descending=True)
    t, V = values.double()[order], vectors.double()[:, order]
    V = V / V.norm(dim=0)
    residual = float(((product(V) - V * t).norm(dim=0) / t.abs()).max())
    missed = float(((t - largest).abs() / largest.abs()).max())
    overlap = float((V.mT @ V - torch.eye(len(t), dtype=V.dtype)).abs().max())
    right = residual <= SLACK * TOL and missed <= 2 * TOL and overlap <= 0.05
    return {"products": products, "residual": residual, "value error": missed, "right": right}


def run(say: Say, brief: bool) -> Iterator[Row]:
    """Measure every network."""
    k = 2 if brief else K
    for name, objective in networks(brief):
        say(f"{name}: the eigenvalues in float64, to judge by")
        product = plain.exact(objective, "Hessian")
        largest = truth(product, objective.layout.size, k)
        judge = partial(judged, product, largest)
        found = contest(name, Problem.of(objective), solvers(brief, k), judge, 1 if brief else ROUNDS, say)
        if not brief:
            say(f"{name}: the memory of each, in processes of their own")
            weigh(found, __name__)
        yield from found


SUITE = Suite(
    name="eigenpairs",
    title=f"The {K} largest eigenvalues to a relative residual of {TOL:g}",
    run=run,
    columns=(
        *("network", "contestant", "setting", "gradients", "products", "seconds", "MB"),
        *("residual", "value error", "right", "note"),
    ),
    notes=(
        "gradients: a whole call from nothing, operator included, in gradients of the same loss on the same data, measured in "
        "between; medians of three (PyHessian: one); processor time on one thread.",
        "setting: the loosest that reaches the residual: Lanczos steps of hessian-eigenthings, tolerances of the others. Only "
        "that call is priced; whoever does not know it beforehand pays for the others, too. Eigenscape is given the "
        "residual, and looks for eigenvalues that it might have missed, but for verify=False, which asks for no more than the "
        "others do.",
        f"residual: the largest |Hv - tv| / |t|, computed by us in float64; right: all at most {TOL:g}, and the values are the "
        "largest ones, each once.",
        f"PyHessian is given {CAP} products.",
    ),
    bars=Bars(label=f"the {K} largest eigenvalues, in gradients"),
)
