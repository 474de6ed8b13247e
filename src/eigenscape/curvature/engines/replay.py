"""A program on a GPU launched as one piece: captured once as a CUDA graph, replayed at every further product."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakSet

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

    A graph goes on with the settings it was captured under, so there is one for each precision of matrix products. Graphs
    that know of each other share the memory they compute in: `graphs` are the living ones, and results are copied out of it.
    """

    def __init__(self, function: Function, graphs: WeakSet[Any]):
        self.function, self.graphs, self.note = function, graphs, ""
        self.captures: dict[tuple[Any, ...], Capture] = {}

    def __call__(self, v: Tensor) -> tuple[Tensor, ...]:
        """Replay; the first time, capture."""
        if self.note:
            return self.function(v)
        settings = _settings()
        if settings in self.captures:
            return self.captures[settings](v)
        try:
            with synchronising_forbidden(v.device):
                expected = self.function(v)
            self.captures[settings] = self._captured(v, expected)
        except RuntimeError as error:  # an operation that waits for the device, or no memory left
            self.note, self.captures = f"not captured: {str(error).strip().splitlines()[0]}", {}
            return self.function(v)
        return expected

    def _captured(self, v: Tensor, expected: tuple[Tensor, ...]) -> Capture:
        argument, graph = v.clone(), torch.cuda.CUDAGraph()
        pool = next((g.pool() for g in self.graphs), None)
        with torch.cuda.device(v.device), torch.cuda.graph(graph, pool=pool):
            results = self.function(argument)
        self.graphs.add(graph)
        capture = Capture(graph, argument, results)
        for found, wanted in zip(capture(v), expected):
            if not float((found - wanted).double().norm()) <= TOLERANCE * float(wanted.double().norm()):
                raise RuntimeError("its replay differs")
        return capture


@contextlib.contextmanager
def synchronising_forbidden(device: torch.device) -> Iterator[None]:
    """Have operations that wait for the device raise here: a capture that they break may not end cleanly."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _settings() -> tuple[Any, ...]:
    """What a graph is captured under."""
    return torch.backends.cuda.matmul.fp32_precision, torch.are_deterministic_algorithms_enabled()
