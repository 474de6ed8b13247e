r"""Where the linear network of one input with a hidden bias differs from its bulk: at most five directions.

The loss sees the parameters through `c = (<w, v>, <w, b>)`. With `omega = (dx, db)` its gradient with respect to c,
`r = |omega|` and `e = omega / r`, put `v' = e_1 v + e_2 b` and `v'' = -e_2 v + e_1 b`. Then `(w: n, v': s n)`, n orthogonal to
v'' and to `w + s v'`, has the eigenvalue `s r`, and `v'': n`, n orthogonal to w, has 0: what is left is a symmetric matrix of
size 5. That is the degree-6 polynomial of [cracking] App. B.3 without its coefficients (one of its roots is always 0).
"""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Eigenspace, Spectrum
from .moments import ScalarMoments
from .product_bulk import first_order
from .scalar_products import HALF, finite
from .spaces import Slots, Span


@dataclass(frozen=True, eq=False)
class BiasFrame:
    """Orthonormal directions that hold everything but the bulk; constants as far as autograd knows."""

    e: Float[Tensor, "*batch 2"]
    plus: Float[Tensor, "*batch m k"]
    minus: Float[Tensor, "*batch m k"]
    along: Float[Tensor, "*batch m 1"]

    @classmethod
    @torch.no_grad()
    def of(cls, w: Tensor, v: Tensor, b: Tensor, omega: Tensor) -> "BiasFrame":
        """Build the directions; a QR decomposition spans its columns whatever their rank, so nothing is excluded."""
        r = omega.norm(dim=-1, keepdim=True)
        e = torch.where(r > 0, omega / torch.where(r > 0, r, 1.0), omega.new_tensor([1.0, 0.0]))
        e1, e2 = e.split(1, -1)
        v1, v2 = e1 * v + e2 * b, e1 * b - e2 * v
        plus, minus = (torch.linalg.qr(torch.stack([v2, w + s * v1], -1)).Q for s in (+1, -1))
        along = torch.linalg.qr(w.unsqueeze(-1)).Q.expand_as(plus[..., :1])
        return cls(e, plus, minus, along)

    def slots(self, kind: str) -> Float[Tensor, "*batch 3"]:
        """How much of n the slots of w, v and b hold, for the bulk `"+"` and `"-"` and for the `"zero"` space."""
        e1, e2 = self.e.unbind(-1)
        if kind == "zero":
            return torch.stack([torch.zeros_like(e1), -e2, e1], -1)
        s = HALF if kind == "+" else -HALF
        return torch.stack([torch.full_like(e1, HALF), s * e1, s * e2], -1)

    def columns(self) -> Float[Tensor, "*batch 3 m N"]:
        """All directions, cut into the slots of w, v and b."""
        parts = [("+", self.plus), ("-", self.minus), ("zero", self.along)]
        return torch.cat([self.slots(kind)[..., :, None, None] * N.unsqueeze(-3) for kind, N in parts], -1)

    def embed(self, vectors: Float[Tensor, "*batch N k"]) -> Float[Tensor, "*batch n k"]:
        """Combine the directions into vectors of all parameters."""
        return self.columns().flatten(-3, -2) @ vectors


def bias_spectrum(w: Tensor, v: Tensor, b: Tensor, data: ScalarMoments, omega: Float[Tensor, "*batch 2"]) -> Spectrum:
    """Reduce to a matrix of size at most 5, and count the rest."""
    w, v, b = (t.expand(*omega.shape[:-1], t.shape[-1]) for t in (w, v, b))
    frame = BiasFrame.of(w, v, b, omega)
    dw, dv, db = frame.columns().unbind(-3)  # (*batch, m, N) each
    rows = [_dot(v, dw) + _dot(w, dv), _dot(b, dw) + _dot(w, db)]  # derivatives of <w, v> and <w, b>
    J = torch.stack(rows, -2)
    Sxx = torch.stack([data.s2, data.mean_x, data.mean_x, torch.ones_like(data.s2)], -1).unflatten(-1, (2, 2))
    cross = dw.mT @ (omega[..., 0, None, None] * dv + omega[..., 1, None, None] * db)
    reduced = first_order(J.mT @ Sxx @ J + cross + cross.mT)
    outliers, vectors = (part.flip(-1) for part in torch.linalg.eigh(reduced))

    m, k, size = w.shape[-1], frame.plus.shape[-1], outliers.shape[-1]
    r = torch.linalg.vector_norm(omega, dim=-1, keepdim=True)
    values = torch.cat([outliers, r, 0.0 - r, torch.zeros_like(r)], -1)
    counts = torch.tensor([1] * size + [m - k, m - k, m - 1], device=values.device)
    ones = torch.ones(values.shape[:-1], dtype=torch.int64, device=values.device)

    spaces: list[Eigenspace] = [Span(3 * m, ones, partial(frame.embed, vectors[..., i : i + 1])) for i in range(size)]
    for kind, avoid in (("+", frame.plus), ("-", frame.minus), ("zero", frame.along)):
        spaces.append(Slots(frame.slots(kind), avoid, n=3 * m))
    labels = ("outlier",) * size + ("bulk", "bulk", "zero")
    return finite(Spectrum(values, counts, labels, tuple(spaces)))


def _dot(a: Float[Tensor, "*batch m"], D: Float[Tensor, "*batch m N"]) -> Float[Tensor, "*batch N"]:
    return (a.unsqueeze(-2) @ D).squeeze(-2)
