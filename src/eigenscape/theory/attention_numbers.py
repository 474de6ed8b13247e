"""The four numbers that make up the curvature of one attention head, and the bounds they give."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .attention import ONE, curvature_of
from .attention_moments import Activation
from .derivatives import Derivatives
from .scalar_products import safe_sqrt


@dataclass(frozen=True, eq=False)
class AttentionNumbers:
    """`alpha, beta, gamma, zeta` of [cracking] Theorem 3.5: the derivatives `l_aa, l_ac, l_c, l_cc` in `a = w_V` and
    `c = <w_Q, w_K>`, averaged over sequences, for any loss.

    The Hessian is `[[alpha, beta g^T], [beta g, zeta g g^T + gamma J]]` with `g = (w_K; w_Q)` and J the swap of both halves.
    """

    alpha: Float[Tensor, "*batch"]
    beta: Float[Tensor, "*batch"]
    gamma: Float[Tensor, "*batch"]
    zeta: Float[Tensor, "*batch"]
    norms: Float[Tensor, "*batch"]
    """`|w_Q|^2 + |w_K|^2`."""
    inner: Float[Tensor, "*batch"]
    """`<w_Q, w_K>`."""
    width: int

    @property
    def trace(self) -> Float[Tensor, "*batch"]:
        """Trace of the Hessian, and sum of the three outliers: `alpha + zeta (|w_Q|^2 + |w_K|^2)`."""
        return self.alpha + self.zeta * self.norms

    @property
    def cubic(self) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """p and q of the cubic `z^3 + p z + q = 0` that `z = outlier - trace / 3` solves; the printed q lost parentheses."""
        T, det = self.trace, self.beta.square() - self.alpha * self.zeta
        second = 2 * self.gamma * self.zeta * self.inner + self.gamma.square()
        p = -(3 * second + 3 * det * self.norms + T.square()) / 3
        last = 2 * self.gamma * det * self.inner - self.alpha * self.gamma.square()
        q = -(2 * T**3 + 9 * T * (det * self.norms + second) + 27 * last) / 27
        return p, q

    @property
    def radius(self) -> Float[Tensor, "*batch"]:
        """xi: no outlier is farther from `trace / 3`. Norms enter squared; Theorem 3.5 prints them bare."""
        return 2 / 3 * safe_sqrt(-3 * self.cubic[0])

    @property
    def outlier_bounds(self) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """`trace / 3 -+ xi`, between which all three outliers are."""
        return self.trace / 3 - self.radius, self.trace / 3 + self.radius

    @property
    def sharpness_bounds(self) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """Bounds on the largest eigenvalue, [cracking] Remark B.4: `trace / 3 + xi / 2` and `trace / 3 + xi`.

        They bound the largest outlier. Where zeta < 0, the bulk |gamma| can exceed it: the upper bound here allows for that.
        """
        upper = self.outlier_bounds[1]
        return self.trace / 3 + self.radius / 2, upper if self.width == 1 else torch.maximum(upper, self.gamma.abs())

    @property
    def condition_bound(self) -> Float[Tensor, "*batch"]:
        """`(2 trace + 3 xi) / (6 |gamma|)`, a lower bound on the condition number, [cracking] Remark 3.1; infinite for gamma 0.

        With gamma = 0 and a width above 1 the Hessian is singular. The condition number itself is that of the spectrum.
        """
        top, size = self.sharpness_bounds[0], self.gamma.abs()
        return torch.where(size > 0, top / torch.where(size > 0, size, 1.0), torch.inf)


def self_attention_numbers(
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
) -> AttentionNumbers:
    """Return alpha, beta, gamma and zeta of the network of `self_attention`, with the same arguments.

    >>> w = torch.tensor([1.0, 0.0])
    >>> numbers = self_attention_numbers(torch.tensor(2.0), w, w, X=torch.ones(1, 3), Y=torch.ones(1, 3))
    >>> numbers.alpha.item(), numbers.gamma.item(), numbers.sharpness_bounds[1].item()
    (1.0, 0.0, 1.0)
    """
    options = {"loss": loss, "mask": mask, "sink": sink, "lengths": lengths, "activation": activation}
    found = curvature_of(ONE, w_value, w_query, w_key, X, Y, options)
    w, v = found.pairs.w, found.pairs.v
    return AttentionNumbers(
        alpha=found.hessian[..., 0, 0],
        beta=found.hessian[..., 0, 1],
        gamma=found.slope[..., 0],
        zeta=found.hessian[..., 1, 1],
        norms=(w.square().sum(-1) + v.square().sum(-1)).squeeze(-1),
        inner=(w * v).sum((-2, -1)),
        width=w.shape[-1],
    )
