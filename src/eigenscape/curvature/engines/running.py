"""Differentiating twice: the conditions, the calls, and what to say where it cannot be done."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core import CurvatureError
from ..hazards import differentiable_twice
from ..objective import Objective


def run(objective: Objective, work: Callable[[], Any]) -> Any:
    """Run work that differentiates twice, and explain a kernel that cannot."""
    with differentiable_twice(objective.model, objective.device):
        try:
            return work()
        except RuntimeError as error:
            text = str(error)
            if "not implemented" in text or "not been implemented" in text or "support double backward" in text:
                raise CurvatureError(
                    f"the model has no second derivative: {text.strip().splitlines()[0]}; expected twice differentiable "
                    'kernels: use the plain (eager) form of that layer, or another engine: "reverse", "difference".'
                ) from error
            raise


def grad_of(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor], **options: bool
) -> tuple[Tensor, ...]:
    """Vector-Jacobian product, keeping the graph; outputs that depend on nothing and unused inputs give zeros."""
    pairs = [(o, v) for o, v in zip(outputs, vectors) if o.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(x) for x in inputs)
    return torch.autograd.grad(
        [o for o, _ in pairs],
        list(inputs),
        [v for _, v in pairs],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
        **options,
    )
