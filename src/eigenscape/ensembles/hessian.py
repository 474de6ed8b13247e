"""The Hessians of all members as one stack of operators."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..linop import DeepLinear, Operator
from .ensemble import Ensemble, total


class StackedHessian(Operator):
    """Hessians of the loss of networks of any activation, `(N, p, p)`, by batched forward-over-reverse products.

    The forward and backward pass at the point are kept; a product costs about two more of each.
    """

    def __init__(self, ensemble: Ensemble, X: Tensor, Y: Tensor, loss: str = "half_mse"):
        ensemble.check_samples(X=X, Y=Y)
        layout = ensemble.layout
        super().__init__(layout.size, dtype=ensemble.dtype, device=ensemble.device, batch=(len(ensemble),), layout=layout)
        self._curvature = ensemble.loss_scale(loss) / X.shape[-2]
        self._run = ensemble.run(X)
        self._deltas = self._run.backward((self._run.outputs - Y) * self._curvature)

    def matmat(self, V):
        """One tangent pass per column."""
        return torch.stack([self._product(v) for v in V.unbind(-1)], -1)

    def _product(self, v: Float[Tensor, "N p"]) -> Float[Tensor, "N p"]:
        assert self.layout is not None
        direction = list(self.layout.unflatten(v).values())
        moved = self._run.gradient_tangent(self._deltas, self._curvature, direction)
        return torch.cat([m.flatten(1) for m in moved], -1)

    @property
    def engine(self) -> str:
        """How the products are made."""
        return f"batched forward over reverse, {self._run.activation}"


def hessian(ensemble: Ensemble, X: Float[Tensor, "*N n D"], Y: Float[Tensor, "*N n K"], loss: str = "half_mse") -> Operator:
    """Hessian of every member as one operator of shape (N, p, p), for any solver.

    Linear networks are multiplied by the moments of the data alone. Vectors are flat in the order of the weights.

    >>> one = torch.ones(1, 1, 1)
    >>> H = hessian(Ensemble((2 * one, 3 * one)), torch.ones(1, 1), 6 * torch.ones(1, 1))
    >>> (H @ torch.eye(2)[None]).tolist()
    [[[9.0, 6.0], [6.0, 4.0]]]
    """
    if ensemble.activation != "linear":
        return StackedHessian(ensemble, X, Y, loss)
    ensemble.check_samples(X=X, Y=Y)
    scale, gain = ensemble.loss_scale(loss), total(ensemble.multipliers)
    F = gain * X
    n = X.shape[-2]
    return DeepLinear(list(ensemble.weights), scale * (F.mT @ F) / n, scale * (Y.mT @ F) / n)
