"""A matrix split in two: its action on a random range, which is computed, and the rest, which is sampled."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import SolverError, random_like
from .products import Products, inner, normalised

BYTES = 1 << 28  # of the random vectors that are multiplied together
DEFAULT_MATVECS = 100  # when neither a tolerance nor a limit is given: a third each for range, its products and samples
PILOT = 16  # samples that fix the variance when a tolerance is given, and directions of the sketch
BRIEF = 8  # samples that say whether a sketch is needed at all
EASY = 3 * PILOT  # products that a sketch costs at least, with its samples
MOST = 1000  # products spent on a tolerance when no limit is given


@dataclass
class Sketch:
    r"""`Q` spans the range of `A` on random vectors; `AQ` is known, and so is all of A but `(I - Q Q^T) A (I - Q Q^T)`.

    That makes Hutch++ (Meyer, Musco, Musco and Woodruff, SOSA 2021) of the trace, and its relatives.
    """

    A: Products
    Q: Float[Tensor, "b s n"]
    AQ: Float[Tensor, "b s n"]
    generator: torch.Generator

    @classmethod
    def of(cls, A: Products, size: int, generator: torch.Generator, given: Float[Tensor, "b k n"] | None = None) -> "Sketch":
        """Spend `2 size` products: on random vectors, and on an orthonormal basis of what came out.

        `given` are products with other random vectors, which need not be spent again.
        """
        if not size:
            empty = torch.empty(A.members, 0, A.n, dtype=A.dtype, device=A.device)
            return cls(A, empty, empty, generator)
        ranges = [] if given is None else [given[:, :size]]
        more = size - sum(r.shape[1] for r in ranges)
        if more:
            ranges.append(A(random_like((A.members, more, A.n), generator, dtype=A.dtype, device=A.device)))
        Q = torch.linalg.qr(normalised(torch.cat(ranges, 1)).mT).Q.mT.contiguous()
        return cls(A, Q, A(Q), generator)

    @property
    def rest(self) -> int:
        """Dimension of the complement."""
        return self.A.n - self.Q.shape[-2]

    @property
    def width(self) -> int:
        """How many random vectors to multiply at once."""
        return max(1, BYTES // (self.A.members * self.A.n * self.A.dtype.itemsize))

    def outside(self, rows: Float[Tensor, "b k n"]) -> Float[Tensor, "b k n"]:
        """Project on the complement, twice for accuracy."""
        for _ in range(2):
            rows = rows - inner(rows, self.Q).to(rows.dtype) @ self.Q
        return rows

    def known(self) -> Float[Tensor, "b 2"]:
        """Part of the trace, `tr Q^T A Q`, and of the squared Frobenius norm, `2 |A Q|^2 - |Q^T A Q|^2`, that is exact."""
        T = inner(self.Q, self.AQ)
        trace = T.diagonal(dim1=-2, dim2=-1).sum(-1)
        return torch.stack([trace, 2 * _square(self.AQ).sum(-1) - T.square().sum((-1, -2))], -1)

    def sample(self, count: int) -> Float[Tensor, "b count 2"]:
        """Unbiased samples of the rest of trace and squared Frobenius norm."""
        return self.probed(count)[0]

    def probed(self, count: int) -> tuple[Float[Tensor, "b count 2"], Float[Tensor, "b count n"]]:
        """The samples `d z^T A z` and `d |(I - Q Q^T) A z|^2`, and the products `A z`.

        z is uniform on the unit sphere of the complement, of dimension d: its fixed length spares the trace the variance that
        a multiple of the identity would cause, and no basis is special.
        """
        shape = (self.A.members, count, self.A.n)
        z = normalised(self.outside(random_like(shape, self.generator, dtype=self.A.dtype, device=self.A.device)))
        Az = self.A(z)
        return self.rest * torch.stack([(z * Az).sum(-1, dtype=torch.float64), _square(self.outside(Az))], -1), Az

    def quadratic_variance(self, mean: Float[Tensor, "b 2"]) -> Float[Tensor, "b"]:
        """Variance of a trace sample by theory, `2 d / (d + 2) (F - t^2 / d)`, t and F the rest of trace and squared norm.

        Where few eigenvalues make up the rest, the samples are skew, and their own variance is small just when their mean
        is: this one is steadier.
        """
        d, (t, F) = max(self.rest, 1), mean.unbind(-1)
        return (2 * d / (d + 2) * (F - t.square() / d)).clamp(min=0)


def _square(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()


def budget(rtol: float | None, max_matvecs: int | None) -> int:
    """Number of products allowed, after checking the request."""
    if rtol is not None and not 0 < rtol < 1:
        raise SolverError(f"rtol is {rtol}; expected a relative standard error between 0 and 1, such as 0.01.")
    if max_matvecs is None:
        return DEFAULT_MATVECS if rtol is None else MOST
    if isinstance(max_matvecs, bool) or not isinstance(max_matvecs, int) or max_matvecs < 2:
        raise SolverError(f"max_matvecs is {max_matvecs!r}; expected a whole number of at least 2: an error takes two samples.")
    return max_matvecs


def split(limit: int, rtol: float | None) -> int:
    """Directions to sketch: a third of the products for a fixed budget, a few when a tolerance decides."""
    return min(PILOT, (limit - 2) // 3) if rtol is not None else (limit - 2) // 3
