"""Every eigenvalue of a small matrix."""

from typing import Any

import torch

from ..core import ExplicitSpace, SolverError, Spectrum
from .complete import columns
from .products import Products

LIMIT = 20_000  # beyond it the matrix alone takes more than 3 GB in float64


def dense(H: Any, vectors: bool = False) -> Spectrum:
    """Form the matrix from all n products and decompose it in float64; `vectors=True` keeps the eigenvectors.

    Values ascend, each with multiplicity 1. A value is labelled `"zero"` when rounding can explain it (in every member of a
    stack), all others `"bulk"`: what an outlier is, the numbers alone do not say.

    >>> from eigenscape.linop import Diagonal
    >>> s = dense(Diagonal(torch.tensor([3.0, 0.0, -1.0])))
    >>> s.expand(), s.labels
    (tensor([-1.,  0.,  3.], dtype=torch.float64), ('bulk', 'zero', 'bulk'))
    """
    A = Products(H)
    if A.n > LIMIT:
        raise SolverError(
            f"the matrix has size {A.n}; expected at most {LIMIT} for all eigenvalues: use es.eigsh for extreme eigenvalues, "
            "es.density for the whole distribution."
        )
    M = columns(A)
    values, X = torch.linalg.eigh(M) if vectors else (torch.linalg.eigvalsh(M), None)
    zero = values.abs() <= A.n * A.eps * values.abs().amax(-1, keepdim=True)
    labels = tuple("zero" if z else "bulk" for z in zero.all(0).tolist())
    spaces = None if X is None else tuple(ExplicitSpace(A.restore(X[..., i : i + 1])) for i in range(A.n))
    return Spectrum(A.restore(values), torch.ones(A.n, dtype=torch.long, device=A.device), labels, spaces)
