"""Everything a user may already hold becomes an operator, and an operator becomes SciPy's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

from ..core import OperatorError
from .matrices import Dense
from .operator import Operator


class _FromMatvec(Operator):
    def __init__(self, matvec: Callable[[Tensor], Any], n: int, dtype: torch.dtype, device: torch.device | str):
        super().__init__(n, dtype=dtype, device=device)
        self.matvec = matvec

    def matmat(self, V):
        return torch.stack([self._one(v) for v in V.unbind(-1)], -1)

    def _one(self, v: Tensor) -> Tensor:
        out = self.matvec(v)
        if not isinstance(out, Tensor) or out.shape != v.shape:
            got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise OperatorError(f"matvec returned {got}; expected a tensor of shape {tuple(v.shape)}.")
        return out.to(dtype=self.dtype, device=self.device)

    @property
    def engine(self) -> str:
        return getattr(self.matvec, "__name__", "matvec")


class _FromScipy(Operator):
    def __init__(self, A: LinearOperator, dtype: torch.dtype, device: torch.device | str):
        super().__init__(A.shape[0], dtype=dtype, device=device)
        self.A = A

    def matmat(self, V):
        out = np.asarray(self.A.matmat(V.detach().cpu().numpy()))
        return torch.from_numpy(out).to(dtype=self.dtype, device=self.device)


class _FromTorchLike(Operator):
    """An object with `@` on torch tensors, such as a curvlinops operator."""

    def __init__(self, A: Any, n: int, dtype: torch.dtype, device: torch.device | str):
        super().__init__(n, dtype=dtype, device=device)
        self.A = A

    def matmat(self, V):
        return self.A @ V

    @property
    def engine(self) -> str:
        return type(self.A).__name__


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, np.result_type(dtype, np.float32))).dtype


def as_operator(
    A: Any, n: int | None = None, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Operator:
    """Make an operator of a symmetric tensor, array, SciPy matrix or LinearOperator, curvlinops operator, or matvec.

    A function needs `n=`; its dtype defaults to torch's default, its device to the CPU.

    >>> as_operator(lambda v: 3 * v, n=2, dtype=torch.float64) @ torch.ones(2, dtype=torch.float64)
    tensor([3., 3.], dtype=torch.float64)
    """
    if isinstance(A, Operator):
        return A
    if isinstance(A, Tensor):
        if not A.is_floating_point():
            raise OperatorError(f"the tensor has dtype {A.dtype}; expected a real floating-point dtype: A.double().")
        return Dense(A.to(dtype=dtype or A.dtype, device=device or A.device))
    if isinstance(A, np.ndarray):
        return as_operator(torch.from_numpy(np.asarray(A, np.result_type(A, np.float32))), n, dtype, device)
    if isinstance(A, LinearOperator) or scipy.sparse.issparse(A):
        linear = aslinearoperator(A)
        if linear.shape[0] != linear.shape[1]:
            raise OperatorError(f"the SciPy operator has shape {linear.shape}; expected a square one.")
        return _FromScipy(linear, dtype or _torch_dtype(linear.dtype), device or "cpu")
    shape = getattr(A, "shape", None)
    if hasattr(A, "__matmul__") and shape is not None:
        if len(shape) != 2 or shape[0] != shape[1]:
            raise OperatorError(f"the operator has shape {tuple(shape)}; expected a square one.")
        found = getattr(A, "dtype", None)
        return _FromTorchLike(
            A,
            int(shape[0]),
            dtype or (found if isinstance(found, torch.dtype) else torch.get_default_dtype()),
            device or getattr(A, "device", "cpu"),
        )
    if callable(A):
        if n is None:
            raise OperatorError("a matvec came without a size; expected n=: es.as_operator(matvec, n=1000).")
        return _FromMatvec(A, n, dtype or torch.get_default_dtype(), device or "cpu")
    raise OperatorError(
        f"a {type(A).__name__} cannot become an operator; expected a tensor, an array, a SciPy or curvlinops operator, "
        "or a function v -> A v with n=."
    )


class _ScipyView(LinearOperator):
    """Products through NumPy; symmetric, so its own adjoint."""

    def __init__(self, op: Operator):
        self.op = op
        super().__init__(np.dtype(np.float64 if op.dtype == torch.float64 else np.float32), (op.n, op.n))

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        V = torch.from_numpy(np.ascontiguousarray(X)).to(dtype=self.op.dtype, device=self.op.device)
        out = (self.op @ V).detach().cpu()
        return (out if out.dtype == torch.float64 else out.float()).numpy()

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._matmat(x.reshape(-1, 1))

    _rmatmat = _matmat
    _rmatvec = _matvec


def to_scipy(op: Operator) -> LinearOperator:
    """Wrap an operator for SciPy's solvers."""
    if op.batch:
        raise OperatorError(f"a stack of shape {op.shape} has no SciPy form; expected a single operator.")
    return _ScipyView(op)
