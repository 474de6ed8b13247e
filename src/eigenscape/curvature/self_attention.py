"""Self-attention over scalar tokens as a module: the network whose exact spectrum `theory.self_attention` gives."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..core import CurvatureError, random_like, resolve_generator


class SelfAttention(nn.Module):
    r"""`f(x) = sum_h w_V^h softmax(<w_Q^h, w_K^h> x x^T / sqrt(width)) x`, for sequences (s, L) of scalar tokens.

    - width: size d of the queries and keys of each head; their entries start as normal numbers over `sqrt(d)`.
    - heads: how many heads are added up.
    - causal: tokens attend to themselves and those before.
    - sink: a number added to the scores of the first token.

    Parameters are `w_value` (heads,), `w_query` and `w_key` (heads, width).

    >>> SelfAttention(4)(torch.tensor([[2.0, 2.0]])) / SelfAttention(4).w_value      # equal tokens: their mean
    tensor([[2., 2.]], grad_fn=<DivBackward0>)
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 1,
        causal: bool = False,
        sink: float = 0.0,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        if width < 1 or heads < 1:
            raise CurvatureError(f"width is {width} and heads is {heads}; expected at least 1 of each.")
        source = resolve_generator(generator)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        place = torch.get_default_device() if device is None else device
        self.causal, self.sink = causal, sink
        self.w_value = nn.Parameter(random_like((heads,), source, dtype=dtype, device=place))
        self.w_query = nn.Parameter(random_like((heads, width), source, dtype=dtype, device=place) / width**0.5)
        self.w_key = nn.Parameter(random_like((heads, width), source, dtype=dtype, device=place) / width**0.5)

    def mask(self, length: int) -> Tensor | None:
        """Which tokens each token may attend to, True where it may; None for all."""
        if not self.causal:
            return None
        return torch.ones(length, length, dtype=torch.bool, device=self.w_value.device).tril()

    def forward(self, x: Float[Tensor, "s L"]) -> Float[Tensor, "s L"]:
        """Attend, and scale."""
        c = (self.w_query * self.w_key).sum(-1) / self.w_query.shape[-1] ** 0.5
        scores = c[:, None, None, None] * (x.unsqueeze(-1) * x.unsqueeze(-2))
        scores = torch.cat([scores[..., :1] + self.sink, scores[..., 1:]], -1)
        mask = self.mask(x.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return (self.w_value[:, None, None] * (scores.softmax(-1) @ x.unsqueeze(-1)).squeeze(-1)).sum(0)

    def extra_repr(self) -> str:
        """Describe the sizes."""
        heads, width = self.w_query.shape
        return f"{width}, heads={heads}, causal={self.causal}, sink={self.sink}"
