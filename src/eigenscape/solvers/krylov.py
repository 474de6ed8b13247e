"""An orthonormal basis that grows by products, is compressed by restarts, and knows what it multiplied."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import random_like
from .products import CHUNK, Products, inner, lengths, normalised

NEGLIGIBLE = 1e-2  # share of a vector: subtracting so little leaves it orthogonal to rounding


class Krylov:
    r"""`W = A Q`, `T = Q^T A Q`, `Q^T Q = I`, and `W_last = Q T_last + P R` with pending directions P orthonormal to Q.

    Rows of `Q` are the basis: the first `size` have been multiplied (their products are the rows of `W`), the next `width`
    are the pending directions P. `T` is float64 on the CPU. Started from one vector and never redirected, this is the
    Lanczos process with full reorthogonalisation; `restart` makes it thick-restart Lanczos.
    """

    def __init__(self, A: Products, capacity: int, generator: torch.Generator):
        self.A, self.capacity, self.generator = A, capacity, generator
        b, n = A.members, A.n
        self.Q = torch.empty(b, capacity, n, dtype=A.dtype, device=A.device)
        self.W = torch.empty(b, capacity, n, dtype=A.dtype, device=A.device)
        self.T = torch.zeros(b, capacity, capacity, dtype=torch.float64)
        self.P = torch.empty(b, 0, n, dtype=A.dtype, device=A.device)
        self.R = torch.zeros(b, 0, 0, dtype=torch.float64)
        self.scale = torch.zeros(b, dtype=torch.float64)  # the longest product of a unit vector: at most |A|
        self.disagreement = torch.zeros(b, dtype=torch.float64)  # of a product with what the others add up to, if measured
        self.size = 0
        self.restarts = 0
        self.chained = False  # whether products couple the pending directions to the last ones only

    @property
    def width(self) -> int:
        """Number of pending directions."""
        return self.P.shape[-2]

    @property
    def complete(self) -> bool:
        """Whether the basis spans the whole space."""
        return self.size == self.A.n

    @property
    def noise(self) -> Float[Tensor, "b"]:
        """What noise may have put into a residual: a few units in the last place of |A|, or more where more was measured."""
        return torch.maximum(4 * self.A.eps * (1 + self.restarts) ** 0.5 * self.scale, self.disagreement)

    def aim(self, rows: Float[Tensor, "b w n"] | None, width: int = 1) -> None:
        """Make these directions (or `width` random ones) pending, orthonormalised; what is lost is replaced at random."""
        width = min(width if rows is None else rows.shape[-2], self.A.n - self.size)
        rows = self._random(width) if rows is None else normalised(rows[:, :width])
        self.chained = False
        self.P, self.R = self._orthonormalised(rows, torch.ones(self.A.members, dtype=torch.float64), passes=3)

    def expand(self) -> None:
        """Multiply the pending directions, add them to the basis, and make what is new in the products pending."""
        old, new = self.size, slice(self.size, self.size + self.width)
        self.Q[:, new] = self.P
        self.W[:, new] = fresh = self.A(self.P)
        self.size = new.stop
        self.scale = torch.maximum(self.scale, lengths(fresh).amax(-1).cpu())
        C, rest = self._projected(fresh, max(0, old - self.R.shape[-1]) if self.chained else 0)
        self.T[:, : self.size, new] = C
        self.T[:, new, new] = (self.T[:, new, new] + self.T[:, new, new].mT) / 2
        self.T[:, new, :old] = self.T[:, :old, new].mT
        self.P, self.R = self._orthonormalised(rest[:, : self.A.n - self.size], self.scale, passes=0)
        self.chained = True

    def _projected(self, fresh: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """`C = Q fresh^T`, the new columns of T, and what is left of `fresh` outside the basis, in two passes.

        The first takes away the large components, which lie in the rows from `first` on, and the second what else there is. If
        that is much, rows further back were not what they should be, and a third pass follows.
        """
        C = torch.zeros(self.A.members, self.size, fresh.shape[-2], dtype=torch.float64)
        rest = fresh
        for start in (first, 0, 0):
            basis = self.Q[:, start : self.size]
            found = inner(basis, rest)
            rest = rest - found.to(rest.dtype).mT @ basis
            C[:, start:] += found.cpu()
            if start == 0 and bool((found.norm(dim=-2) <= NEGLIGIBLE * lengths(rest)).all()):
                break
        return C, rest

    def ritz(self) -> tuple[Float[Tensor, "b size"], Float[Tensor, "b size size"]]:
        """Eigenvalues (ascending) and eigenvectors (columns) of T."""
        theta, Y = torch.linalg.eigh(self.T[:, : self.size, : self.size])
        return theta, Y

    def expected(self, Y: Float[Tensor, "b size k"]) -> Float[Tensor, "b k"]:
        """Residual norms that the recurrence promises, `|R y_last|`; free, and true as long as it was never redirected."""
        columns = self.R.shape[-1]
        return torch.linalg.vector_norm(self.R @ Y[:, self.size - columns : self.size], dim=-2)

    def pairs(self, Y: Float[Tensor, "b size k"]) -> tuple[Tensor, Tensor, Tensor]:
        """Unit vectors `x = Q y` (rows), Rayleigh quotients t, and residuals `A x - t x` (rows), from the stored products."""
        X, AX = self._combine(self.Q, Y), self._combine(self.W, Y)
        square = lengths(X).square()
        t = torch.stack([inner(x[:, None], ax[:, None])[:, 0, 0] for x, ax in zip(X.unbind(1), AX.unbind(1))], -1) / square
        residual = AX - t.to(X.dtype).unsqueeze(-1) * X
        root = square.sqrt().to(X.dtype).unsqueeze(-1)
        return X / root, t.cpu(), residual / root

    def restart(self, Y: Float[Tensor, "b size k"]) -> None:
        """Keep only the combinations `Q Y` (and their products, and the pending directions)."""
        k = Y.shape[-1]
        for i in range(0, self.A.n, CHUNK):
            for rows in (self.Q, self.W):
                part = rows[:, : self.size, i : i + CHUNK]
                rows[:, :k, i : i + CHUNK] = Y.mT.to(part) @ part
        T = Y.mT @ self.T[:, : self.size, : self.size] @ Y
        self.T[:, :k, :k] = (T + T.mT) / 2
        self.R = torch.zeros(self.A.members, self.width, 0, dtype=torch.float64)
        self.size = k
        self.restarts += 1
        self.chained = False

    def _combine(self, rows: Tensor, Y: Tensor) -> Tensor:
        part = rows[:, : self.size]
        return Y.mT.to(part) @ part

    def _random(self, width: int) -> Tensor:
        shape = (self.A.members, width, self.A.n)
        return normalised(random_like(shape, self.generator, dtype=self.A.dtype, device=self.A.device))

    def _orthonormalised(self, rows: Tensor, scale: Tensor, passes: int) -> tuple[Tensor, Tensor]:
        """Orthonormalise rows against the basis and each other; rows that vanish next to `scale` become random directions.

        Returns P (rows) and R with `rows = P^T R` up to the part inside the basis; a replaced row has a zero in R.
        """
        b, width = rows.shape[:2]
        P = torch.empty_like(rows)
        R = torch.zeros(b, width, width, dtype=torch.float64)
        tiny = 16 * self.A.eps * scale.to(rows.device)
        for j in range(width):
            v = rows[:, j : j + 1]
            for _ in range(passes + 2 * (j > 0)):  # twice is enough
                v, c = self._remove(v, P[:, :j])
                R[:, :j, j] += c.cpu()
            size = lengths(v)[:, 0]
            lost = size <= tiny
            if bool(lost.any()):
                other = self._random(1)
                for _ in range(3):
                    other = normalised(self._remove(other, P[:, :j])[0])
                v = torch.where(lost[:, None, None], other, v)
            P[:, j] = v[:, 0] / torch.where(lost, 1.0, size).to(v.dtype).unsqueeze(-1)
            R[:, j, j] = torch.where(lost, 0.0, size).cpu()
        return P, R

    def _remove(self, v: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
        """Subtract the projections on the basis and on P; the coefficients on P come back."""
        basis = self.Q[:, : self.size]
        if self.size:
            v = v - inner(v, basis).to(v.dtype) @ basis
        if not P.shape[-2]:
            return v, torch.zeros(v.shape[0], 0, dtype=torch.float64)
        c = inner(v, P)
        return v - c.to(v.dtype) @ P, c[:, 0]
