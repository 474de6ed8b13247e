"""Extreme eigenpairs of an operator that changes slowly: a few products per look, from the vectors of the last one."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import SolverError, random_like, resolve_generator
from ..linop import Counted, Operator
from ..solvers import eigsh

SMALL = 64  # up to this size every column is multiplied, and the answer is certain
STIR = 0.1  # how much of a random direction is mixed into a guard vector that has converged
NOISE = 8  # units in the last place of |A| that rounding may put into a residual


@dataclass(frozen=True, eq=False)
class Tracked:
    """The k largest eigenpairs at one look.

    `values[i]` lies within `residual_norms[i]` of an eigenvalue, surely. `low <= the largest eigenvalue` is sure too; that it
    is at most `high` holds unless a larger one has come up unseen since the last search (`searched` looks ago, None if there
    was none yet; that search failed to see one with probability 0.001 at most).
    """

    values: Float[Tensor, "k"]
    vectors: Float[Tensor, "n k"]
    residual_norms: Float[Tensor, "k"]
    low: float
    high: float
    num_matvecs: int
    converged: bool
    searched: int | None


class Columns:
    """Columns of length n that grow one by one, each in one piece of memory."""

    def __init__(self, first: Float[Tensor, "n p"]):
        self._rows, self._count = first.mT.contiguous(), first.shape[1]

    @property
    def all(self) -> Float[Tensor, "n p"]:
        """View them as a matrix."""
        return self._rows[: self._count].mT

    def add(self, column: Float[Tensor, "n 1"]) -> None:
        """Append one; room is made for half as many again where there is none."""
        if self._count == len(self._rows):
            self._rows = torch.cat([self._rows, torch.empty_like(self._rows[: max(2, self._count // 2)])])
        self._rows[self._count] = column[:, 0]
        self._count += 1


@dataclass
class Tracker:
    r"""Follow the k largest eigenpairs.

    A look starts from the span of the last vectors and one guard vector, the next Ritz vector: `T = V^T A V` there, then
    residuals join the basis one by one (at least one of them) until `|A x - t x| <= tol |A|` for the k wanted pairs: k + 2
    products while the operator changes slowly. The guard is improved at every look, so an eigenvalue that overtakes is in the
    basis before it does; once it has converged it is stirred with a random direction, so that the search never ends. The first
    look and every `recheck`-th one look for missed eigenvalues from random directions as `es.eigsh` does; a first look that is
    given a direction to start from saves that search.
    """

    k: int = 1
    tol: float = 0.02
    most: int = 40
    recheck: int = 50
    search: int = 200
    generator: torch.Generator = field(default_factory=lambda: resolve_generator(None))
    basis: Float[Tensor, "n p"] | None = None
    looks: int = 0  # since the last search, or since the first look
    verified: bool = False

    def look(self, op: Operator, start: Float[Tensor, "n"] | None = None) -> Tracked:
        """Measure the operator as it is now; `start` is where a first look may begin."""
        A = Counted(op)
        k = min(self.k, op.n)
        known = self.basis is not None and self.basis.shape[0] == op.n
        if not known and start is not None and bool(start.any()):
            self.basis, self.looks, self.verified, known = self._opening(start), -1, False, True
        stale = not known or self.looks + 1 >= self.recheck
        return self._search(A, k) if op.n <= SMALL or stale else self._follow(A, k)

    def _opening(self, start: Tensor) -> Tensor:
        z = random_like((len(start),), self.generator, dtype=start.dtype, device=start.device)
        return torch.stack([start / torch.linalg.vector_norm(start), z / torch.linalg.vector_norm(z)], -1)

    def _search(self, A: Counted, k: int) -> Tracked:
        fits = self.basis is not None and self.basis.shape[0] == A.n and A.n > SMALL
        wide = min(k + 1, A.n)
        found = eigsh(
            A,
            wide,
            tol=min(self.tol, 1e-2),
            v0=self.basis if fits else None,
            generator=self.generator,
            max_matvecs=max(self.search, wide, A.n if A.n <= SMALL else 0),
        )
        self.basis, self.looks, self.verified = found.vectors, 0, True
        values, norms = found.values[:k].double().cpu(), found.residual_norms[:k].double().cpu()
        top = found.top
        low = float(top.lower) if top is not None else float(values[0] - norms[0])
        high = float(top.upper) if top is not None else float(values[0] + norms[0])
        return Tracked(values, found.vectors[:, :k], norms, low, high, A.num_matvecs, found.converged, 0)

    def _follow(self, A: Counted, k: int) -> Tracked:
        assert self.basis is not None
        start = torch.linalg.qr(self.basis.to(dtype=A.dtype, device=A.device)).Q
        V, W = Columns(start), Columns(self._times(A, start))
        T = V.all.mT @ W.all
        expanded = False
        while True:
            theta, Y = torch.linalg.eigh((T + T.mT).double() / 2)
            theta, Y = theta.flip(-1)[: k + 1], Y.flip(-1)[:, : k + 1].to(A.dtype)
            R = W.all @ Y[:, :k] - V.all @ (Y[:, :k] * theta[:k].to(A.dtype))
            scale = float(T.abs().max())
            noise = NOISE * torch.finfo(A.dtype).eps * scale
            norms = torch.linalg.vector_norm(R, dim=0, dtype=torch.float64) + noise
            aim = max(self.tol * scale, 2 * noise)
            done = bool((norms <= aim).all())
            if (done and expanded) or A.num_matvecs >= self.most:
                break
            wanted = R[:, int(norms.argmax())] if not done else W.all @ Y[:, -1] - V.all @ (Y[:, -1] * theta[-1].to(A.dtype))
            new = self._fresh(V.all, wanted)
            if new is None:
                break
            V.add(new)
            W.add(self._times(A, new))
            t = V.all.mT @ W.all[:, -1:]  # (p, 1)
            T, expanded = torch.cat([torch.cat([T, t[:-1].mT]), t], -1), True
        X = V.all @ Y
        guard = W.all @ Y[:, -1] - X[:, -1] * theta[-1].to(A.dtype)
        self.basis = self._stirred(X, k, float(torch.linalg.vector_norm(guard, dtype=torch.float64)) + noise <= aim)
        self.looks += 1
        values, norms = theta[:k].cpu(), norms.cpu()
        low, high = float(values[0]) - noise, float(values[0] + norms[0])
        searched = self.looks if self.verified else None
        return Tracked(values, X[:, :k], norms, low, high, A.num_matvecs, done, searched)

    @staticmethod
    def _times(A: Counted, V: Tensor) -> Tensor:
        out = A @ V
        if not bool(torch.isfinite(out).all()):
            raise SolverError("a product is not finite (NaN or inf); expected finite products: has the training diverged?")
        return out

    @staticmethod
    def _fresh(V: Tensor, r: Tensor) -> Tensor | None:
        """Return the part of r outside the basis, as a unit column; None where rounding is all that is left."""
        size = float(torch.linalg.vector_norm(r))
        w = r / size if size > 0 else r
        for _ in range(2):
            w = w - V @ (V.mT @ w)
        rest = float(torch.linalg.vector_norm(w))
        return (w / rest).unsqueeze(-1) if rest > 1e-3 else None

    def _stirred(self, X: Tensor, k: int, settled: bool) -> Tensor:
        if X.shape[1] <= k or not settled:
            return X
        z = random_like((X.shape[0],), self.generator, dtype=X.dtype, device=X.device)
        return torch.cat([X[:, :k], (X[:, k] + STIR * z / torch.linalg.vector_norm(z)).unsqueeze(-1)], -1)

    def state_dict(self) -> dict[str, Any]:
        """Everything the next look depends on."""
        names = ("basis", "looks", "verified")
        return {name: getattr(self, name) for name in names} | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.basis, self.looks, self.verified = state["basis"], state["looks"], state["verified"]
        self.generator.set_state(state["generator"].cpu())
