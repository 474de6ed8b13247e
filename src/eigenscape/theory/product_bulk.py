"""The bulk of any model that uses two factors only through their product: exact for the full Hessian, at any loss."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..core import Eigenspace, Spectrum
from .factors import BulkSpace, FactorLayout, Neurons, NullSpace
from .moments import conform

EPS = torch.finfo(torch.float64).eps


class _FirstOrder(torch.autograd.Function):
    """Pass a tensor on whose first derivatives are exact and whose second derivatives are not: those raise."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    @once_differentiable
    def backward(ctx, *g: Tensor) -> Tensor:  # type: ignore[override]
        return g[0]


def first_order(x: Tensor) -> Tensor:
    """Allow one differentiation of `x`; a second one raises instead of being silently wrong.

    An eigenvalue of `E^T H E`, with E an orthonormal basis of an invariant subspace held constant, has the derivative
    `z^T dH z` of the eigenvalue itself, however E turns; its second derivative would feel the turning.
    """
    return _FirstOrder.apply(x) if x.requires_grad else x  # type: ignore[return-value]


def column_basis(A: Float[Tensor, "*batch m p"]) -> Float[Tensor, "*batch m r"]:
    """Orthonormal basis of a space that holds the columns of A; r is the largest numerical rank in the batch."""
    U, s, _ = torch.linalg.svd(A.detach(), full_matrices=False)
    noise = EPS * max(A.shape[-2:]) * s[..., :1]
    return U[..., : int((s > noise).sum(-1).max())]


def _unit(A: Tensor) -> Tensor:
    norm = A.norm(dim=(-2, -1), keepdim=True)
    return A / torch.where(norm > 0, norm, 1.0)


@dataclass(frozen=True, eq=False)
class ProductFrame:
    """Orthonormal frames of two factors W (K, m), V (m, D) and of the gradient `U diag(sigma) R^T` of their product.

    Only directions inside `span` (rows of W and columns of V, in R^m), `rows` (of W) and `columns` (of V) mix with the
    rest of the model; those outside are eigenvectors already. A frame that is too large costs time, never accuracy, so a
    batch uses its largest ranks. The frame is held constant under differentiation.
    """

    U: Float[Tensor, "*batch K K"]
    R: Float[Tensor, "*batch D D"]
    rank: int
    span: Float[Tensor, "*batch m r"]
    rows: Float[Tensor, "*batch m rW"]
    columns: Float[Tensor, "*batch m rV"]

    @classmethod
    def of(cls, W: Tensor, V: Tensor, gradient: Tensor, scale: Tensor | None = None) -> "ProductFrame":
        """Factor; singular values of the gradient that are rounding of `scale` (default: its norm) count as zero.

        W and V count by their directions only, so each is measured against its own norm.
        """
        U, sigma, Rh = torch.linalg.svd(gradient.detach(), full_matrices=True)
        size = sigma[..., 0] if scale is None else scale.detach()
        rank = int((sigma > 10 * EPS * size.unsqueeze(-1)).sum(-1).max())
        span = column_basis(torch.cat([_unit(W).mT, _unit(V)], -1))
        return cls(U, Rh.mT, rank, span, column_basis(W.mT), column_basis(V))

    @property
    def inputs(self) -> list[tuple[Tensor, Tensor]]:
        """Directions of V that mix: each frame of input space with its partner in R^m."""
        return [(self.R[..., : self.rank], self.span), (self.R[..., self.rank :], self.rows)]

    @property
    def outputs(self) -> list[tuple[Tensor, Tensor]]:
        """Directions of W that mix: each frame of output space with its partner in R^m."""
        return [(self.U[..., : self.rank], self.span), (self.U[..., self.rank :], self.columns)]

    @property
    def size(self) -> int:
        """Number of directions that mix."""
        return sum(A.shape[-1] * Q.shape[-1] for A, Q in self.inputs + self.outputs)

    def jacobian(self, W: Tensor, V: Tensor) -> Float[Tensor, "*batch K D N"]:
        """Change of the product W V along each direction that mixes."""
        along_V = [torch.einsum("...kq,...dp->...kdpq", W @ Q, R).flatten(-2) for R, Q in self.inputs]
        along_W = [torch.einsum("...dq,...kp->...kdpq", V.mT @ Q, U).flatten(-2) for U, Q in self.outputs]
        return torch.cat(along_V + along_W, -1)

    def coupling(self, gradient: Tensor) -> Float[Tensor, "*batch N N"]:
        """Second-order part `2 <gradient, dW dV>` as a quadratic form on the directions that mix."""
        upper = torch.cat(
            [torch.cat([kron(R.mT @ gradient.mT @ U, Q.mT @ P) for U, P in self.outputs], -1) for R, Q in self.inputs],
            -2,
        )
        n, k = upper.shape[-2:]
        full = upper.new_zeros(*upper.shape[:-2], n + k, n + k)
        full[..., :n, n:], full[..., n:, :n] = upper, upper.mT
        return full

    def restrict(self, V: Tensor, W: Tensor) -> Float[Tensor, "*batch j N"]:
        """Coordinates of parameter changes `dV (j, m, D)`, `dW (j, K, m)` along the directions that mix."""
        along_V = [torch.einsum("...jmd,...dp,...mq->...jpq", V, R, Q).flatten(-2) for R, Q in self.inputs]
        along_W = [torch.einsum("...jkm,...kp,...mq->...jpq", W, U, Q).flatten(-2) for U, Q in self.outputs]
        return torch.cat(along_V + along_W, -1)

    def embed(self, a: Float[Tensor, "*batch j N"]) -> tuple[Tensor, Tensor]:
        """Parameter changes `dV (j, m, D)`, `dW (j, K, m)` with the given coordinates."""
        pairs = self.inputs + self.outputs
        parts = a.split([A.shape[-1] * Q.shape[-1] for A, Q in pairs], -1)
        blocks = [part.unflatten(-1, (A.shape[-1], Q.shape[-1])) for part, (A, Q) in zip(parts, pairs)]
        full = [torch.einsum("...jpq,...ap,...mq->...jma", block, A, Q) for block, (A, Q) in zip(blocks, pairs)]
        return full[0] + full[1], (full[2] + full[3]).mT

    def null_space(self, neurons: Neurons) -> NullSpace:
        """Directions on which the Hessian is zero."""
        return NullSpace(neurons, self.U[..., self.rank :], self.R[..., self.rank :], self.rows, self.columns)

    def bulk(self, gradient: Tensor, neurons: Neurons) -> tuple[Tensor, list[int], list[str], list[Eigenspace]]:
        """Values, multiplicities, labels and spaces of the eigenpairs that do not mix."""
        count = self.span.shape[-2] - self.span.shape[-1]
        U, R, p = self.U, self.R, self.rank if count else 0
        sigma = first_order(torch.einsum("...kp,...kd,...dp->...p", U[..., :p], gradient, R[..., :p]))
        spaces: list[Eigenspace] = [
            BulkSpace(neurons, U[..., i], R[..., i], sign, self.span) for sign in (1, -1) for i in range(p)
        ]
        null = self.null_space(neurons)
        values, counts, labels = torch.cat([sigma, -sigma], -1), [count] * (2 * p), ["bulk"] * (2 * p)
        if null.dim:
            values = torch.cat([values, values.new_zeros(*values.shape[:-1], 1)], -1)
            counts, labels, spaces = [*counts, null.dim], [*labels, "zero"], [*spaces, null]
        return values, counts, labels, spaces


def kron(A: Float[Tensor, "*batch a b"], B: Float[Tensor, "*batch c d"]) -> Float[Tensor, "*batch ac bd"]:
    """Kronecker product over leading axes."""
    return torch.einsum("...ab,...cd->...acbd", A, B).flatten(-4, -3).flatten(-2)


def product_bulk(
    W: Float[Tensor, "*batch K m"], V: Float[Tensor, "*batch m D"], gradient: Float[Tensor, "*batch K D"]
) -> Spectrum:
    """Return the eigenpairs that the full Hessian of *any* model owes to using W and V only through `B = W V`.

    With `gradient = dl/dB = U diag(sigma) R^T` and h orthogonal to the rows of W and the columns of V,
    `(dV, dW) = (h r_i^T, s u_i h^T) / sqrt(2)` is an exact eigenvector with eigenvalue `s sigma_i`, s = +-1, whatever the
    rest of the model, the loss and the other parameters are (those do not move). Directions of a zero singular value are
    null vectors as soon as h is orthogonal to the rows of W (for dV) or to the columns of V (for dW).

    The result is the Hessian on these directions alone: `n` is their number. Where the width m leaves no room, `n` is 0 and the
    one value, a zero, occurs 0 times.
    In general each of +-sigma_i occurs m - K - D + 1 times at least. Vectors are flat in the order (V, W), row-major.

    >>> W, V = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0], [1.0], [0.0]])
    >>> s = product_bulk(W, V, gradient=torch.tensor([[2.0]]))
    >>> s.expand(), s.eigenspace(0).mT
    (tensor([-2.,  2.], dtype=torch.float64), tensor([[0.0000, 0.0000, 0.7071, 0.0000, 0.0000, 0.7071]], dtype=torch.float64))
    """
    W, V, gradient = conform({"W": "K m", "V": "m D", "gradient": "K D"}, W=W, V=V, gradient=gradient)
    batch = torch.broadcast_shapes(W.shape[:-2], V.shape[:-2], gradient.shape[:-2])
    W, V, gradient = (A.expand(*batch, *A.shape[-2:]) for A in (W, V, gradient))
    neurons = Neurons(FactorLayout(W.shape[-2], W.shape[-1], V.shape[-1]))
    frame = ProductFrame.of(W, V, gradient)
    values, counts, labels, spaces = frame.bulk(gradient, neurons)
    if not labels:
        values, counts, labels, spaces = gradient.new_zeros(*batch, 1), [0], ["zero"], [frame.null_space(neurons)]
    return Spectrum(values, torch.tensor(counts, dtype=torch.long, device=values.device), tuple(labels), tuple(spaces))
