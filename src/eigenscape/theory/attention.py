"""Self-attention over scalar tokens, `f(x) = w_V softmax(<w_Q, w_K> x x^T / sqrt(d)) x`: its exact Hessian spectrum."""

from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Eigenspace, Spectrum
from .attention_moments import Activation, AttentionMoments, score_bias, token_weights
from .derivatives import Derivatives, derivatives_at
from .moments import check_overflow, conform
from .scalar_products import HALF, Pairs, finite, interleave, safe_sqrt
from .spaces import Permuted, Slots, Span

ONE = {"w_value": "", "w_query": "d", "w_key": "d", "X": "s L", "Y": "s L"}
HEADS = {"w_value": "h", "w_query": "h d", "w_key": "h d", "X": "s L", "Y": "s L"}


@dataclass(frozen=True, eq=False)
class AttentionCurvature:
    """Derivatives of the loss in `(a, c)`, a the values and `c = <w_Q, w_K>` the products of h heads: all there is to know.

    `slope` is `dl/dc`, `hessian` the second derivatives, `ggn` their Gauss-Newton part.
    """

    pairs: Pairs
    slope: Float[Tensor, "*batch h"]
    hessian: Float[Tensor, "*batch 2h 2h"]
    ggn: Float[Tensor, "*batch 2h 2h"]

    @classmethod
    def of(
        cls,
        w_value: Float[Tensor, "*batch h"],
        w_query: Float[Tensor, "*batch h d"],
        w_key: Float[Tensor, "*batch h d"],
        X: Float[Tensor, "*batch s L"],
        Y: Float[Tensor, "*batch s L"],
        *,
        loss: str | Derivatives = "half_mse",
        mask: Tensor | None = None,
        sink: float | Tensor = 0.0,
        lengths: Tensor | None = None,
        activation: Activation | None = None,
    ) -> "AttentionCurvature":
        """Average over tokens and sequences; inputs have been checked."""
        weights = token_weights(X, lengths)
        bias = score_bias(X, mask, sink, lengths)
        m = AttentionMoments.of((w_query * w_key).sum(-1), X, w_query.shape[-1], bias, activation)
        a = w_value[..., None, None]
        f = (a * m.value).sum(-3)  # (*batch, s, L)
        d1, d2 = derivatives_at(loss, f.flatten(-2).unsqueeze(-1), Y.flatten(-2).unsqueeze(-1))
        d1 = weights * d1.squeeze(-1).unflatten(-1, X.shape[-2:])
        d2 = weights * (d2 if d2.ndim == 0 else d2[..., 0, 0].unflatten(-1, X.shape[-2:]))
        J = torch.cat([m.value.broadcast_to((a * m.slope).shape), a * m.slope], -3).flatten(-2)  # df/da, df/dc
        ggn = (J * d2.flatten(-2).unsqueeze(-2)) @ J.mT
        mixed, twice = ((d1.unsqueeze(-3) * g).sum((-2, -1)) for g in (m.slope, a * m.curvature))
        slope = w_value * mixed
        cross = torch.diag_embed(mixed)
        second = torch.cat([torch.cat([0 * cross, cross], -1), torch.cat([cross, torch.diag_embed(twice)], -1)], -2)
        check_overflow(ggn, second)
        return cls(Pairs.of(w_key, w_query, slope.shape[:-1]), slope, ggn + second, ggn)

    def spectrum(self, *, ggn: bool) -> Spectrum:
        """Spectrum of the Hessian or of its Gauss-Newton part, in the order (w_V; w_Q; w_K)."""
        return _Reduced(self.pairs, 0 * self.slope if ggn else self.slope, self.ggn if ggn else self.hessian).spectrum(ggn=ggn)


@dataclass(frozen=True, eq=False)
class _Reduced:
    """The Hessian on w_V and on `(p; p)`, `(q; -q)` for each head, `p = w_K + w_Q`, `q = w_K - w_Q`: a matrix of size 3 h."""

    pairs: Pairs
    slope: Tensor
    second: Tensor

    @property
    def heads(self) -> int:
        return self.slope.shape[-1]

    @cached_property
    def matrix(self) -> Float[Tensor, "*batch 3h 3h"]:
        lengths = HALF * interleave(safe_sqrt(self.pairs.plus), safe_sqrt(self.pairs.minus))
        scale = torch.cat([torch.ones_like(self.slope), lengths], -1)
        at = [*range(self.heads), *(self.heads + g for g in range(self.heads) for _ in range(2))]
        bulk = torch.cat([torch.zeros_like(self.slope), interleave(self.slope, 0.0 - self.slope)], -1)
        return scale.unsqueeze(-1) * self.second[..., at, :][..., at] * scale.unsqueeze(-2) + torch.diag_embed(bulk)

    @cached_property
    def vectors(self) -> Tensor:
        return torch.linalg.eigh(self.matrix.detach()).eigenvectors.flip(-1)

    def column(self, i: int) -> Float[Tensor, "*batch n 1"]:
        z, h = self.vectors[..., i], self.heads
        return torch.cat([z[..., :h].unsqueeze(-1), self.pairs.embed(z[..., h::2], z[..., h + 1 :: 2])], -2)

    def spectrum(self, *, ggn: bool) -> Spectrum:
        h, d = self.heads, self.pairs.w.shape[-1]
        n = h + 2 * h * d
        outliers = torch.linalg.eigvalsh(self.matrix).flip(-1)
        values = torch.cat([outliers, interleave(self.slope, 0.0 - self.slope)], -1)
        once = torch.ones(outliers.shape[:-1], dtype=torch.int64, device=outliers.device)
        spaces: list[Eigenspace] = [Span(n, once, partial(self.column, i)) for i in range(3 * h)]
        for g in range(h):
            for sign in (+1, -1):
                along = values.new_tensor([HALF, sign * HALF])
                avoid = self.pairs.unit(sign)[..., g, :].unsqueeze(-1)
                spaces.append(Slots(along, avoid, n=n, start=h + 2 * g * d))
        if h > 1:
            spaces = [Permuted(space, _by_tensor(h, d, values.device)) for space in spaces]
        counts = torch.tensor([1] * (3 * h) + [d - 1] * (2 * h), device=values.device)
        labels = ("outlier",) * (3 * h) + ("zero" if ggn else "bulk",) * (2 * h)
        return finite(Spectrum(values, counts, labels, tuple(spaces)))


def _by_tensor(h: int, d: int, device: torch.device) -> Tensor:
    """Positions of (w_V; all of w_Q; all of w_K) in the order (w_V; Q_1; K_1; Q_2; K_2; ...)."""
    layers = h + torch.arange(2 * h * d, device=device).unflatten(0, (h, 2, d))
    return torch.cat([torch.arange(h, device=device), layers[:, 0].flatten(), layers[:, 1].flatten()])


def curvature_of(shapes: dict[str, str], w_value, w_query, w_key, X, Y, options) -> AttentionCurvature:
    """Check the inputs, give a single head its axis, and differentiate."""
    given = {"w_value": w_value, "w_query": w_query, "w_key": w_key, "X": X, "Y": Y}
    a, q, k, X, Y = conform(shapes, **given)
    if shapes is ONE:
        a, q, k = a.unsqueeze(-1), q.unsqueeze(-2), k.unsqueeze(-2)
    return AttentionCurvature.of(a, q, k, X, Y, **options)


def self_attention(
    w_value: Float[Tensor, "*batch"],
    w_query: Float[Tensor, "*batch d"],
    w_key: Float[Tensor, "*batch d"],
    X: Float[Tensor, "*batch s L"],
    Y: Float[Tensor, "*batch s L"],
    *,
    loss: str | Derivatives = "half_mse",
    mask: Tensor | None = None,
    sink: float | Tensor = 0.0,
    lengths: Tensor | None = None,
    activation: Activation | None = None,
) -> Spectrum:
    r"""Return the Hessian spectrum of one attention head over s sequences of L scalar tokens, [cracking] Theorem 3.5.

    The loss is `1/(2 s L) sum |w_V A x - y|^2`, or the mean over tokens of any loss given its derivatives, with
    `A = softmax(x w_Q^T w_K x^T / sqrt(d) + mask)`. It sees its parameters through w_V and `c = <w_Q, w_K>` alone. So `+g`
    and `-g`, `g = dl/dc`, occur d - 1 times each, and three outliers are the eigenvalues of a matrix of size 3; no cubic is
    solved, which would lose half of the digits where outliers meet. Vectors are ordered `(w_V; w_Q; w_K)`.

    `mask` (L, L) or (s, L, L) is True where row i may attend to column j, or a number added to the score; `sink` is added to
    the scores of the first token; `lengths` (s,) are the tokens of each sequence that count, each sequence averaged over its
    own; `activation` replaces the softmax by any function of the rows of scores.

    >>> w = torch.tensor([1.0, 0.0])
    >>> s = self_attention(torch.tensor(2.0), w, w, X=torch.ones(1, 3), Y=torch.ones(1, 3))
    >>> s.expand().tolist()                             # equal tokens: only w_V matters
    [0.0, 0.0, 0.0, 0.0, 1.0]
    """
    options = {"loss": loss, "mask": mask, "sink": sink, "lengths": lengths, "activation": activation}
    return curvature_of(ONE, w_value, w_query, w_key, X, Y, options).spectrum(ggn=False)


def self_attention_ggn(
    w_value: Float[Tensor, "*batch"],
    w_query: Float[Tensor, "*batch d"],
    w_key: Float[Tensor, "*batch d"],
    X: Float[Tensor, "*batch s L"],
    Y: Float[Tensor, "*batch s L"],
    *,
    loss: str | Derivatives = "half_mse",
    mask: Tensor | None = None,
    sink: float | Tensor = 0.0,
    lengths: Tensor | None = None,
    activation: Activation | None = None,
) -> Spectrum:
    """Return the Gauss-Newton spectrum of `self_attention`: two eigenvalues at most, and zeros.

    >>> w = torch.tensor([1.0, 0.0])
    >>> self_attention_ggn(torch.tensor(2.0), w, w, X=torch.ones(1, 3), Y=torch.zeros(1, 3)).max.item()
    1.0
    """
    options = {"loss": loss, "mask": mask, "sink": sink, "lengths": lengths, "activation": activation}
    return curvature_of(ONE, w_value, w_query, w_key, X, Y, options).spectrum(ggn=True)


def self_attention_heads(
    w_value: Float[Tensor, "*batch h"],
    w_query: Float[Tensor, "*batch h d"],
    w_key: Float[Tensor, "*batch h d"],
    X: Float[Tensor, "*batch s L"],
    Y: Float[Tensor, "*batch s L"],
    *,
    loss: str | Derivatives = "half_mse",
    mask: Tensor | None = None,
    sink: float | Tensor = 0.0,
    lengths: Tensor | None = None,
    activation: Activation | None = None,
) -> Spectrum:
    """Return the Hessian spectrum of a sum of h heads: `+g_h` and `-g_h`, d - 1 times each, and 3 h outliers.

    Arguments are those of `self_attention` with an axis for the heads; vectors are ordered `(w_V; w_Q; w_K)`, row-major.

    >>> w = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> s = self_attention_heads(torch.ones(2), w, w, X=torch.ones(1, 3), Y=torch.ones(1, 3))
    >>> s.max.item(), s.n
    (2.0, 10)
    """
    options = {"loss": loss, "mask": mask, "sink": sink, "lengths": lengths, "activation": activation}
    return curvature_of(HEADS, w_value, w_query, w_key, X, Y, options).spectrum(ggn=False)
