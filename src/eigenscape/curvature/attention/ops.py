"""The one operation that computes a formula, opaque to tracers: Triton kernels on a GPU, plain PyTorch elsewhere."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .formulas import FORMULAS
from .launch import fused, fuses
from .tiles import output_dtypes, tiled

functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
LIBRARY = torch.library.Library("eigenscape", "DEF")
LIBRARY.define("attention(str which, Tensor[] tensors, Tensor? mask, bool causal, float scale) -> Tensor[]")


def compute(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> list[Tensor]:
    """Compute a formula, in the precision of its arguments."""
    with torch.no_grad(), torch.autocast(tensors[0].device.type, enabled=False):
        return (fused if fuses(tensors) else tiled)(which, tensors, mask, causal, scale)


def shapes_only(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> list[Tensor]:
    """Shapes and dtypes of the outputs, for tracers."""
    dtypes = output_dtypes(which, tensors[0].dtype)
    shapes = FORMULAS[which].shapes(tensors, mask)
    return [tensors[0].new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes)]


def batch(in_dims: tuple[Any, ...], tensors: Sequence[Tensor], mask: Tensor | None) -> tuple[list[Tensor], Tensor | None]:
    """One more leading axis; it has size one where a tensor is not batched, so that what is shared is computed once."""
    dims, of_mask = in_dims
    front = [t.unsqueeze(0) if d is None else t.movedim(d, 0) for t, d in zip(tensors, dims)]
    if mask is None:
        return front, None
    return front, mask.unsqueeze(0) if of_mask is None else mask.movedim(of_mask, 0)


def batched(
    info: Any, in_dims: tuple[Any, ...], which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float
) -> tuple[list[Tensor], list[int]]:
    """Rule of the operation under vmap."""
    out = blockwise(which, *batch(in_dims[1:3], tensors, mask), causal, scale)
    return out, [0] * len(out)


def batched_gradients(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> list[Tensor]:
    """Rule of the operation under `torch.autograd.grad(..., is_grads_batched=True)`, which has a vmap of its own."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()

    def front(t: Tensor | None) -> tuple[Tensor | None, int | None]:
        if t is None or not functorch.is_legacy_batchedtensor(t):
            return t, None
        return torch._remove_batch_dim(t, level, 0, 0), 0

    pairs, (plain_mask, of_mask) = [front(t) for t in tensors], front(mask)
    plain, dims = zip(*pairs)
    out, _ = batched(None, (None, dims, of_mask, None, None), which, plain, plain_mask, causal, scale)
    return [torch._add_batch_dim(t, 0, level) for t in out]


LIBRARY.impl("attention", compute, "CompositeExplicitAutograd")
LIBRARY.impl("attention", batched_gradients, "Batched")
torch.library.register_fake("eigenscape::attention", shapes_only, lib=LIBRARY)
torch.library.register_vmap("eigenscape::attention", batched, lib=LIBRARY)


def blockwise(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> list[Tensor]:
    """Call the operation."""
    return torch.ops.eigenscape.attention(which, list(tensors), mask, causal, scale)
