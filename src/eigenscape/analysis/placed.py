"""An objective in another precision, or on another device."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..curvature import Objective
from ..curvature.nested import tree_map


class Cast:
    """Iterates over `(inputs, targets)` with every real floating-point tensor in one dtype."""

    def __init__(self, batches: Any, dtype: torch.dtype):
        self.batches, self.dtype = batches, dtype

    def __iter__(self) -> Iterator[Any]:
        def cast(t: Tensor) -> Tensor:
            return t.to(self.dtype) if t.is_floating_point() else t

        return (tree_map(cast, batch) for batch in self.batches)


def placed(obj: Objective, device: torch.device | None = None, dtype: torch.dtype | None = None) -> Objective:
    """Return the objective with a copy of its model on `device` in `dtype`, and data to match; None leaves as it is.

    >>> obj = Objective(torch.nn.Linear(2, 1), torch.nn.MSELoss(), (torch.zeros(3, 2), torch.ones(3, 1)))
    >>> placed(obj, dtype=torch.float64).dtype, obj.dtype
    (torch.float64, torch.float32)
    """
    if device in (None, obj.device) and dtype in (None, obj.dtype):
        return obj
    where, kind = device or obj.device, dtype or obj.dtype
    batches = obj.batch_source
    data = batches.source if kind == obj.dtype else Cast(batches.source, kind)
    return Objective(
        copy.deepcopy(obj.model).to(where, kind),
        copy.deepcopy(obj.criterion).to(where, kind) if isinstance(obj.criterion, nn.Module) else obj.criterion,
        list(data) if batches.in_memory else data,
        params=list(obj.layout.names),
        forward=obj.forward,
        micro_batch=batches.micro_batch,
        weight=obj._weight,
        check=obj.check,
    )
