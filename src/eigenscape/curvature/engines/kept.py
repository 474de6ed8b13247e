"""Work per micro-batch that is kept between products, as much as fits in memory."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..objective import Objective, Piece
from .point import Leaves, Point

Build = Callable[[Objective, Leaves, Piece], Any]


class Kept:
    """What `build` makes of each micro-batch, kept while it fits in `memory` bytes, and made anew where it does not.

    `size(item, piece)` says how many bytes an item holds on to. Everything is dropped when the parameters change.
    """

    def __init__(
        self,
        point: Point,
        build: Build,
        memory: float | None = None,
        size: Callable[[Any, Piece], float] | None = None,
        once: Build | None = None,
    ):
        self.point, self.build, self.memory = point, build, memory
        self.objective = point.objective
        self._size, self._once = size or self._graph_bytes, once or build
        self._items: list[Any] = []
        self._version, self._count = 0, -1

    def __str__(self) -> str:
        return f"kept for {len(self._items)} of {self._count} micro-batches" if self._count >= 0 else "not built yet"

    def __len__(self) -> int:
        return len(self._items)

    @property
    def held(self) -> tuple[Any, ...]:
        """What is kept at the moment."""
        return tuple(self._items)

    @property
    def whole(self) -> bool:
        """Whether everything is kept, at the present parameters."""
        return self._count >= 0 and len(self._items) == self._count and self.point.refresh() == self._version

    def __iter__(self) -> Iterator[Any]:
        """The items of all micro-batches; inside `differentiable_twice`."""
        version = self.point.refresh()
        if version != self._version:
            self.release()
            self._version = version
        yield from self._items
        if len(self._items) == self._count:
            return
        first = self._count < 0
        room = (self.memory if self.memory is not None else 0.5 * free_memory(self.objective.device)) if first else 0.0
        count = 0
        for count, piece in enumerate(self.objective.pieces(), start=1):
            if count <= len(self._items):
                continue
            item = (self.build if room > 0 else self._once)(self.objective, self.point.leaves, piece)
            size = 0.0 if count == 1 else self._size(item, piece) if room > 0 else 0.0  # the first one has fitted
            if room > 0 and size <= room:
                room -= size
                self._items.append(item)
            else:
                room = 0.0
            yield item
        self._count = count

    def release(self) -> None:
        """Drop everything."""
        self._items, self._count = [], -1

    def _graph_bytes(self, item: Any, piece: Piece) -> float:
        """Memory that the graph of a micro-batch holds on to, by building it once more with every saved tensor noted."""
        storages: dict[int, int] = {}

        def note(t: Tensor) -> Tensor:
            storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            self.build(self.objective, self.point.leaves, piece).prepare()
        own = {p.untyped_storage().data_ptr() for p in self.point.leaves.values()}
        return float(sum(size for pointer, size in storages.items() if pointer not in own))


def free_memory(device: torch.device) -> float:
    """Bytes free on a device; on the CPU what the operating system says, or 2 GiB where it does not."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 2.0**31
