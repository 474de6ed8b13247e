"""The small matrix that is left of a Hessian once its bulk is known, and the way back to the parameters."""

from collections.abc import Sequence
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Eigenspace, Spectrum
from .factors import FactorLayout, Neurons
from .moments import check_overflow
from .product_bulk import EPS, ProductFrame, first_order
from .spaces import Span


class Reduction:
    """A Hessian `H = E M E^T` plus bulk: M (N, N) acts on the directions of some frames, then on the output bias.

    E is never formed; `embed` applies it.
    """

    def __init__(
        self,
        parameters: FactorLayout,
        groups: Sequence[tuple[ProductFrame, Neurons]],
        matrix: Float[Tensor, "*batch N N"],
    ):
        check_overflow(matrix)
        self.parameters, self.groups = parameters, groups
        self.matrix = first_order(matrix)

    @cached_property
    def vectors(self) -> Float[Tensor, "*batch N N"]:
        """Eigenvectors of the small matrix, computed when they are first needed."""
        return torch.linalg.eigh(self.matrix.detach()).eigenvectors

    def embed(self, a: Float[Tensor, "*batch N j"]) -> Float[Tensor, "*batch n j"]:
        """Parameter changes with the given coordinates, as columns."""
        sizes = [frame.size for frame, _ in self.groups]
        parts = a.mT.split([*sizes, a.shape[-2] - sum(sizes)], -1)
        rows = [neurons.place(*frame.embed(part)) for part, (frame, neurons) in zip(parts, self.groups)]
        c = parts[-1] if self.parameters.output_bias else None
        *_, n = rows[0].shape if rows else (self.parameters.layout.size,)
        total = sum(rows, a.new_zeros(*a.shape[:-2], a.shape[-1], n))
        if c is not None:
            total[..., n - c.shape[-1] :] += c
        return total.mT

    def eigenvector(self, i: int) -> Float[Tensor, "*batch n 1"]:
        """The eigenvector of the i-th smallest eigenvalue of the small matrix, in the space of the parameters."""
        return self.embed(self.vectors[..., i : i + 1])

    def spectrum(self, gradients: Sequence[Tensor], *, vectors: bool) -> Spectrum:
        """Put the eigenvalues of the small matrix and the bulk of every frame together.

        Those of the small matrix that are rounding beside its norm, in every member of the batch, are labelled `"zero"`.
        """
        values = [torch.linalg.eigvalsh(self.matrix)]
        counts, labels = [1] * values[0].shape[-1], _labels(values[0])
        n, ones = self.parameters.layout.size, torch.ones(values[0].shape[:-1], dtype=torch.long, device=values[0].device)
        spaces: list[Eigenspace] = [Span(n, ones, partial(self.eigenvector, i)) for i in range(len(labels))]
        for (frame, neurons), gradient in zip(self.groups, gradients):
            bulk = frame.bulk(gradient, neurons)
            values.append(bulk[0])
            counts, labels, spaces = counts + bulk[1], labels + bulk[2], spaces + bulk[3]
        multiplicities = torch.tensor(counts, dtype=torch.long, device=values[0].device)
        return Spectrum(torch.cat(values, -1), multiplicities, tuple(labels), tuple(spaces) if vectors else None)


def _labels(values: Float[Tensor, "*batch N"]) -> list[str]:
    """Call an eigenvalue zero where it is rounding in every member of the batch."""
    size = values.detach().abs()
    if not size.shape[-1]:
        return []
    noise = size.shape[-1] * EPS * size.amax(-1, keepdim=True)
    zero = (size <= noise).flatten(0, -2).all(0) if size.ndim > 1 else size <= noise
    return ["zero" if z else "outlier" for z in zero.tolist()]
