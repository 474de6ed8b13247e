"""Which matrix: of the loss, of its part through the outputs' curvature, or `J^T M J`; of one micro-batch at a time."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp

from .criteria import OutputMap
from .engines.engine import Named
from .engines.point import Leaves
from .graphs import Function, HessianGraph, MiddleGraph, jacobian_graph
from .objective import Objective, Piece

Scalar = Callable[[Objective, Leaves, Piece], Function]


class OfScalar:
    """Hessian of a scalar function of the parameters."""

    def __init__(self, name: str, scalar: Scalar):
        self.name, self.scalar = name, scalar

    def graph(self, objective: Objective, leaves: Leaves, piece: Piece) -> HessianGraph:
        """Keep the graph of the gradient."""
        return HessianGraph(leaves, self.scalar(objective, leaves, piece))

    def linear(self, objective: Objective, at: Leaves, piece: Piece) -> Callable[[Named], Named]:
        """Differentiate the gradient forward."""
        gradient = grad(self.scalar(objective, at, piece))
        return lambda v: jvp(gradient, (at,), (v,))[1]


def of_loss(objective: Objective, leaves: Leaves, piece: Piece) -> Function:
    """Return the loss of a micro-batch."""
    return lambda at: objective.piece_loss(at, piece)


def of_outputs(objective: Objective, leaves: Leaves, piece: Piece) -> Function:
    """Return `sum_k c_k f_k` with c = dl/df held fixed: its Hessian is the functional Hessian, without cancellation."""
    with torch.no_grad():
        z = objective.tensor_outputs(leaves, piece)
    z = z.detach().requires_grad_()
    with torch.enable_grad():
        (c,) = torch.autograd.grad(piece.share * objective.mean_loss(z, piece.targets), z)
    return lambda at: (objective.tensor_outputs(at, piece) * c).sum()


class Middle(Protocol):
    """A symmetric map in output space."""

    def __call__(self, objective: Objective, outputs: Tensor, piece: Piece) -> OutputMap:
        """Return the map at these outputs."""
        ...


class OfOutputs:
    """`J^T M J` with M a symmetric map in output space."""

    def __init__(self, name: str, middle: Middle):
        self.name, self.middle = name, middle

    def graph(self, objective: Objective, leaves: Leaves, piece: Piece) -> MiddleGraph:
        """Keep the graph of the outputs and of `J^T u`."""
        jacobian = jacobian_graph(objective, leaves, piece)
        return MiddleGraph(jacobian, self.middle(objective, jacobian.outputs.detach(), piece), piece.share)

    def linear(self, objective: Objective, at: Leaves, piece: Piece) -> Callable[[Named], Named]:
        """Push forward, multiply, pull back."""

        def outputs(p: Leaves) -> Tensor:
            return objective.tensor_outputs(p, piece)

        z, pull, *_ = vjp(outputs, at)
        middle = self.middle(objective, z.detach(), piece)
        return lambda v: pull(piece.share * middle(jvp(outputs, (at,), (v,))[1]))[0]


def of_criterion(objective: Objective, outputs: Tensor, piece: Piece) -> OutputMap:
    """Return the criterion's Hessian: the Gauss-Newton matrix."""
    return objective.output_loss.hessian(outputs, piece.targets)


def of_scores(objective: Objective, outputs: Tensor, piece: Piece) -> OutputMap:
    """Return the weighted sum of outer products of the data's own scores: the empirical Fisher matrix."""
    return _outer(objective, outputs, [objective.output_loss.scores(outputs, piece.targets)])


class OfSampledScores:
    """Outer products of scores whose targets are drawn from the model; the same draws whenever they are made again."""

    def __init__(self, seed: int, draws: int):
        self.seed, self.draws = seed, draws

    def __call__(self, objective: Objective, outputs: Tensor, piece: Piece) -> OutputMap:
        """Draw for one micro-batch."""
        stream = torch.Generator().manual_seed((self.seed + 0x9E3779B97F4A7C15 * piece.order) % 2**63)
        drawn = [objective.output_loss.sampled_scores(outputs, piece.targets, stream) for _ in range(self.draws)]
        return _outer(objective, outputs, [(rows, weights / self.draws) for rows, weights in drawn])


def _outer(objective: Objective, outputs: Tensor, scores: list[tuple[Tensor, Tensor]]) -> OutputMap:
    """`dz -> sum_t c_t s_t <s_t, dz_t>`, datum by datum."""
    loss, like = objective.output_loss, outputs.detach()

    def middle(dz: Tensor) -> Tensor:
        d = loss.rows(dz)
        parts = [(weights * (rows * d).sum(-1)).unsqueeze(-1) * rows for rows, weights in scores]
        return loss.unrows(torch.stack(parts).sum(0), like)

    return middle
