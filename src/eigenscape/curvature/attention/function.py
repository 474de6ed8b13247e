"""Attention as autograd functions whose first and second derivatives, in every mode, are the blockwise formulas.

`Attention` returns the output with the two statistics of each row, and its gradient is a function of its own, `Gradient`, of
those statistics: an honest function of all its arguments, with a closed-form tangent and a closed-form transpose. So the
tangent of the statistic l, which `Attention` knows, spares the second derivative a pass over the scores. Third derivatives
are right too, at the price of the whole score matrix.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .ops import batch, blockwise
from .tiles import whole


class Formula(Function):
    """A blockwise formula; its derivatives are those of the same formula on the whole matrix."""

    @staticmethod
    def forward(which: str, mask: Tensor | None, causal: bool, scale: float, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Apply the formula called `which`."""
        return tuple(blockwise(which, tensors, mask, causal, scale))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep inputs."""
        keep(ctx, inputs, ())

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        """Transposed derivative of the formula on the whole matrix."""
        options, tensors, _ = kept(ctx)
        pull = torch.func.vjp(lambda *t: whole(ctx.which, t, *options), *tensors)[1]
        return (None, None, None, None, *pull(cotangents))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """Derivative of the formula on the whole matrix."""
        options, tensors, _ = kept(ctx)
        along = filled(tangents[4:], tensors)
        return torch.func.jvp(lambda *t: whole(ctx.which, t, *options), tuple(tensors), tuple(along))[1]

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: tuple[Any, ...], which: str, mask: Tensor | None, causal: bool, scale: float, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Move the batch to the front."""
        batched, mask = batch((in_dims[4:], in_dims[1]), tensors, mask)
        out = FUNCTIONS.get(which, Formula).apply(which, mask, causal, scale, *batched)
        return out, (0,) * len(out)


class Attention(Formula):
    """`softmax(s Q K^T + B) V` with the row statistics l and M."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep inputs and outputs; M is a constant."""
        ctx.mark_non_differentiable(output[2])
        keep(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        """The gradient; the cotangent of l joins D, for dl/dS = P."""
        (mask, causal, scale), (q, k, v), (O, l, M) = kept(ctx)
        G, lc, _ = cotangents
        G = G.contiguous()
        D = (G.to(l.dtype) * O.to(l.dtype)).sum(-1, keepdim=True) - lc
        parts = Gradient.apply("backward", mask, causal, scale, q, l, M, D, G, k, v)
        return (None, None, None, None, *fitted(parts, (q, k, v)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        """The tangent; M has none."""
        (mask, causal, scale), (q, k, v), (O, l, M) = kept(ctx)
        qt, kt, vt = filled(tangents[4:], (q, k, v))
        Ot, lt = Formula.apply("forward_tangent", mask, causal, scale, q, O, l, M, qt, k, v, kt, vt)
        return Ot, lt, None


class Gradient(Formula):
    """`(Q, l, M, D, G, K, V) -> (dQ, dK, dV)`."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        """The transposed second derivative; only its cheap part where only G moves, as for the Jacobian."""
        options, (q, l, M, D, G, k, v), _ = kept(ctx)
        qc, kc, vc = cotangents
        if any(ctx.needs_input_grad[i] for i in (4, 5, 9, 10)):
            parts = Formula.apply("backward_cotangent", *options, q, l, M, D, G, qc, k, v, kc, vc)
            gq, gl, gD, gG, gk, gv = fitted(parts, (q, l, D, G, k, v))
            return (None, None, None, None, gq, gl, None, gD, gG, gk, gv)
        gG, m = Formula.apply("forward_tangent", *options, q, torch.zeros_like(G), l, M, qc, k, v, kc, vc)
        gG, gD = fitted((gG, -m), (G, D))
        return (None, None, None, None, None, None, None, gD, gG, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
        """The second derivative along a tangent."""
        options, (q, l, M, D, G, k, v), _ = kept(ctx)
        qt, lt, _, Dt, Gt, kt, vt = filled(tangents[4:], (q, l, M, D, G, k, v))
        return Formula.apply("backward_tangent", *options, q, l, M, D, G, qt, lt, Dt, Gt, k, v, kt, vt)


FUNCTIONS: dict[str, type[Formula]] = {"forward": Attention, "backward": Gradient}


def keep(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    """Save the tensors of a call for both modes."""
    ctx.which, mask, ctx.causal, ctx.scale, *tensors = inputs
    ctx.masked, ctx.count = mask is not None, len(tensors)
    saved = (*([mask] if ctx.masked else []), *tensors, *outputs)
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)


def kept(ctx: Any) -> tuple[tuple[Tensor | None, bool, float], Sequence[Tensor], Sequence[Tensor]]:
    """Return the options, the inputs and the outputs of a call."""
    saved = ctx.saved_tensors
    mask, tensors = (saved[0], saved[1:]) if ctx.masked else (None, saved)
    return (mask, ctx.causal, ctx.scale), tensors[: ctx.count], tensors[ctx.count :]


def filled(tangents: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    """Zeros where there is no tangent."""
    return [torch.zeros_like(x) if t is None else t for t, x in zip(tangents, like)]


def fitted(parts: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """Sum gradients over the axes along which an argument was shared."""
    return [part.sum_to_size(x.shape) for part, x in zip(parts, like)]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    grouped: bool = False,
) -> Tensor:
    """`softmax(s Q K^T + B) V` in memory proportional to the length, with first and second derivatives in every mode.

    A boolean mask is true where a key is seen, a float mask B is added (and is a constant); `causal` lets query i see the keys
    up to i; `grouped` repeats each head of k and v for a group of heads of q. Rows that see no key give zero.

    >>> import torch
    >>> attention(torch.zeros(1, 1, 2), torch.ones(1, 3, 2), torch.tensor([[[1.0], [2.0], [6.0]]]))
    tensor([[[3.]]])
    """
    if grouped:
        repeat = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(repeat, -3), v.repeat_interleave(repeat, -3)
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (t.expand(*lead, *t.shape[-2:]).contiguous() for t in (q, k, v))  # once, and not at every derivative
    if mask is not None:
        mask = mask[(None,) * (q.ndim - mask.ndim)]
        mask = mask.expand(*mask.shape[:-2], q.shape[-2], k.shape[-2])
    s = q.shape[-1] ** -0.5 if scale is None else scale
    return Attention.apply("forward", mask, causal, s, q, k, v)[0]
