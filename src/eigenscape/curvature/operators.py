"""(model, criterion, data) becomes an operator over the parameters: Hessian, GGN, functional Hessian, Fisher."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core import CurvatureError, resolve_generator
from ..linop import Operator
from .engines import Build, KeptGraphs, run
from .graphs import SampledScores, empirical_graph, functional_graph, ggn_graph, hessian_graph
from .objective import Objective
from .selftest import self_test


class CurvatureOperator(Operator):
    """A matrix over an objective's parameters, summed over micro-batches.

    Products are exact (up to rounding) and always at the model's present parameters. Before the first product the
    operator tests itself, unless `check=False`. `memory` bounds the bytes of graphs kept between products.
    """

    def __init__(
        self, objective: Objective, name: str, build: Build, *, check: bool | None = None, memory: float | None = None
    ):
        require_objective(objective)
        super().__init__(objective.layout.size, dtype=objective.dtype, device=objective.device, layout=objective.layout)
        self.objective, self.name = objective, name
        self.graphs = KeptGraphs(objective, build, memory)
        self._untested = objective.check if check is None else check

    @property
    def engine(self) -> str:
        """How products are computed at the moment."""
        return f"{self.name} by {self.graphs}"

    def matmat(self, V):
        """Multiply column by column on each micro-batch's graph: one pass over the data for all columns."""
        layout = self._layout()
        columns = [layout.unflatten(v) for v in V.detach().mT.contiguous()]
        return torch.stack([layout.flatten(w) for w in self._products(columns)], -1)

    def block_products(self, groups: Sequence[Sequence[str]], vectors: Sequence[Tensor]) -> list[Tensor]:
        """Multiply each block by its vector: one pass over the data, no work outside the blocks."""
        layouts = [self._layout().sub(tuple(g)) for g in groups]
        out = self._products([part.unflatten(v.detach()) for part, v in zip(layouts, vectors)])
        return [part.flatten(w) for part, w in zip(layouts, out)]

    def release(self) -> None:
        """Free the memory of the kept graphs; the next product builds them again."""
        self.graphs.release()

    def _products(self, columns: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        if self._untested:
            self_test(self.objective, self.graphs.build, self.name)
            self._untested = False
        return run(self.objective, lambda: self._sum(columns))

    def _sum(self, columns: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        totals = [{name: torch.zeros_like(v) for name, v in column.items()} for column in columns]
        for graph in self.graphs.graphs():
            for total, column in zip(totals, columns):
                for name, part in graph.product(column).items():
                    total[name] += part
        return totals


def require_objective(objective: Any) -> None:
    """Refuse anything that is not an objective."""
    if not isinstance(objective, Objective):
        raise CurvatureError(f"a {type(objective).__name__} came; expected es.Objective(model, criterion, data).")


def hessian(objective: Objective, *, check: bool | None = None, memory: float | None = None) -> CurvatureOperator:
    """Hessian of the whole-set mean loss.

    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> obj = Objective(model, nn.MSELoss(), (torch.eye(2), torch.zeros(2, 1)))
    >>> hessian(obj) @ torch.ones(2)      # (2/n) X^T X = I
    tensor([1., 1.])
    """
    return CurvatureOperator(objective, "Hessian", hessian_graph, check=check, memory=memory)


def ggn(objective: Objective, *, check: bool | None = None, memory: float | None = None) -> CurvatureOperator:
    """Return the generalised Gauss-Newton matrix `J^T (d2 l / d f2) J`, with the criterion's own Hessian in output space."""
    return CurvatureOperator(objective, "GGN", ggn_graph, check=check, memory=memory)


def functional_hessian(objective: Objective, *, check: bool | None = None, memory: float | None = None) -> CurvatureOperator:
    """Functional Hessian `sum_k (dl / df_k) d2 f_k`: the Hessian minus the GGN, computed without subtracting."""
    return CurvatureOperator(objective, "functional Hessian", functional_graph, check=check, memory=memory)


def fisher(
    objective: Objective,
    kind: str = "exact",
    *,
    draws: int = 1,
    generator: torch.Generator | None = None,
    check: bool | None = None,
    memory: float | None = None,
) -> CurvatureOperator:
    """Fisher information matrix.

    - `"exact"`: expectation over the model's own distribution; for a criterion that is a negative log-likelihood of its
      natural parameters (cross-entropy of logits, squared loss, BCE with logits) this is the GGN.
    - `"sampled"`: `draws` targets per datum from the model's distribution, from `generator`; fixed for the operator.
    - `"empirical"`: the data's own targets: the mean outer product of the gradients of single data.

    A datum is a token (cross-entropy), an element (BCE with logits) or a sample (everything else).
    """
    if kind == "exact":
        return CurvatureOperator(objective, "Fisher", ggn_graph, check=check, memory=memory)
    if kind == "empirical":
        return CurvatureOperator(objective, "empirical Fisher", empirical_graph, check=check, memory=memory)
    if kind == "sampled":
        seed = int(torch.randint(0, 2**62, (), generator=resolve_generator(generator)))
        return CurvatureOperator(objective, "sampled Fisher", SampledScores(seed, draws), check=check, memory=memory)
    raise CurvatureError(f'kind is {kind!r}; expected "exact", "sampled" or "empirical".')
