"""A wide two-layer linear network moves, and curves, as one of width D + K."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Narrow:
    r"""`V = Q A` and `W = B Q^T` with orthonormal columns Q (m, D + K): the network `W V x = B A x` of width D + K.

    A gradient `W^T E`, `E V^T` never leaves the span of the columns of V and the rows of W, so that descent with any
    learning rates, minibatches and momentum commutes with Q. The Hessian on that span is the Hessian of the narrow network;
    outside it there are only the bulk, plus and minus the singular values of the gradient of the product, and zeros
    (`eigenscape.theory.product_bulk`).
    """

    Q: Float[Tensor, "N m r"]

    @classmethod
    def of(cls, weights: tuple[Tensor, ...]) -> "tuple[Narrow, list[Tensor]] | None":
        """The frame and the narrow weights; None where the network has more layers, or is not wider than D + K."""
        if len(weights) != 2 or weights[0].shape[-2] <= weights[0].shape[-1] + weights[1].shape[-2]:
            return None
        V, W = weights
        Q, R = torch.linalg.qr(torch.cat([W.mT, V], -1))
        K = W.shape[-2]
        return cls(Q), [R[..., K:].contiguous(), R[..., :K].mT.contiguous()]

    def lift(self, weights: list[Tensor]) -> list[Tensor]:
        """Return to the full width."""
        A, B = weights
        return [self.Q @ A, B @ self.Q.mT]

    def keep(self, kept: Bool[Tensor, "N"]) -> "Narrow":
        """Frames of some of the members."""
        return Narrow(self.Q[kept])
