"""Batches as users hold them: tensors, tuples and dictionaries of tensors, nested."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def tensors(tree: Any) -> Iterator[Tensor]:
    """All tensors of a nested structure, in order.

    >>> [t.item() for t in tensors({"a": torch.tensor(1), "b": (torch.tensor(2), None)})]
    [1, 2]
    """
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from tensors(value)


def tree_map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply a function to every tensor of a nested structure; everything else passes through."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        return (
            type(tree)([tree_map(function, value) for value in tree])
            if type(tree) in (tuple, list)
            else tuple(tree_map(function, value) for value in tree)
        )
    return tree


def leading(tree: Any) -> int | None:
    """Length of the first axis of the first tensor that has one, or None."""
    return next((t.shape[0] for t in tensors(tree) if t.ndim > 0), None)


def cut(tree: Any, size: int, part: slice) -> Any:
    """Rows `part` of every tensor whose first axis has length `size`."""
    return tree_map(lambda t: t[part] if t.ndim > 0 and t.shape[0] == size else t, tree)


def size_of(inputs: Any, targets: Any) -> int:
    """Number of samples in a batch: rows of the targets, or of the inputs."""
    found = leading(targets)
    return (found if found is not None else leading(inputs)) or 1


def picked(tree: Any, size: int, rows: Tensor) -> Any:
    """These rows of every tensor whose first axis has length `size`."""
    return tree_map(lambda t: t[rows.to(t.device)] if t.ndim > 0 and t.shape[0] == size else t, tree)


def fingerprint(tree: Any) -> tuple[float, ...]:
    """A few numbers that change when the data or its order changes: shapes, and per tensor a position-weighted sum."""
    return tuple(x for t in tensors(tree) for x in (*map(float, t.shape), _signature(t)))


def _signature(t: Tensor) -> float:
    if t.numel() == 0:
        return 0.0
    flat = t.detach().reshape(-1).to(torch.float64) if not t.is_complex() else torch.view_as_real(t).reshape(-1).double()
    ramp = torch.arange(1, flat.numel() + 1, device=flat.device, dtype=torch.float64).sin()
    return float(flat @ ramp)
