"""Double backward on kept first-order graphs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core import Layout
from ..objective import Objective
from .engine import Engine, Matrix
from .kept import Kept
from .point import Point
from .running import run


class Reverse(Engine):
    """Each product is one more backward pass through graphs that are kept between products while they fit in memory.

    With `memory=0` nothing is kept and every product starts from the forward pass.
    """

    def __init__(self, objective: Objective, matrix: Matrix, memory: float | None = None, point: Point | None = None):
        super().__init__(objective, matrix)
        self.graphs = Kept(point or Point(objective), matrix.graph, memory)

    def __str__(self) -> str:
        return f"double backward, graphs {self.graphs}"

    def matmat(self, V):
        """Multiply column by column: batching the columns gains nothing here."""
        columns = V.mT.contiguous().unbind()
        return torch.stack(self.blocks([self.layout] * len(columns), columns), -1)

    def blocks(self, layouts: Sequence[Layout], vectors: Sequence[Tensor]) -> list[Tensor]:
        """Multiply diagonal blocks by a vector each, in one pass over the data and without work outside the blocks."""
        named = [layout.unflatten(v) for layout, v in zip(layouts, vectors)]

        def work() -> list[Tensor]:
            totals = [torch.zeros_like(v) for v in vectors]
            for graph in self.graphs:
                for total, layout, v in zip(totals, layouts, named):
                    total += layout.flatten(graph.product(v))
            return totals

        return run(self.objective, work)

    def release(self) -> None:
        """Free the graphs; the next product builds them again."""
        self.graphs.release()
