"""Stages of an analysis: each is timed, its products are counted, and its progress is told to whoever asked."""

from collections.abc import Callable
from typing import TypeVar

import torch

from ..linop import Operator
from .provenance import Stage, Stopwatch

Progress = Callable[[str, int, int | None], None]
"""Called with the stage's name, the products done, and the products expected (None where that is not known)."""

T = TypeVar("T")


def silent(stage: str, done: int, expected: int | None) -> None:
    """Tell nobody."""


class Watched(Operator):
    """Tells a listener how many products have been made, after each of them."""

    def __init__(self, op: Operator, listener: Callable[[int], None]):
        super().__init__(op.n, dtype=op.dtype, device=op.device, batch=op.batch, layout=op.layout)
        self.op, self.listener, self.num_matvecs = op, listener, 0

    def _tell(self, products: int) -> None:
        self.num_matvecs += products
        self.listener(self.num_matvecs)

    def matmat(self, V):
        """Multiply, then tell."""
        out = self.op.matmat(V)
        self._tell(V.shape[-1])
        return out

    def block_products(self, groups, vectors):
        """Multiply the blocks, then tell."""
        out = self.op.block_products(groups, vectors)
        self._tell(len(groups))
        return out

    @property
    def engine(self) -> str:
        """The wrapped engine."""
        return self.op.engine


class Stages:
    """Runs measurements one after the other and keeps the record of each."""

    def __init__(self, device: torch.device, progress: Progress | None = None):
        self.device, self.progress = device, progress or silent
        self.done: list[Stage] = []

    def measure(self, name: str, op: Operator, action: Callable[[Operator], T], expected: int | None = None) -> T:
        """Run `action` on the watched operator; its result's `status` is what the record says."""
        watched = Watched(op, lambda count: self.progress(name, count, expected))
        self.progress(name, 0, expected)
        watch = Stopwatch(self.device)
        result = action(watched)
        status = getattr(result, "status", f"done after {watched.num_matvecs} products")
        self.note(name, watch.seconds, watched.num_matvecs, status)
        return result

    def note(self, name: str, seconds: float, num_matvecs: int, status: str) -> None:
        """Record a stage that has ended."""
        self.done.append(Stage(name, seconds, num_matvecs, status))
        self.progress(name, num_matvecs, num_matvecs)
