"""Outputs of attention over scalar tokens, `A x`, and their first two derivatives in `c = <w_Q, w_K>`."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import TheoryError
from .moments import check_finite
from .scalar import derivatives

Activation = Callable[[Tensor], Tensor]
"""Maps scores (..., L, L) to attention weights of the same shape, row by row."""


@dataclass(frozen=True, eq=False)
class AttentionMoments:
    """`m = A x` for every token, and `dm/dc` and `d2m/dc2`.

    For the softmax these are the moments of the tokens under the attention of token i: with the mean `m1`, the variance `m2`
    and the third central moment `m3`, the derivatives are `x_i m2 / sqrt(d)` and `x_i^2 m3 / d`.

    >>> x = torch.tensor([[0.0, 2.0]], dtype=torch.float64)
    >>> m = AttentionMoments.of(torch.zeros(1, dtype=torch.float64), x, 4, torch.zeros(2, 2))
    >>> m.value.tolist(), m.slope.tolist()
    ([[[1.0, 1.0]]], [[[0.0, 1.0]]])
    """

    value: Float[Tensor, "*batch h s L"]
    slope: Float[Tensor, "*batch h s L"]
    curvature: Float[Tensor, "*batch h s L"]

    @classmethod
    def of(
        cls,
        c: Float[Tensor, "*batch h"],
        X: Float[Tensor, "*batch s L"],
        width: int,
        bias: Float[Tensor, "*#batch h s L L"],
        activation: Activation | None = None,
    ) -> "AttentionMoments":
        """Attend with scores `c x_i x_j / sqrt(width) + bias_ij`; the activation is the softmax unless given."""
        x = X.unsqueeze(-3)
        if activation is None:
            A = (c[..., None, None, None] * _scores(x, width) + bias).softmax(-1)
            m1 = A @ x.unsqueeze(-1)
            centred = x.unsqueeze(-2) - m1
            m2, m3 = (A * centred.square()).sum(-1), (A * centred**3).sum(-1)
            return cls(m1.squeeze(-1), x * m2 / width**0.5, x.square() * m3 / width)

        def outputs(c: Float[Tensor, "*batch h s L"]) -> Tensor:
            weights = activation(c.unsqueeze(-1) * _scores(x, width) + bias)
            return (weights @ x.unsqueeze(-1)).squeeze(-1)

        rows = torch.broadcast_shapes(c.shape[:-1], X.shape[:-2])
        each = c.expand(*rows, c.shape[-1])[..., None, None].expand(*rows, c.shape[-1], *X.shape[-2:])
        found = cls(outputs(each), *derivatives(outputs, each))
        check_finite(activation=torch.stack([found.value, found.slope, found.curvature]))
        return found


def _scores(x: Float[Tensor, "*batch 1 s L"], width: int) -> Float[Tensor, "*batch 1 s L L"]:
    return x.unsqueeze(-1) * x.unsqueeze(-2) / width**0.5


def score_bias(
    X: Float[Tensor, "*batch s L"], mask: Tensor | None, sink: float | Tensor, lengths: Tensor | None
) -> Float[Tensor, "*#batch h s L L"]:
    """What is added to the scores: the mask (0 or -inf, or numbers as they are), the sink, and -inf beyond the lengths.

    >>> score_bias(torch.zeros(1, 2), torch.ones(2, 2).tril().bool(), 3.0, None)[0, 0]
    tensor([[3., -inf],
            [3., 0.]], dtype=torch.float64)
    """
    s, L = X.shape[-2:]
    first = torch.zeros(L, dtype=X.dtype, device=X.device).double()
    first[0] = 1.0
    bias = torch.as_tensor(sink, dtype=torch.float64, device=X.device)[..., None, None, None, None] * first
    check_finite(sink=bias)
    if mask is not None:
        bias = bias + _additive(mask, s, L).unsqueeze(-4)
    if lengths is not None:
        beyond = torch.arange(L, device=X.device) >= lengths.unsqueeze(-1)  # (s, L)
        bias = bias.masked_fill(beyond[:, None, :], -torch.inf)
    if bool((bias == -torch.inf).all(-1).any()):
        raise TheoryError("a token may attend to none; expected at least one True in each row of the mask.")
    return bias


def _additive(mask: Tensor, s: int, L: int) -> Float[Tensor, "*batch s L L"]:
    """Turn a mask into numbers that are added to the scores."""
    if not isinstance(mask, Tensor) or mask.shape[-2:] != (L, L) or (mask.ndim > 2 and mask.shape[-3] not in (1, s)):
        got = f"shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else f"type {type(mask).__name__}"
        raise TheoryError(f"the mask has {got}; expected ({L}, {L}) or (..., {s}, {L}, {L}): rows attend to columns.")
    if mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=torch.float64, device=mask.device)
        mask = torch.where(mask, zero, -torch.inf)
    if bool(mask.isnan().any()) or bool((mask == torch.inf).any()):
        raise TheoryError("the mask holds NaN or +inf; expected numbers to add to the scores, -inf to hide, or True to show.")
    return mask.double() if mask.ndim > 2 else mask.double().unsqueeze(0)


def token_weights(X: Float[Tensor, "*batch s L"], lengths: Tensor | None) -> Float[Tensor, "s L"]:
    """Weight of each token in the loss: the mean over the tokens of a sequence, then over sequences.

    >>> token_weights(torch.zeros(2, 4), torch.tensor([2, 4]))
    tensor([[0.2500, 0.2500, 0.0000, 0.0000],
            [0.1250, 0.1250, 0.1250, 0.1250]], dtype=torch.float64)
    """
    s, L = X.shape[-2:]
    if lengths is None:
        return torch.full((s, L), 1 / (s * L), dtype=torch.float64, device=X.device)
    fits = isinstance(lengths, Tensor) and lengths.shape == (s,) and not lengths.is_floating_point()
    if not fits or int(lengths.min()) < 1 or int(lengths.max()) > L:
        raise TheoryError(f"lengths are {lengths}; expected {s} integers from 1 to {L}: torch.tensor([...]).")
    size = lengths.to(X.device).unsqueeze(-1)
    return (torch.arange(L, device=X.device) < size).double() / (s * size)
