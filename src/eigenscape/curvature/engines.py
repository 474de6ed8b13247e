"""How products are computed: a graph per micro-batch, differentiated once and kept while it fits; the replaceable part."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core import CurvatureError
from .hazards import check_finite_parameters, differentiable_twice
from .objective import Objective, Piece, leaf_copies

Leaves = dict[str, Tensor]


Build = Callable[[Objective, Leaves, Piece], Any]


class KeptGraphs:
    """Double backward on graphs that are kept between products, as many as fit in `memory` bytes.

    The graphs hold a copy of the parameters they were built with; when the model's parameters have changed since, in
    whatever way, everything is rebuilt.
    """

    def __init__(self, objective: Objective, build: Build, memory: float | None = None):
        self.objective, self.build, self.memory = objective, build, memory
        self._copy: Leaves | None = None
        self._leaves: Leaves = {}
        self._kept: list[Any] = []
        self._count: int | None = None
        self._whole = False

    def __str__(self) -> str:
        if self._copy is None:
            return "double backward, graphs not built yet"
        return f"double backward, graphs kept for {len(self._kept)} of {self._count} micro-batches"

    def graphs(self) -> Iterator[Any]:
        """The graphs of all micro-batches; inside `differentiable_twice`."""
        self._refresh()
        yield from self._kept
        if self._whole:
            return
        room = self._room() if self._count is None else 0.0
        count = 0
        for count, piece in enumerate(self.objective.pieces(), start=1):
            if count <= len(self._kept):
                continue
            size = 0 if count == 1 else self._graph_bytes(piece) if room > 0 else float("inf")
            graph = self.build(self.objective, self._leaves, piece)
            yield graph
            if size <= room:
                room -= size
                self._kept.append(graph)
            else:
                room = 0.0
        self._count = count
        self._whole = len(self._kept) == count

    def release(self) -> None:
        """Free the kept graphs."""
        self._copy, self._leaves, self._kept, self._count, self._whole = None, {}, [], None, False

    def _refresh(self) -> None:
        now = self.objective.parameters
        if self._copy is not None and all(torch.equal(p, self._copy[name]) for name, p in now.items()):
            return
        self.release()
        if self.objective.check:
            check_finite_parameters(now)
        self._copy = {name: p.clone() for name, p in now.items()}
        self._leaves = leaf_copies(self._copy)

    def _room(self) -> float:
        return self.memory if self.memory is not None else 0.5 * free_memory(self.objective.device)

    def _graph_bytes(self, piece: Piece) -> float:
        """Memory that the graph of a micro-batch holds on to, by building it once with every saved tensor noted."""
        storages: dict[int, int] = {}

        def note(t: Tensor) -> Tensor:
            storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            self.build(self.objective, self._leaves, piece)
        own = {p.untyped_storage().data_ptr() for p in self._leaves.values()}
        return float(sum(size for pointer, size in storages.items() if pointer not in own))


def free_memory(device: torch.device) -> float:
    """Bytes free on a device; on the CPU what the operating system says, or 2 GiB where it does not."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 2.0**31


def run(objective: Objective, work: Callable[[], Any]) -> Any:
    """Run work that differentiates twice, and explain a kernel that cannot."""
    with differentiable_twice(objective.model, objective.device):
        try:
            return work()
        except RuntimeError as error:
            text = str(error)
            if "not implemented" in text or "does not currently support double backward" in text:
                raise CurvatureError(
                    f"the model has no second derivative: {text.strip().splitlines()[0]}; expected twice differentiable "
                    "kernels: use the plain (eager) form of that layer."
                ) from error
            raise


def grad_of(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], vectors: Sequence[Tensor], **options: bool
) -> tuple[Tensor, ...]:
    """Vector-Jacobian product, keeping the graph; outputs that depend on nothing and unused inputs give zeros."""
    pairs = [(o, v) for o, v in zip(outputs, vectors) if o.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(x) for x in inputs)
    return torch.autograd.grad(
        [o for o, _ in pairs],
        list(inputs),
        [v for _, v in pairs],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
        **options,
    )
