"""A deep linear network seen from each layer: what comes before, what comes after, and how outputs move with parameters."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import TheoryError
from .moments import conform

Weights = Sequence[Float[Tensor, "*batch _ _"]]
Biases = Sequence[Float[Tensor, "*batch _"] | None] | None


def moment_factor(X: Float[Tensor, "*batch n D"]) -> Float[Tensor, "*batch D r"]:
    """`F` with `F F^T = X^T X / n` and r = min(n, D), without squaring: by QR where samples outnumber inputs.

    >>> round(moment_factor(torch.tensor([[3.0], [4.0]]).double()).square().item(), 9)
    12.5
    """
    n, D = X.shape[-2:]
    if n > D:
        X = torch.linalg.qr(X, mode="reduced" if X.requires_grad else "r").R
    return X.mT / n**0.5


def with_ones(X: Float[Tensor, "*batch n D"]) -> Float[Tensor, "*batch n E"]:
    """Append a one to every sample, so that a first-layer bias becomes a column of the first weight.

    >>> with_ones(torch.tensor([[5.0]]))
    tensor([[5., 1.]])
    """
    return torch.cat([X, torch.ones_like(X[..., :1])], -1)


@dataclass(frozen=True, eq=False)
class Chain:
    r"""`f(x) = W_L ... W_1 x` (with biases, if any) on data whose second moment is `F F^T`.

    Layer l enters as `S_l dW_l M_l`: after it comes `after[l] = S_l = W_L ... W_{l+1}`, and before it
    `before[l] = M_l = W_{l-1} ... W_1 F`, with a row for the bias where there is one. The Jacobian of the outputs has the
    Gram matrix `sum_l (S_l S_l^T) (x) (M_l^T M_l)`, which shares its nonzero eigenvalues with the Gauss-Newton matrix
    ([data] eqs. 4, 5, with samples in rows and row-major parameters).
    """

    before: tuple[Float[Tensor, "*batch _ r"], ...]
    after: tuple[Float[Tensor, "*batch dL _"], ...]
    shapes: tuple[tuple[int, int, bool], ...]

    @classmethod
    def of(cls, weights: Weights, X: Float[Tensor, "*batch n d0"], biases: Biases = None) -> "Chain":
        """Check that the layers fit each other and the data, and multiply them from both ends."""
        weights, given, X = _checked(weights, X, biases)
        affine = any(b is not None for b in given)
        leads = [X.shape[:-2], *(W.shape[:-2] for W in weights), *(b.shape[:-1] for b in given if b is not None)]
        batch = torch.broadcast_shapes(*leads)
        F = moment_factor(with_ones(X) if affine else X)
        F = F.expand(*batch, *F.shape[-2:])
        H, ones = (F[..., :-1, :], F[..., -1:, :]) if affine else (F, F[..., :0, :])
        before = []
        for W, b in zip(weights, given):
            before.append(H if b is None else torch.cat([H, ones], -2))
            H = W @ H if b is None else W @ H + b.unsqueeze(-1) @ ones
        K = weights[-1].shape[-2]
        after = [torch.eye(K, dtype=X.dtype, device=X.device).expand(*batch, K, K)]
        for W in reversed(weights[1:]):
            after.append(after[-1] @ W)
        shapes = tuple((W.shape[-2], W.shape[-1], b is not None) for W, b in zip(weights, given))
        return cls(tuple(before), tuple(reversed(after)), shapes)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.shapes)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(out * (inp + biased) for out, inp, biased in self.shapes)

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.shapes[-1][0]

    @property
    def grams(self) -> list[Float[Tensor, "*batch r r"]]:
        """`M_l^T M_l` for each layer."""
        return [M.mT @ M for M in self.before]

    def pull_back(self, Z: Float[Tensor, "*batch k dL r"]) -> Float[Tensor, "*batch k p"]:
        """Rows of parameters `dW_l = S_l^T Z M_l^T`, each weight row-major and followed by its bias."""
        rows = []
        for S, M, (_, inp, biased) in zip(self.after, self.before, self.shapes):
            dW = S.mT.unsqueeze(-3) @ Z @ M.mT.unsqueeze(-3)
            rows.append(dW[..., :inp].flatten(-2))
            if biased:
                rows.append(dW[..., inp])
        return torch.cat(rows, -1)


def _checked(weights: Weights, X: Tensor, biases: Biases) -> tuple[list[Tensor], list[Tensor | None], Tensor]:
    """Promote everything to float64 and refuse what does not fit."""
    weights = list(weights)
    if not weights:
        raise TheoryError("the list of weights is empty; expected at least one matrix: [W_1, ..., W_L].")
    given: list[Tensor | None] = [None] * len(weights) if biases is None else list(biases)
    if len(given) != len(weights):
        raise TheoryError(f"{len(given)} biases came with {len(weights)} weights; expected one each, None where there is none.")
    inputs = {"X": X} | {f"W_{l}": W for l, W in enumerate(weights, 1)}
    inputs |= {f"b_{l}": b for l, b in enumerate(given, 1) if b is not None}
    shapes = {"X": "n d_0"} | {f"W_{l}": f"d_{l} d_{l - 1}" for l in range(1, len(weights) + 1)}
    shapes |= {f"b_{l}": f"d_{l}" for l in range(1, len(weights) + 1)}
    named = dict(zip(inputs, conform(shapes, **inputs)))
    layers = range(1, len(weights) + 1)
    return [named[f"W_{l}"] for l in layers], [named.get(f"b_{l}") for l in layers], named["X"]
