"""What `eigenscape.theory` returns for the ledger's cases: judged beside the papers, never used to judge."""

from torch import Tensor

from eigenscape import theory

from .scalar_cases import Scalar


def scalar_linear(case: Scalar) -> Tensor:
    """Whole spectrum of the scalar linear network, ascending."""
    return theory.scalar_linear(case.w, case.v, case.x, case.y).expand()


def scalar_relu(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Whole spectrum of the scalar ReLU network, ascending."""
    return theory.scalar_relu(w, v, x, y).expand()


def scalar_linear_bias(w: Tensor, v: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Whole spectrum of the scalar linear network with hidden bias, ascending."""
    return theory.scalar_linear_bias(w, v, b, x, y).expand()


def block_inputs(w: Tensor, v: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Whole spectrum of a sum of scalar networks, one per input, ascending."""
    return theory.block_diagonal_inputs(w, v, X, y).expand()


def block_outputs(w: Tensor, v: Tensor, x: Tensor, Y: Tensor) -> Tensor:
    """Whole spectrum of scalar networks that share an input, one per output, ascending."""
    return theory.block_diagonal_outputs(w, v, x, Y).expand()
