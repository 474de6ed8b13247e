"""One known matrix in many disguises."""

import torch
from jaxtyping import Float
from scipy.sparse.linalg import aslinearoperator
from torch import Tensor

from ..core import Layout
from ..curvature import hessian
from ..linop import Dense, Diagonal, LowRank, Operator, as_operator
from .losses import objective_with_hessian

REFLECTIONS = 3


def rotated(values: Float[Tensor, "n"], seed: int = 0, dtype: torch.dtype = torch.float64) -> Float[Tensor, "n n"]:
    """Dense symmetric matrix with these eigenvalues, by random Householder reflections from both sides.

    >>> torch.linalg.eigvalsh(rotated(torch.tensor([1.0, 2.0, 3.0])))
    tensor([1.0000, 2.0000, 3.0000], dtype=torch.float64)
    """
    A = torch.diag(values.double())
    generator = torch.Generator().manual_seed(seed)
    for _ in range(REFLECTIONS):
        u = torch.randn(len(values), generator=generator, dtype=torch.float64)
        u = u / u.norm()
        A = A - 2 * torch.outer(u, u @ A)
        A = A - 2 * torch.outer(A @ u, u)
    return ((A + A.mT) / 2).to(dtype)


def disguises(values: Float[Tensor, "n"], seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, Operator]:
    """Operators of every kind with the same eigenvalues, up to rounding in the given dtype.

    >>> sorted(disguises(torch.tensor([1.0, 2.0])))
    ['block', 'dense', 'diagonal', 'hessian', 'low rank', 'matvec', 'negated', 'scaled', 'scipy', 'shifted', 'sum']
    """
    n, A = len(values), rotated(values, seed)
    values = values.double()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    eigenvalues, U = torch.linalg.eigh(A)
    larger = torch.block_diag(A, torch.full((2, 2), 100.0, dtype=torch.float64)).to(dtype)
    larger[-1, 0] = larger[0, -1] = 7.0  # couples the blocks: the diagonal block must not see it
    layout = Layout(("inside", "outside"), ((n,), (2,)))
    cast = A.to(dtype)
    return {
        "dense": Dense(cast),
        "diagonal": Diagonal(values[order].to(dtype)),
        "scaled": 4.0 * Dense((A / 4).to(dtype)),
        "shifted": Dense((A - torch.eye(n, dtype=torch.float64)).to(dtype)).shift(1.0),
        "sum": Dense((0.25 * A).to(dtype)) + Dense((0.75 * A).to(dtype)),
        "negated": -Dense(-cast),
        "low rank": LowRank(U.to(dtype), eigenvalues.to(dtype)),
        "matvec": as_operator(lambda v: cast @ v, n=n, dtype=dtype),
        "scipy": as_operator(aslinearoperator(cast.numpy())),
        "block": Dense(larger, layout=layout).block("inside"),
        "hessian": hessian(objective_with_hessian(cast)),
    }
