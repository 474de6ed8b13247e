"""A program on a GPU launched as one piece: captured once as a CUDA graph, replayed at every further product."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..tape import TOLERANCE

Function = Callable[[Tensor], tuple[Tensor, ...]]


class Capture(NamedTuple):
    """A captured graph, where it reads its argument, and where it leaves its results."""

    graph: Any
    argument: Tensor
    results: tuple[Tensor, ...]

    def __call__(self, v: Tensor) -> tuple[Tensor, ...]:
        """Run it."""
        self.argument.copy_(v)
        self.graph.replay()
        return tuple(r.clone() for r in self.results)


class Replayed:
    """The same function without the time that a thousand launches take; where it cannot be captured, called as it is.

    A graph goes on with the settings it was captured under, so there is one for each precision of matrix products. Graphs may
    share the memory that they compute in, `pool`: results are copied out of it.
    """

    def __init__(self, function: Function, pool: Any = None):
        self.function, self.pool, self.note = function, pool, ""
        self.captures: dict[tuple[Any, ...], Capture] = {}

    def __call__(self, v: Tensor) -> tuple[Tensor, ...]:
        """Replay; the first time, capture."""
        if self.note:
            return self.function(v)
        settings = _settings()
        if settings in self.captures:
            return self.captures[settings](v)
        expected = self.function(v)
        try:
            self.captures[settings] = self._captured(v, expected)
        except RuntimeError as error:  # an operation that waits for the device, or no memory left
            self.note, self.captures = f"not captured: {str(error).strip().splitlines()[0]}", {}
        return expected

    def _captured(self, v: Tensor, expected: tuple[Tensor, ...]) -> Capture:
        argument, graph = v.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            results = self.function(argument)
        capture = Capture(graph, argument, results)
        for found, wanted in zip(capture(v), expected):
            if not float((found - wanted).double().norm()) <= TOLERANCE * float(wanted.double().norm()):
                raise RuntimeError("its replay differs")
        return capture


def _settings() -> tuple[Any, ...]:
    """What a graph is captured under."""
    return torch.backends.cuda.matmul.fp32_precision, torch.are_deterministic_algorithms_enabled()
