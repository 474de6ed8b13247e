"""Central differences of first derivatives, for what cannot be differentiated twice."""

import itertools
import math

import torch
from torch import Tensor

from ..objective import Objective
from .engine import Engine, Matrix
from .kept import Kept
from .point import Point
from .running import run

LADDER = 7  # steps tried, each a quarter of the one before


class Difference(Engine):
    """`(g(x + h v) - g(x - h v)) / 2h`, extrapolated once from h and 2h, at the h that loses least to rounding and truncation.

    `error` is the largest relative error estimated so far, from the disagreement between steps.
    """

    def __init__(self, objective: Objective, matrix: Matrix, memory: float | None = None):
        super().__init__(objective, matrix)
        self.graphs = Kept(Point(objective), matrix.graph, 0.0)
        self.error = 0.0
        self._version, self._h, self._floor = 0, 0.0, 0.0

    def __str__(self) -> str:
        return f"central differences of gradients, relative error about {self.error:.0e}"

    def matmat(self, V):
        """Multiply column by column, at four gradients each."""
        return torch.stack([self._product(v) for v in V.unbind(-1)], -1)

    def release(self) -> None:
        """Nothing is kept."""

    def _product(self, v: Tensor) -> Tensor:
        norm = float(v.double().norm())
        if norm == 0:
            return torch.zeros_like(v)
        return norm * run(self.objective, lambda: self._along(v / norm))

    def _along(self, v: Tensor) -> Tensor:
        h = self._step(v)
        once, twice = self._difference(v, h), self._difference(v, 2 * h)
        best = (4 * once - twice) / 3
        size = float(best.norm())
        self.error = max(self.error, self._floor, float((best - once).norm()) / size if size > 0 else 0.0)
        return best

    def _difference(self, v: Tensor, h: float) -> Tensor:
        named, total = self.layout.unflatten(v), torch.zeros_like(v)
        for graph in self.graphs:
            total += self.layout.flatten(graph.difference(named, h))
        return total

    def _step(self, v: Tensor) -> float:
        """The step whose result differs least from that of the next longer one, sought once for each point."""
        version = self.graphs.point.refresh()
        if version != self._version:
            square = sum(float(p.double().square().sum()) for p in self.objective.parameters.values())
            longest = (math.sqrt(square) or 1.0) * torch.finfo(self.objective.dtype).eps ** (1 / 5)
            ladder = [longest / 4**k for k in range(LADDER)]
            results = [self._difference(v, h) for h in ladder]
            gaps = [float((a - b).norm()) for a, b in itertools.pairwise(results)]
            k = gaps.index(min(gaps))
            self._h, self._version = ladder[k + 1] / 2, version
            self._floor = gaps[k] / float(results[k].norm()) if gaps[k] > 0 else 0.0
        return self._h
