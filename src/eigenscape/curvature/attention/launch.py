"""Launching the Triton kernels: what they accept, how tensors are laid out for them, and how large their blocks are."""

import importlib
import importlib.util
import math
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .formulas import FORMULAS
from .tiles import output_dtypes

FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Blocks = tuple[int, int, int, int]
# Blocks to try, best first: rows, columns, warps, stages. The first whose tiles fit into the chip's shared memory is kept. With
# 128 by 32 and eight warps, the kernels of a product with GPT-2 took 19 ms in all on an H200; with 64 by 32 and four, 25.
LADDERS: dict[str, tuple[Blocks, ...]] = {
    "rows": ((128, 32, 8, 2), (64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 4, 1), (32, 16, 4, 1), (16, 16, 4, 1)),
    "columns": ((32, 128, 8, 2), (32, 64, 4, 2), (32, 64, 4, 1), (32, 32, 4, 1), (16, 32, 4, 1), (16, 16, 4, 1)),
}
CHOSEN: dict[Any, Blocks] = {}


def fuses(tensors: Sequence[Tensor]) -> bool:
    """Whether the kernels can take these tensors."""
    x = tensors[0]
    return (
        x.dtype in FUSED_DTYPES and all(t.is_cuda or interpreted() for t in tensors) and x.numel() > 0 and available(x.device)
    )


@cache
def available(device: torch.device) -> bool:
    """Whether Triton is installed and the GPU is recent enough for it."""
    if importlib.util.find_spec("triton") is None:
        return False
    return interpreted() or (torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0))


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def precision(dtype: torch.dtype) -> str:
    """How float32 products are computed: as torch's own."""
    if dtype != torch.float32:
        return "ieee"
    chosen = torch.backends.cuda.matmul.fp32_precision
    return "tf32" if chosen == "tf32" else "ieee"


def fused(which: str, tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float) -> list[Tensor]:
    """Apply a formula by its kernels: one over blocks of rows, and one over blocks of columns if it has outputs there."""
    formula, dtype = FORMULAS[which], tensors[0].dtype
    shapes = formula.shapes(tensors, mask)
    lead = shapes[0][:-2]
    outputs = [tensors[0].new_empty(s, dtype=t) for s, t in zip(shapes, output_dtypes(which, dtype))]
    rows, columns = formula.split(tensors)
    arguments = [a for t in tensors for a in matrices(t, lead)]
    sizes = (rows[0].shape[-2], columns[0].shape[-2], rows[0].shape[-1], columns[1].shape[-1])
    settings = (*mask_arguments(mask, lead, rows[0]), causal, scale, precision(dtype))
    count = len(formula.row_outputs)
    launch(which, "rows", arguments, outputs[:count], math.prod(lead), sizes, settings)
    if outputs[count:]:
        launch(which, "columns", arguments, outputs[count:], math.prod(lead), sizes, settings)
    return outputs


def launch(
    which: str,
    side: str,
    arguments: list[Any],
    outputs: list[Tensor],
    problems: int,
    sizes: tuple[int, int, int, int],
    settings: tuple[Any, ...],
) -> None:
    """Run one kernel with the largest blocks that fit."""
    kernels = importlib.import_module(f"{__package__}.kernels")
    kernel = (kernels.ROW_KERNELS if side == "rows" else kernels.COLUMN_KERNELS)[which]
    L, W, E, V = sizes
    *mask, kind, causal, scale, products = settings
    key = (which, side, block_width(E), block_width(V), outputs[0].dtype, products, outputs[0].device)
    for rung in [CHOSEN[key]] if key in CHOSEN else LADDERS[side]:
        rows, columns, warps, stages = rung
        blocks = -(-L // rows) if side == "rows" else -(-W // columns)
        options = {} if interpreted() else {"num_warps": warps, "num_stages": stages}
        try:
            with torch.cuda.device(outputs[0].device) if outputs[0].is_cuda else torch.no_grad():
                kernel[(blocks * problems,)](
                    *arguments, *mask, *outputs, L, W, blocks, scale, E, V, causal, kind, products,
                    block_width(E), block_width(V), rows, columns, **options,
                )  # fmt: skip
        except out_of_resources():
            continue
        CHOSEN[key] = rung
        return
    raise RuntimeError(f"attention with heads of {E} and {V} fits no block of the {side} of {which} on this GPU")


def out_of_resources() -> type[Exception]:
    """Return Triton's error for blocks that are too large."""
    return importlib.import_module("triton.runtime.errors").OutOfResources


def block_width(width: int) -> int:
    """Round up to a power of two that the matrix units take."""
    return max(16, 1 << (width - 1).bit_length())


def matrices(t: Tensor, lead: Sequence[int]) -> tuple[Tensor, int]:
    """A contiguous tensor and the number of its matrices; axes of size one in front are shared by the whole batch."""
    shape = t.shape[:-2]
    first = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    if tuple(shape[first:]) != tuple(lead[first:]):
        t = t.expand(*t.shape[:first], *lead[first:], *t.shape[-2:])
    return t.contiguous(), max(1, math.prod(t.shape[:-2]))


def mask_arguments(mask: Tensor | None, lead: Sequence[int], like: Tensor) -> tuple[Any, ...]:
    """Pointer, repetition, number and strides of the masks, and their kind; nothing is copied that is shared."""
    if mask is None:
        return like, 1, 1, 0, 0, 0, "none"
    shape = mask.shape[:-2]
    own = [i for i, n in enumerate(shape) if n != 1]
    first, last = (own[0], own[-1] + 1) if own else (len(shape), len(shape))
    mask = mask.expand(*shape[:first], *lead[first:last], *shape[last:], *mask.shape[-2:])
    flat = mask.reshape(max(1, math.prod(mask.shape[:-2])), *mask.shape[-2:])
    kind = "bool" if flat.dtype == torch.bool else "float"
    flat = flat.view(torch.uint8) if kind == "bool" else flat
    return flat, math.prod(lead[last:]), len(flat), *flat.stride(), kind
