"""The data of an objective: one pair or any re-iterable of pairs, cut into micro-batches, the same on every pass."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ..core import DataError
from .nested import cut, fingerprint, leading

EXPECTED = "expected one (inputs, targets) pair, or a list, DataLoader or other re-iterable of such pairs"


def _is_pair(data: Any) -> bool:
    """A sequence of two whose members are tensors or mappings (inputs may be nested when the targets are a tensor)."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return False
    inputs, targets = data
    return isinstance(inputs, Tensor | Mapping) or isinstance(targets, Tensor)


class Batches:
    """Iterates over `(inputs, targets)` micro-batches; refuses data that cannot be read twice or changes between passes.

    >>> pair = (torch.arange(5.0), torch.zeros(5))
    >>> [inputs.tolist() for inputs, _ in Batches(pair, micro_batch=2)]
    [[0.0, 1.0], [2.0, 3.0], [4.0]]
    """

    def __init__(self, data: Any, micro_batch: int | None = None):
        if micro_batch is not None and (not isinstance(micro_batch, int) or micro_batch < 1):
            raise DataError(f"micro_batch is {micro_batch!r}; expected a positive number of samples, or None.")
        if isinstance(data, Tensor):
            raise DataError(f"data is one tensor of shape {tuple(data.shape)}; {EXPECTED}.")
        self.micro_batch = micro_batch
        self.in_memory = _is_pair(data) or isinstance(data, tuple | list)
        self.source: Iterable[Any] = [tuple(data)] if _is_pair(data) else data
        if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
            raise DataError(f"data is a {type(data).__name__} of single samples; {EXPECTED}: DataLoader(data, 256).")
        if not isinstance(self.source, Iterable):
            raise DataError(f"data is a {type(data).__name__}; {EXPECTED}.")
        if isinstance(self.source, Iterator):
            raise DataError(f"data is a {type(data).__name__}, which can be read only once; {EXPECTED}: data=list(batches).")
        if isinstance(self.source, Sized) and len(self.source) == 0:
            raise DataError(f"data is empty; {EXPECTED}.")
        self._seen: list[tuple[float, ...]] | None = None
        self._passes = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """One pass; compares what a loader yields with its first complete pass."""
        prints: list[tuple[float, ...]] = []
        for index, batch in enumerate(self._quiet_iter()):
            inputs, targets = self._pair(batch, index)
            if not self.in_memory:
                prints.append(fingerprint((inputs, targets)))
                self._compare(index, prints[-1])
            yield from self._micro(inputs, targets)
        if not self.in_memory:
            if self._seen is not None and len(prints) != len(self._seen):
                raise DataError(
                    f"this pass had {len(prints)} batches, the first one {len(self._seen)}; expected the same data on every "
                    "pass: data=list(loader) keeps it fixed."
                )
            self._seen = prints

    def _quiet_iter(self) -> Iterator[Any]:
        """Iterate without moving the global random state (a DataLoader draws a seed even when it does not shuffle).

        Every pass has a random state of its own, so that a loader that shuffles or augments cannot look as if it did not.
        """
        self._passes += 1
        state = torch.Generator().manual_seed(self._passes).get_state()
        iterator: Iterator[Any] | None = None
        while True:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                try:
                    iterator = iter(self.source) if iterator is None else iterator
                    batch = next(iterator)
                except StopIteration:
                    return
                state = torch.get_rng_state()
            yield batch

    def _pair(self, batch: Any, index: int) -> tuple[Any, Any]:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            got = f"{len(batch)} items" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
            raise DataError(f"batch {index} is {got}; {EXPECTED}.")
        return batch[0], batch[1]

    def _compare(self, index: int, found: tuple[float, ...]) -> None:
        if self._seen is None or (index < len(self._seen) and self._seen[index] == found):
            return
        raise DataError(
            f"batch {index} differs between two passes over the data: the loader shuffles or augments; expected the same "
            "batches in the same order: use shuffle=False and fixed transforms, or data=list(loader)."
        )

    def _micro(self, inputs: Any, targets: Any) -> Iterator[tuple[Any, Any]]:
        size = leading(targets) if leading(targets) is not None else leading(inputs)
        if self.micro_batch is None or size is None or size <= self.micro_batch:
            yield inputs, targets
            return
        for start, stop in itertools.pairwise([*range(0, size, self.micro_batch), size]):
            part = slice(start, stop)
            yield cut(inputs, size, part), cut(targets, size, part)
