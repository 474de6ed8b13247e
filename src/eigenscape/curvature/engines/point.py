"""The parameters that kept work belongs to."""

import torch
from torch import Tensor

from ..hazards import check_finite_parameters
from ..objective import Objective, leaf_copies

Leaves = dict[str, Tensor]


class Point:
    """A copy of the parameters, made afresh when the model's own have changed since, in whatever way."""

    def __init__(self, objective: Objective):
        self.objective = objective
        self.version = 0
        self.leaves: Leaves = {}

    def refresh(self) -> int:
        """Number of the present point; it grows by one whenever the parameters have changed."""
        now = self.objective.parameters
        if not self.leaves or self._moved(now):
            if self.objective.check:
                check_finite_parameters(now)
            self.leaves = leaf_copies({name: p.clone() for name, p in now.items()})
            self.version += 1
        return self.version

    def _moved(self, now: Leaves) -> bool:
        pairs = [(p.detach(), self.leaves[name].detach()) for name, p in now.items()]
        if not all(p.is_cuda for p, _ in pairs):
            return not all(torch.equal(p, leaf) for p, leaf in pairs)
        sizes = torch._foreach_norm(torch._foreach_sub(*map(list, zip(*pairs))), float("inf"))
        return not bool((torch.stack(list(sizes)) == 0).all())  # the only wait for the device; NaN has moved
