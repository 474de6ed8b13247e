"""Calls of `torch.nn.functional.scaled_dot_product_attention` go to the blockwise attention where that fits and pays."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .function import attention
from .ops import functorch

PLAIN = F.scaled_dot_product_attention
MAX_HEAD = 128
# Scores per head from which the blockwise form is used: below, plain mathematics is as fast and its matrix is small; on a CPU
# the two cross near length 512.
MIN_SCORES = 512 * 512


class TiledAttention(TorchFunctionMode):
    """While active, attention over long sequences keeps no score matrix; all other calls are left as they are.

    Left to torch are: fewer than `min_scores` scores per head, dropout, heads larger than 128, a float mask that is
    differentiated, and arguments that torch refuses.
    """

    def __init__(self, min_scores: int = MIN_SCORES):
        super().__init__()
        self.min_scores = min_scores

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace a call that fits."""
        kwargs = kwargs or {}
        if func is PLAIN:
            return self.attend(*args, **kwargs)
        with self.within() if func is F.multi_head_attention_forward else contextlib.nullcontext():
            return func(*args, **kwargs)

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Reach the call inside a function of torch, whose own calls a mode does not see."""
        setattr(F, PLAIN.__name__, self.attend)
        try:
            yield
        finally:
            setattr(F, PLAIN.__name__, PLAIN)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Compute one call by the means that fit."""
        fits = (
            query.shape[-2] * key.shape[-2] >= self.min_scores
            and dropout_p == 0
            and shapes_fit(query, key, value, enable_gqa)
            and mask_fits(attn_mask, query, key, is_causal)
        )
        if not fits:
            return PLAIN(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        query, key, value = (cast(t) for t in (query, key, value))
        return attention(query, key, value, attn_mask, causal=is_causal, scale=scale, grouped=enable_gqa)


def shapes_fit(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> bool:
    """Whether queries, keys and values are dense tensors of floats that torch would accept."""
    return (
        all(t.layout == torch.strided and t.is_floating_point() and t.ndim == q.ndim >= 3 for t in (q, k, v))
        and q.dtype == k.dtype == v.dtype
        and q.device == k.device == v.device
        and not any(t.is_nested for t in (q, k, v))
        and q.shape[-1] == k.shape[-1] <= MAX_HEAD
        and v.shape[-1] <= MAX_HEAD
        and k.shape[-2] == v.shape[-2]
        and (
            q.shape[-3] % k.shape[-3] == 0 and k.shape[:-1] == v.shape[:-1] and q.shape[:-3] == k.shape[:-3]
            if grouped
            else broadcasts(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        )
    )


def mask_fits(mask: Tensor | None, q: Tensor, k: Tensor, causal: bool) -> bool:
    """Whether a mask is one that torch would accept and a constant."""
    if mask is None:
        return True
    return (
        not causal
        and mask.layout == torch.strided
        and 2 <= mask.ndim <= q.ndim
        and (mask.dtype == torch.bool or (mask.dtype == q.dtype and not differentiated(mask)))
        and broadcasts(mask.shape, (*q.shape[:-1], k.shape[-2]), onto=(*q.shape[:-1], k.shape[-2]))
    )


def broadcasts(*shapes: tuple[int, ...], onto: tuple[int, ...] | None = None) -> bool:
    """Whether shapes broadcast together, and to `onto`."""
    try:
        together = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return False
    return onto is None or together == onto


def differentiated(t: Tensor) -> bool:
    """Whether a derivative with respect to a tensor may be wanted, in any mode and at any level of nested transforms."""
    while True:
        if t.requires_grad or functorch.is_gradtrackingtensor(t):
            return True
        if torch.autograd.forward_ad._current_level >= 0 and torch.autograd.forward_ad.unpack_dual(t).tangent is not None:
            return True
        if not functorch.is_functorch_wrapped_tensor(t):
            return False
        t = functorch.get_unwrapped(t)


def cast(t: Tensor) -> Tensor:
    """Do as autocast does with the arguments of attention."""
    kind = t.device.type
    return t.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) and t.dtype != torch.float64 else t
