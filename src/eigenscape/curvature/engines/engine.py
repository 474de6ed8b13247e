"""What an engine is: a way to compute products with a matrix over an objective's parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from ..objective import Objective, Piece
from .point import Leaves

Named = dict[str, Tensor]
Map = Callable[[Float[Tensor, "n"]], Float[Tensor, "n"]]


class Graph(Protocol):
    """A micro-batch's share of a matrix over the parameters."""

    def prepare(self) -> None:
        """Differentiate once, which the first product does otherwise."""
        ...

    def product(self, vectors: Named) -> Named:
        """Multiply by the diagonal block of the parameters that the vectors name."""
        ...

    def difference(self, vectors: Named, h: float) -> Named:
        """Do the same by central differences of first-order quantities."""
        ...


class Matrix(Protocol):
    """Which matrix: what it is of one micro-batch, to be multiplied backward or forward."""

    name: str

    def graph(self, objective: Objective, leaves: Leaves, piece: Piece) -> Graph:
        """Differentiate once and keep the graph, so that a product is one more backward pass."""
        ...

    def linear(self, objective: Objective, at: Leaves, piece: Piece) -> Callable[[Named], Named]:
        """Return the product as a function that differentiates forward, to be recorded."""
        ...


class Engine(ABC):
    """Products with one matrix, at the objective's present parameters."""

    def __init__(self, objective: Objective, matrix: Matrix):
        self.objective, self.matrix, self.layout = objective, matrix, objective.layout

    @abstractmethod
    def matmat(self, V: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """Multiply every column."""

    def prepare(self, products: int) -> None:  # noqa: B027 - to do nothing is right for most
        """Hear about how many products will follow."""

    @abstractmethod
    def release(self) -> None:
        """Free what is kept between products."""
