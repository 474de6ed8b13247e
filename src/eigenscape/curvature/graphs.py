"""Differentiated graphs of one micro-batch: of the loss (Hessian), of its part through the outputs' curvature, of J^T M J."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .criteria import OutputMap
from .engines import Leaves, grad_of
from .objective import Objective, Piece, gradients, leaf_copies

Named = dict[str, Tensor]
Function = Callable[[Leaves], Tensor]


class Graph(Protocol):
    """A micro-batch's share of a matrix over the parameters."""

    def product(self, vectors: Named) -> Named:
        """Multiply by the diagonal block of the parameters that the vectors name."""
        ...

    def difference(self, vectors: Named, h: float) -> Named:
        """Do the same by central differences of first-order quantities, to test the product against."""
        ...


def moved(leaves: Leaves, vectors: Named, h: float) -> Leaves:
    """Leaves displaced by h along the vectors."""
    return leaf_copies({n: p.detach() + h * vectors[n] if n in vectors else p for n, p in leaves.items()})


class HessianGraph:
    """`H v` of a scalar function as the gradient of `<g, v>`, with the first gradient g and its graph kept."""

    def __init__(self, leaves: Leaves, scalar: Function):
        self.leaves, self.scalar = leaves, scalar
        self.gradient = dict(zip(leaves, gradients(scalar(leaves), leaves, create_graph=True)))

    def product(self, vectors: Named) -> Named:
        """Differentiate the gradient once more, in the direction of the vectors."""
        names = list(vectors)
        out = grad_of([self.gradient[n] for n in names], [self.leaves[n] for n in names], list(vectors.values()))
        return dict(zip(names, out))

    def difference(self, vectors: Named, h: float) -> Named:
        """Difference of two gradients."""
        ahead, back = moved(self.leaves, vectors, h), moved(self.leaves, vectors, -h)
        pairs = zip(gradients(self.scalar(ahead), ahead), gradients(self.scalar(back), back))
        return dict(zip(self.leaves, [(a - b) / (2 * h) for a, b in pairs]))


def hessian_graph(objective: Objective, leaves: Leaves, piece: Piece) -> HessianGraph:
    """Graph of the loss of a micro-batch."""
    return HessianGraph(leaves, lambda at: objective.piece_loss(at, piece))


def functional_graph(objective: Objective, leaves: Leaves, piece: Piece) -> HessianGraph:
    """Graph of `sum_k c_k f_k` with c = dl/df held fixed: its Hessian is the functional Hessian, without cancellation."""
    z = objective.tensor_outputs(leaves, piece).detach().requires_grad_()
    (c,) = torch.autograd.grad(piece.share * objective.mean_loss(z, piece.targets), z)
    return HessianGraph(leaves, lambda at: (objective.tensor_outputs(at, piece) * c).sum())


class JacobianGraph:
    """`J v` and `J^T u` of a micro-batch's outputs; J v is the transpose of the transpose: d/du (J^T u) . v."""

    def __init__(self, leaves: Leaves, outputs: Function):
        self.leaves, self.function = leaves, outputs
        self.outputs = outputs(leaves)
        self.dummy = torch.zeros_like(self.outputs).requires_grad_()
        pulled = grad_of([self.outputs], list(leaves.values()), [self.dummy], create_graph=True)
        self.pulled = dict(zip(leaves, pulled))

    def push(self, vectors: Named) -> Tensor:
        """Return `J v` for the parameters that the vectors name."""
        return grad_of([self.pulled[n] for n in vectors], [self.dummy], list(vectors.values()))[0]

    def pull(self, u: Tensor, names: list[str]) -> Named:
        """Return `J^T u` for some parameters."""
        return dict(zip(names, grad_of([self.outputs], [self.leaves[n] for n in names], [u])))

    def push_difference(self, vectors: Named, h: float) -> Tensor:
        """Return `J v` by a central difference of outputs."""
        ahead, back = moved(self.leaves, vectors, h), moved(self.leaves, vectors, -h)
        return (self.function(ahead).detach() - self.function(back).detach()) / (2 * h)


class MiddleGraph:
    """`J^T M J v` with M a symmetric map in output space."""

    def __init__(self, jacobian: JacobianGraph, middle: OutputMap, share: float):
        self.jacobian, self.middle, self.share = jacobian, middle, share

    def product(self, vectors: Named) -> Named:
        """Push to the outputs, multiply, pull back."""
        return self._back(self.jacobian.push(vectors), vectors)

    def difference(self, vectors: Named, h: float) -> Named:
        """The same with the push by differences."""
        return self._back(self.jacobian.push_difference(vectors, h), vectors)

    def _back(self, pushed: Tensor, vectors: Named) -> Named:
        return self.jacobian.pull(self.share * self.middle(pushed), list(vectors))


def jacobian_graph(objective: Objective, leaves: Leaves, piece: Piece) -> JacobianGraph:
    """Graph of a micro-batch's outputs."""
    return JacobianGraph(leaves, lambda at: objective.tensor_outputs(at, piece))


def ggn_graph(objective: Objective, leaves: Leaves, piece: Piece) -> MiddleGraph:
    """Graph of the Gauss-Newton part: M is the criterion's Hessian in output space."""
    jacobian = jacobian_graph(objective, leaves, piece)
    middle = objective.output_loss.hessian(jacobian.outputs.detach(), piece.targets)
    return MiddleGraph(jacobian, middle, piece.share)


def empirical_graph(objective: Objective, leaves: Leaves, piece: Piece) -> MiddleGraph:
    """Graph of the empirical Fisher: M is the weighted sum of outer products of the data's own scores."""
    jacobian = jacobian_graph(objective, leaves, piece)
    scores = objective.output_loss.scores(jacobian.outputs.detach(), piece.targets)
    return MiddleGraph(jacobian, _outer(objective, jacobian.outputs, [scores]), piece.share)


class SampledScores:
    """Build graphs of the Fisher matrix with targets drawn from the model, the same draws whenever a graph is rebuilt."""

    def __init__(self, seed: int, draws: int):
        self.seed, self.draws = seed, draws

    def __call__(self, objective: Objective, leaves: Leaves, piece: Piece) -> MiddleGraph:
        """Build the graph of one micro-batch."""
        jacobian = jacobian_graph(objective, leaves, piece)
        stream = torch.Generator().manual_seed((self.seed + 0x9E3779B97F4A7C15 * piece.order) % 2**63)
        flat = jacobian.outputs.detach()
        drawn = [objective.output_loss.sampled_scores(flat, piece.targets, stream) for _ in range(self.draws)]
        middle = _outer(objective, flat, [(rows, weights / self.draws) for rows, weights in drawn])
        return MiddleGraph(jacobian, middle, piece.share)


def _outer(objective: Objective, outputs: Tensor, scores: list[tuple[Tensor, Tensor]]) -> OutputMap:
    """`dz -> sum_t c_t s_t <s_t, dz_t>`, datum by datum."""
    loss, like = objective.output_loss, outputs.detach()

    def middle(dz: Tensor) -> Tensor:
        d = loss.rows(dz)
        parts = [(weights * (rows * d).sum(-1)).unsqueeze(-1) * rows for rows, weights in scores]
        return loss.unrows(torch.stack(parts).sum(0), like)

    return middle
