"""The tools that people use instead, each through its own interface."""

import contextlib
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch import Tensor

from .plain import Problem, Product, by_columns, flat

PACKAGES = {
    "curvlinops": "curvlinops-for-pytorch",
    "hessian-eigenthings": "hessian-eigenthings",
    "PyHessian": "pyhessian",
}


def versions() -> dict[str, str]:
    """Version of each peer that is installed."""
    found = {}
    for name, package in PACKAGES.items():
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(package)
    return found


@contextlib.contextmanager
def as_shipped() -> Iterator[None]:
    """Silence the peers' warnings, which are theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def curvlinops(problem: Problem, matrix: str = "Hessian") -> Any:
    """Make the operator of curvlinops."""
    with as_shipped():
        import curvlinops

        kinds = {"Hessian": curvlinops.HessianLinearOperator, "GGN": curvlinops.GGNLinearOperator}
        return kinds[matrix](problem.model, problem.criterion, problem.parameters, problem.data)


def eigenthings(problem: Problem, matrix: str = "Hessian") -> Any:
    """Make the operator of hessian-eigenthings."""
    import hessian_eigenthings as theirs
    from hessian_eigenthings.loss_fns import supervised_forward, supervised_loss, supervised_loss_of_output

    if matrix == "Hessian":
        return theirs.HessianOperator(problem.model, problem.data, supervised_loss(problem.criterion))
    return theirs.GGNOperator(problem.model, problem.data, supervised_forward, supervised_loss_of_output(problem.criterion))


def pyhessian(problem: Problem) -> Any:
    """Make the object of PyHessian: of one batch, whose graph it keeps, or of a loader."""
    with as_shipped():
        from pyhessian import hessian as theirs

        if len(problem.data) > 1:
            return theirs(problem.model, problem.criterion, dataloader=problem.data, cuda=False)
        made = theirs(problem.model, problem.criterion, data=problem.data[0], cuda=False)
    problem.model.zero_grad()  # it leaves gradients, with their graphs
    return made


def curvlinops_product(problem: Problem, matrix: str = "Hessian") -> Product:
    """Multiply by curvlinops: all columns at once."""
    operator = curvlinops(problem, matrix)
    return lambda V: (operator @ V).detach()


def eigenthings_product(problem: Problem, matrix: str = "Hessian") -> Product:
    """Multiply by hessian-eigenthings."""
    operator = eigenthings(problem, matrix)
    return by_columns(lambda v: operator.matvec(v).detach())


def pyhessian_product(problem: Problem) -> Product:
    """Multiply by PyHessian's own function."""
    made = pyhessian(problem)
    from pyhessian.utils import hessian_vector_product

    def product(v: Tensor) -> Tensor:
        if made.full_dataset:
            with as_shipped():
                return flat(made.dataloader_hv_product(problem.cut(v))[1])
        return flat(hessian_vector_product(made.gradsH, made.params, problem.cut(v)))

    return by_columns(product)
