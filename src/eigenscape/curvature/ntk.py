"""The neural tangent kernel: the Gram matrix of the outputs' gradients."""

import itertools

import torch
from torch import Tensor

from ..linop import Operator
from .engines.kept import Kept
from .engines.point import Point
from .engines.running import run
from .graphs import jacobian_graph
from .objective import Objective
from .operators import require_objective
from .selftest import self_test


class TangentKernel(Operator):
    """`J J^T` over all outputs of all samples: one row per output, samples in data order, outputs row-major."""

    def __init__(self, objective: Objective, *, check: bool | None = None, memory: float | None = None):
        require_objective(objective)
        self.objective = objective
        self.graphs = Kept(Point(objective), jacobian_graph, memory)
        sizes = run(objective, lambda: [self._outputs(piece).numel() for piece in objective.pieces()])
        super().__init__(sum(sizes), dtype=objective.dtype, device=objective.device)
        self._slices = [slice(a, b) for a, b in itertools.pairwise([0, *itertools.accumulate(sizes)])]
        self._untested = objective.check if check is None else check

    def _outputs(self, piece) -> Tensor:
        with torch.no_grad():
            return self.objective.tensor_outputs(self.objective.parameters, piece)

    @property
    def engine(self) -> str:
        """How products are computed at the moment."""
        return f"NTK by double backward, graphs {self.graphs}"

    def matmat(self, V):
        """Pull all outputs back to the parameters in one pass, push them forward in a second."""
        if self._untested:
            self_test(self.objective, jacobian_graph, "NTK")
            self._untested = False
        return run(self.objective, lambda: torch.stack([self._product(v) for v in V.detach().mT.contiguous()], -1))

    def _product(self, v: Tensor) -> Tensor:
        names = list(self.objective.layout.names)
        pulled = {n: torch.zeros_like(p) for n, p in self.objective.parameters.items()}
        for graph, part in zip(self.graphs, self._slices, strict=True):
            for name, g in graph.pull(v[part].view_as(graph.outputs), names).items():
                pulled[name] += g
        return torch.cat([graph.push(pulled).reshape(-1) for graph in self.graphs])


def ntk(objective: Objective, *, check: bool | None = None, memory: float | None = None) -> TangentKernel:
    """Neural tangent kernel `J J^T` over all outputs of all samples, without normalisation.

    >>> from torch import nn
    >>> obj = Objective(nn.Linear(2, 1, bias=False), nn.MSELoss(), (torch.eye(2), torch.zeros(2, 1)))
    >>> ntk(obj) @ torch.ones(2)
    tensor([1., 1.])
    """
    return TangentKernel(objective, check=check, memory=memory)
