"""Differentiated graphs of one micro-batch: of the loss (Hessian), of its part through the outputs' curvature, of J^T M J."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from .criteria import OutputMap
from .engines.engine import Named
from .engines.point import Leaves
from .engines.running import grad_of
from .objective import Objective, Piece, gradients, leaf_copies

Function = Callable[[Leaves], Tensor]


def moved(leaves: Leaves, vectors: Named, h: float) -> Leaves:
    """Leaves displaced by h along the vectors."""
    return leaf_copies({n: p.detach() + h * vectors[n] if n in vectors else p for n, p in leaves.items()})


class HessianGraph:
    """`H v` of a scalar function as the gradient of `<g, v>`, with the first gradient g and its graph kept."""

    def __init__(self, leaves: Leaves, scalar: Function):
        self.leaves, self.scalar = leaves, scalar

    @functools.cached_property
    def gradient(self) -> Named:
        """The first gradient, with its graph."""
        return dict(zip(self.leaves, gradients(self.scalar(self.leaves), self.leaves, create_graph=True)))

    def prepare(self) -> None:
        """Differentiate once."""
        _ = self.gradient

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


class JacobianGraph:
    """`J v` and `J^T u` of a micro-batch's outputs; J v is the transpose of the transpose: d/du (J^T u) . v."""

    def __init__(self, leaves: Leaves, outputs: Function):
        self.leaves, self.function = leaves, outputs
        self.outputs = outputs(leaves)

    @functools.cached_property
    def transposed(self) -> tuple[Tensor, Named]:
        """A vector u and `J^T u` with its graph."""
        u = torch.zeros_like(self.outputs).requires_grad_()
        return u, dict(zip(self.leaves, grad_of([self.outputs], list(self.leaves.values()), [u], create_graph=True)))

    def prepare(self) -> None:
        """Differentiate once."""
        _ = self.transposed

    def push(self, vectors: Named) -> Tensor:
        """Return `J v` for the parameters that the vectors name."""
        u, pulled = self.transposed
        return grad_of([pulled[n] for n in vectors], [u], list(vectors.values()))[0]

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

    def prepare(self) -> None:
        """Differentiate once."""
        self.jacobian.prepare()

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
