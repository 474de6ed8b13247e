"""The formulas on a whole problem in plain PyTorch: block by block, in memory proportional to the length."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .formulas import FORMULAS, Tile

# Rows of a block, and entries of its scores over all its heads: small enough for a cache, large enough to hide a call's price.
ROWS = 128
ENTRIES = 2**19


def tiled(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> list[Tensor]:
    """Apply a formula block by block; no temporary is larger than `ENTRIES` or some rows of one head against all keys."""
    formula = FORMULAS[which]
    precise = accumulator(tensors[0].dtype)
    rows, columns = formula.split([t.to(precise) for t in tensors])
    length, width = rows[0].shape[-2], columns[0].shape[-2]
    shapes = formula.shapes(tensors, mask)
    count = len(formula.row_outputs)
    outputs = [rows[0].new_zeros(shape) for shape in shapes]
    for heads in head_blocks(shapes[0][:-2], min(ROWS, length) * width):
        for start in range(0, length, ROWS):
            stop = min(start + ROWS, length)
            seen = min(stop, width) if causal else width
            part = None if mask is None else block(mask, heads)[..., start:stop, :seen]
            across, down = formula.tile(
                Tile(part, causal, scale, start),
                *(block(t, heads)[..., start:stop, :] for t in rows),
                *(block(t, heads)[..., :seen, :] for t in columns),
            )
            for out, share in zip(outputs[:count], across):
                block(out, heads)[..., start:stop, :] = share
            for out, share in zip(outputs[count:], down):
                block(out, heads)[..., :seen, :] += share
    return [out.to(dtype) for out, dtype in zip(outputs, output_dtypes(which, tensors[0].dtype))]


def whole(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, ...]:
    """The same in one tile, by operations that can be differentiated again, in memory proportional to the length squared."""
    formula, dtype = FORMULAS[which], tensors[0].dtype
    across, down = formula.tile(Tile(mask, causal, scale), *(t.to(accumulator(dtype)) for t in tensors))
    shapes, dtypes = formula.shapes(tensors, mask), output_dtypes(which, dtype)
    return tuple(out.expand(shape).to(kind) for out, shape, kind in zip([*across, *down], shapes, dtypes))


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The precision of sums and of row statistics: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def output_dtypes(which: str, dtype: torch.dtype) -> list[torch.dtype]:
    """Row statistics in the precision of sums, all else like the inputs."""
    formula = FORMULAS[which]
    return [accumulator(dtype) if like == "1" else dtype for like in formula.row_outputs + formula.column_outputs]


Heads = tuple[slice, ...]


def head_blocks(lead: Sequence[int], entries: int) -> Iterator[Heads]:
    """Cut the last two leading axes (batch and heads) so that a block has at most `ENTRIES` entries, or is one head."""
    per_head = entries * max(1, int(torch.Size(lead[:-2]).numel()))
    heads = max(1, ENTRIES // max(per_head, 1))
    if not lead:
        yield ()
    for b in range(lead[-2] if len(lead) > 1 else min(len(lead), 1)):
        for h in range(0, lead[-1], heads):
            yield (slice(b, b + 1), slice(h, h + heads))[-len(lead) :]


def block(t: Tensor, heads: Heads) -> Tensor:
    """Take a block of heads; an axis of one is shared by all."""
    axes = range(-2 - len(heads), -2)
    return t[(..., *(cut if t.shape[axis] > 1 else slice(None) for cut, axis in zip(heads, axes)), slice(None), slice(None))]
