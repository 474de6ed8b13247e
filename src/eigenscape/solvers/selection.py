"""Which eigenvalues are wanted, and in what order."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..core import SolverError

WHICH = ("largest", "smallest", "both", "magnitude")


@dataclass(frozen=True)
class Selection:
    """`count` eigenvalues at the wanted end or ends; `keys` grow with how much a value is wanted."""

    which: str
    count: int

    @classmethod
    def of(cls, k: int, which: str, n: int) -> "Selection":
        """Check a request against the size of the matrix; both ends give k each, or all n where they meet."""
        if which not in WHICH:
            raise SolverError(f"which is {which!r}; expected one of {', '.join(map(repr, WHICH))}.")
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= n:
            raise SolverError(f"k is {k!r} for a matrix of size {n}; expected a whole number from 1 to {n}.")
        return cls(which, min(2 * k, n) if which == "both" else k)

    @property
    def ends(self) -> tuple[int, ...]:
        """Signs of the ends of the spectrum that matter: +1 the top, -1 the bottom."""
        return {"largest": (1,), "smallest": (-1,)}.get(self.which, (1, -1))

    def order(self, theta: Float[Tensor, "b m"]) -> Int[Tensor, "b m"]:
        """Positions of ascending values, most wanted first; both ends alternate, the top first."""
        m = theta.shape[-1]
        if self.which == "magnitude":
            return theta.abs().argsort(dim=-1, descending=True, stable=True)
        up = torch.arange(m)
        if self.which == "both":
            up = torch.stack([up.flip(0), up], -1).reshape(-1)[:m]
        elif self.which == "largest":
            up = up.flip(0)
        return up.expand_as(theta)

    def rival(self, ranked: Float[Tensor, "b m"], errors: Float[Tensor, "b m"], aim: Float[Tensor, "b"]) -> Bool[Tensor, "b"]:
        """Whether a value not chosen, on the other side of zero and not yet converged, may be larger than the last chosen.

        The two ends of a spectrum converge at different speeds; within an end, outer values converge first.
        """
        if self.which != "magnitude" or ranked.shape[-1] <= self.count:
            return torch.zeros_like(aim, dtype=torch.bool)
        last, rest, error = ranked[:, self.count - 1, None], ranked[:, self.count :], errors[:, self.count :]
        opposite = rest.sign() * last.sign() <= 0
        return (opposite & (rest.abs() + error > last.abs()) & (error > aim.unsqueeze(-1))).any(-1)

    def keys(self, wanted: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        """Turn wanted values, most wanted first, into numbers that can only grow as the search space grows."""
        if self.which == "both":
            return wanted * torch.where(torch.arange(wanted.shape[-1]) % 2 == 0, 1.0, -1.0).to(wanted)
        return {"largest": wanted, "smallest": -wanted, "magnitude": wanted.abs()}[self.which]

    def end_keys(self, wanted: Float[Tensor, "b k"], end: int) -> Float[Tensor, "b k"]:
        """Keys of the wanted values of one end, most wanted first."""
        keys = self.keys(wanted)
        return keys[:, (0 if end > 0 else 1) :: 2] if self.which == "both" and keys.shape[-1] > 1 else keys

    def final(self, values: Float[Tensor, "b k"]) -> Int[Tensor, "b k"]:
        """Positions that put the wanted values in the order users see."""
        if self.which == "magnitude":
            return values.abs().argsort(dim=-1, descending=True, stable=True)
        return values.argsort(dim=-1, descending=self.which == "largest", stable=True)
