"""The parameters of a two-factor model as one flat vector, and the eigenspaces that live on the two factors alone."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Layout
from .spaces import Counted, complement


@dataclass(frozen=True)
class FactorLayout:
    """Where `x -> W (V x + b) + c` keeps its parameters in the flat vector: V, b, W, c, each row-major.

    This is the order of `nn.Sequential(nn.Linear(D, m), nn.Linear(m, K))`. Inside, a hidden bias is the last column of V.

    >>> FactorLayout(outputs=1, width=3, inputs=2, hidden_bias=True).layout.shapes
    ((3, 2), (3,), (1, 3))
    """

    outputs: int
    width: int
    inputs: int
    hidden_bias: bool = False
    output_bias: bool = False

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors, in order."""
        K, m, D = self.outputs, self.width, self.inputs
        shapes = {"V": (m, D), "b": (m,), "W": (K, m), "c": (K,)}
        absent = {"b": not self.hidden_bias, "c": not self.output_bias}
        kept = {name: shape for name, shape in shapes.items() if not absent.get(name)}
        return Layout(tuple(kept), tuple(kept.values()))

    def split(self, rows: Float[Tensor, "*batch k n"]) -> tuple[Tensor, Tensor, Tensor]:
        """Cut flat rows into V (k, m, D), W (k, K, m) and c (k, K); what is absent has size 0."""
        parts = self.layout.unflatten(rows)
        V, W = parts["V"], parts["W"]
        if self.hidden_bias:
            V = torch.cat([V, parts["b"].unsqueeze(-1)], -1)
        return V, W, parts["c"] if self.output_bias else W[..., :0, 0]

    def join(self, V: Tensor, W: Tensor, c: Tensor | None = None) -> Float[Tensor, "*batch k n"]:
        """Undo `split`; a missing c is zero."""
        parts = [V[..., : self.inputs].flatten(-2), V[..., self.inputs :].flatten(-2), W.flatten(-2)]
        if self.output_bias:
            parts.append(W.new_zeros(*W.shape[:-2], self.outputs) if c is None else c)
        return torch.cat(parts, -1)


@dataclass(frozen=True, eq=False)
class Neurons:
    """Some of the hidden neurons of a two-factor model: picks their rows of V and columns of W, and puts them back."""

    parameters: FactorLayout
    index: Tensor | None = None

    @property
    def size(self) -> int:
        """Length of the flat vector of all parameters."""
        return self.parameters.layout.size

    def pick(self, rows: Float[Tensor, "*batch k n"]) -> tuple[Tensor, Tensor]:
        """Parts of V (k, m', D) and W (k, K, m') that belong to these neurons."""
        V, W, _ = self.parameters.split(rows)
        return (V, W) if self.index is None else (V[..., self.index, :], W[..., self.index])

    def place(self, V: Tensor, W: Tensor, c: Tensor | None = None) -> Float[Tensor, "*batch k n"]:
        """Flat rows that are zero elsewhere."""
        if self.index is not None:
            m = self.parameters.width
            full_V, full_W = V.new_zeros(*V.shape[:-2], m, V.shape[-1]), W.new_zeros(*W.shape[:-1], m)
            full_V[..., self.index, :], full_W[..., self.index] = V, W
            V, W = full_V, full_W
        return self.parameters.join(V, W, c)


class BulkSpace(Counted):
    """All `(dV, dW) = (h r^T, sign u h^T) / sqrt(2)` with h orthogonal to the columns of `span`."""

    def __init__(
        self,
        neurons: Neurons,
        u: Float[Tensor, "*batch K"],
        r: Float[Tensor, "*batch D"],
        sign: int,
        span: Float[Tensor, "*batch m s"],
    ):
        m, s = span.shape[-2:]
        super().__init__(neurons.size, torch.full(span.shape[:-2], m - s, device=span.device))
        self.neurons, self.u, self.r, self.sign, self.span = neurons, u, r, sign, span

    def _project(self, V: Tensor) -> Tensor:
        dV, dW = self.neurons.pick(V.mT)
        h = torch.einsum("...kmd,...d->...km", dV, self.r) + self.sign * torch.einsum("...kom,...o->...km", dW, self.u)
        return self._embed(h - (h @ self.span) @ self.span.mT) / 2

    def _embed(self, h: Float[Tensor, "*batch k m"]) -> Float[Tensor, "*batch n k"]:
        dV = torch.einsum("...km,...d->...kmd", h, self.r)
        dW = self.sign * torch.einsum("...km,...o->...kom", h, self.u)
        return self.neurons.place(dV, dW).mT

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """Orthonormal basis, as columns."""
        return self._embed(complement(self.span).mT / 2**0.5)


class NullSpace(Counted):
    """All `dV = h r^T`, r in R, h orthogonal to `rows`, and all `dW = u h^T`, u in U, h orthogonal to `columns`."""

    def __init__(
        self,
        neurons: Neurons,
        U: Float[Tensor, "*batch K p"],
        R: Float[Tensor, "*batch D q"],
        rows: Float[Tensor, "*batch m rW"],
        columns: Float[Tensor, "*batch m rV"],
    ):
        free = R.shape[-1] * (rows.shape[-2] - rows.shape[-1]) + U.shape[-1] * (rows.shape[-2] - columns.shape[-1])
        super().__init__(neurons.size, torch.full(rows.shape[:-2], free, device=rows.device))
        self.neurons, self.U, self.R, self.rows, self.columns = neurons, U, R, rows, columns

    def _project(self, V: Tensor) -> Tensor:
        dV, dW = self.neurons.pick(V.mT)
        dV = dV @ (self.R @ self.R.mT).unsqueeze(-3)
        dW = (self.U @ self.U.mT).unsqueeze(-3) @ dW
        P, Q = self.rows.unsqueeze(-3), self.columns.unsqueeze(-3)
        return self.neurons.place(dV - P @ (P.mT @ dV), dW - (dW @ Q) @ Q.mT).mT

    def basis(self) -> Float[Tensor, "*batch n dim"]:
        """Orthonormal basis, as columns."""
        dV = torch.einsum("...mh,...dq->...hqmd", complement(self.rows), self.R).flatten(-4, -3)
        dW = torch.einsum("...mh,...kp->...hpkm", complement(self.columns), self.U).flatten(-4, -3)
        only_V = self.neurons.place(dV, dV.new_zeros(*dV.shape[:-2], self.U.shape[-2], dV.shape[-2]))
        only_W = self.neurons.place(dW.new_zeros(*dW.shape[:-2], dW.shape[-1], self.R.shape[-2]), dW)
        return torch.cat([only_V, only_W], -2).mT
