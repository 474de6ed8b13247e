"""Deep linear networks need the samples only once: their curvature is a function of second moments."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ...linop import DeepLinear
from ..criteria import Squared
from ..losses import half_mse
from ..objective import Objective
from .engine import Engine, Matrix
from .point import Point

KINDS = {"Hessian": "hessian", "GGN": "ggn"}


class Moments(Engine):
    """Products that cost the same for any number of samples."""

    def __init__(self, objective: Objective, matrix: Matrix):
        super().__init__(objective, matrix)
        self.point = Point(objective)
        self._version, self._operator, self._moments = 0, None, None

    def __str__(self) -> str:
        return "second moments of the data of a deep linear network, independent of the number of samples"

    def matmat(self, V):
        """Multiply all columns together."""
        if self.point.refresh() != self._version or self._operator is None:
            self._operator, self._version = self._build(), self.point.version
        return self._scale * self._operator.matmat(V)

    def release(self) -> None:
        """Forget the factors; the moments are kept."""
        self._operator = None

    @torch.no_grad()
    def _build(self) -> DeepLinear:
        layers = linear_layers(self.objective)
        if layers is None:
            raise AssertionError("not a deep linear network")
        biases = [layer.bias for layer in layers]
        weights = [layer.weight.detach() for layer in layers]
        if self._moments is None:
            self._moments = self._gather(affine=any(b is not None for b in biases))
        outputs = weights[-1].shape[0]
        self._scale = 1.0 if self.objective.criterion is half_mse else 2.0 / outputs
        return DeepLinear(
            weights,
            *self._moments,
            biases=[None if b is None else b.detach() for b in biases],
            kind=KINDS[self.matrix.name],
        )

    def _gather(self, affine: bool) -> tuple[Tensor, Tensor]:
        Sxx: Any = 0.0
        Syx: Any = 0.0
        for piece in self.objective.pieces():
            x = torch.cat([piece.inputs, torch.ones_like(piece.inputs[:, :1])], 1) if affine else piece.inputs
            Sxx = Sxx + piece.share * x.mT @ x / len(x)
            Syx = Syx + piece.share * piece.targets.mT @ x / len(x)
        return Sxx, Syx


def linear_layers(objective: Objective) -> list[nn.Linear] | None:
    """Layers of a deep linear network with a squared loss, all of whose parameters are chosen; None for any other."""
    model = objective.model
    layers = list(model) if type(model) is nn.Sequential else [model]
    linear = [layer for layer in layers if type(layer) is nn.Linear and not _hooked(layer)]
    plain = len(linear) == len(layers) > 0 and objective.forward is None and isinstance(objective.output_loss, Squared)
    if not plain or _hooked(model) or objective.layout.names != tuple(n for n, _ in model.named_parameters()):
        return None
    if len({id(layer) for layer in linear}) < len(linear) or len({p.dtype for p in model.parameters()}) > 1:
        return None
    return linear


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or parametrize.is_parametrized(module))


def applies(objective: Objective, matrix: Matrix) -> bool:
    """Whether products need only moments here: the network is deep linear and its data plain matrices."""
    if matrix.name not in KINDS or linear_layers(objective) is None:
        return False
    return all(
        isinstance(x, Tensor) and isinstance(y, Tensor) and x.ndim == y.ndim == 2 and x.dtype == objective.dtype
        for x, y in objective.batches()
    )
