"""Extremal eigenpairs by thick-restart Lanczos, with a search for what a single start vector cannot see."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import EigenPairs, Enclosure, SolverError, random_like, resolve_generator
from ..linop import Operator
from .certificate import ceiling, coefficients, growth, reach
from .coarse import NEAR, ROUGH, coarse_products, spent_on
from .complete import columns, complete_pairs
from .krylov import Krylov
from .products import Products, lengths, normalised
from .selection import Selection

SMALL = 64  # up to this size every column is multiplied: no iteration is cheaper
NEAR_ZERO = 1e-2  # a value below this share of |A| is measured against this share of |A| instead of against itself
MEMORY = 4 << 30  # bytes for the basis and its products, where the choice is ours
TINY = torch.finfo(torch.float64).tiny


@dataclass
class Found:
    """What a search holds: unit vectors (rows), values, residuals; most wanted first."""

    vectors: Float[Tensor, "b k n"]
    values: Float[Tensor, "b k"]
    residuals: Float[Tensor, "b k n"]
    Y: Float[Tensor, "b m k"]

    @property
    def norms(self) -> Float[Tensor, "b k"]:
        """Residual norms."""
        return lengths(self.residuals).cpu()


@dataclass
class Search:
    """One request, while it is being answered."""

    A: Products
    wanted: Selection
    tol: float
    budget: int
    failure: float
    generator: torch.Generator
    block: int
    warm: int  # columns of the warm start; without one (0) the first cycle bounds the extreme eigenvalues
    coarse: Products | None = None  # what the warm start was sought with
    checks: int = 0  # products that were spent on checking
    first: tuple[Tensor, Tensor] | None = None

    def goal(self, space: Krylov, values: Tensor) -> Tensor:
        """Residual norm at which a pair has converged: relative to |t|, or to a small share of |A| for values near zero."""
        return self.tol * torch.maximum(values.abs(), NEAR_ZERO * space.scale.unsqueeze(-1))

    def converge(self, space: Krylov) -> Found:
        """Expand and restart until every wanted pair converges, rounding stops all progress, or the products run out.

        A warm start of several vectors is no Krylov space: it grows by the residuals of all pairs that are still open. Noise
        that shows in the products as `u^T A v - v^T A u` is measured when it leaves no pair within reach, and the goal is then
        what it allows.
        """
        k, best, stalled = self.wanted.count, torch.inf, 0
        asymmetry, linked, measured = torch.zeros(self.A.members, dtype=torch.float64), False, False
        while True:
            if space.size >= k:
                theta, Y = self.ranked(space)
                noise = space.noise.unsqueeze(-1)
                aim = torch.maximum(self.goal(space, theta[:, :k]) - noise, noise)
                if not measured and self.A.count < self.budget and bool((asymmetry.unsqueeze(-1) > aim).all()):
                    self.confirm(space, Found(*space.pairs(Y[..., :k]), Y[..., :k]))
                    measured = True
                    continue
                spent = self.A.count + space.width > self.budget
                promised = space.expected(Y)
                settled = (promised[:, :k] <= aim).all() and not self.wanted.rival(theta, promised, aim[:, -1]).any()
                if space.complete or spent or self.warm > 1 or bool(settled):
                    found = Found(*space.pairs(Y[..., :k]), Y[..., :k])
                    ratios = found.norms / aim.clamp(min=TINY)
                    excess = float(ratios.clamp(min=1).log2().sum())  # halvings that are missing
                    stalled, best = (0, excess) if excess < best - 1 else (stalled + 1, best)
                    if self.warm > 1 and stalled > 2 and not spent and not self.at_noise(space, found, aim):
                        stalled = 0
                    if space.complete or spent or excess == 0 or stalled > 2:
                        self._remember(space)
                        return found
                    space.aim(self._open(found, ratios, space))
                    linked = False
                if space.size + space.width > space.capacity:
                    self._remember(space)
                    space.restart(Y[..., : k + (space.capacity - k) * 2 // 5])
                    linked = False
            old, R = space.size, space.R
            space.expand()
            if linked and not space.complete:
                asymmetry = torch.maximum(asymmetry, _asymmetry(space.T[:, :old, old : space.size], R))
            linked = True

    def _open(self, found: Found, ratios: Tensor, space: Krylov) -> Tensor:
        """Residuals to go on with: the worst of each member, or, from a warm start, of all pairs that are open in any."""
        room = min(space.capacity - found.values.shape[-1], self.budget - self.A.count)
        if self.warm > 1:
            return found.residuals[:, (ratios > 1).any(0)][:, :room]
        return found.residuals[torch.arange(self.A.members), ratios.argmax(-1)].unsqueeze(1)

    def confirm(self, space: Krylov, found: Found) -> None:
        """Multiply a random combination of what was found, and note how far that is from what the products so far add up to.

        One draw speaks for all pairs, so its double counts.
        """
        gap, _ = self.gap(found, self.A)
        space.disagreement = torch.maximum(space.disagreement, 2 * gap)
        self.checks += 1

    def gap(self, found: Found, A: Products) -> tuple[Tensor, Tensor]:
        """How far a product with A is from what ours add up to, for a random combination of what was found; and its length."""
        signs = random_like(
            (1, self.wanted.count, 1), self.generator, dtype=self.A.dtype, device=self.A.device, kind="rademacher"
        )
        c = signs / self.wanted.count**0.5
        known = found.residuals + found.values.to(found.vectors).unsqueeze(-1) * found.vectors
        product = A((c * found.vectors).sum(1, keepdim=True))[:, 0]
        return lengths(product - (c * known).sum(1)).cpu(), lengths(product).cpu()

    def _remember(self, space: Krylov) -> None:
        """Keep the recurrence of the first cycle, before a restart mixes it with what is known of the spectrum."""
        if self.first is None and not self.warm:
            m = space.size
            self.first = coefficients(space.T[:, :m, :m], self.block, space.R)

    def ranked(self, space: Krylov) -> tuple[Tensor, Tensor]:
        """Ritz values and coefficient vectors, most wanted first."""
        theta, Y = space.ritz()
        order = self.wanted.order(theta)
        return theta.gather(-1, order), Y.gather(-1, order.unsqueeze(-2).expand_as(Y))

    def first_reaches(self) -> dict[int, Tensor]:
        """How far each end of the spectrum can reach by the first cycle, when the start was random."""
        if self.first is None:
            return {}
        (a, b), limit = self.first, ceiling(self.A.n, self.failure)
        return {end: reach(end * a, b, limit) for end in self.wanted.ends}

    def converged(self, space: Krylov, found: Found) -> bool:
        """Whether every pair is as good as asked for, or as rounding allows."""
        noise = space.noise.unsqueeze(-1)
        return bool((found.norms <= torch.maximum(self.goal(space, found.values) - noise, noise)).all())

    def at_noise(self, space: Krylov, found: Found, aim: Tensor) -> bool:
        """Measure the noise, and say whether it is what keeps the residuals of open pairs from falling."""
        self.confirm(space, found)
        return bool((found.norms <= torch.maximum(aim, 8 * space.noise.unsqueeze(-1))).all())

    def hopeless(self, space: Krylov, found: Found) -> bool:
        """Whether noise leaves no pair within reach of the goal."""
        return bool((self.goal(space, found.values) <= space.noise.unsqueeze(-1)).all())

    def verify(self, space: Krylov, found: Found, round_: int, depth: int) -> tuple[bool, dict[int, Tensor]]:
        """Look for missed eigenvalues in the complement of what was found, from a fresh random direction.

        Returns whether one showed up (the space then holds it, and the search must go on), and for each end of the spectrum
        how far the complement can reach, but for the failure rate.
        """
        k, before = self.wanted.count, self.wanted.keys(found.values)
        slack = lengths(found.residuals.flatten(1)).cpu() + space.noise
        limit = ceiling(self.A.n - k, self.failure / 2**round_)
        space.restart(found.Y)
        space.aim(None, width=min(2 ** (round_ - 1), 8, space.capacity - k))
        width = space.width
        thresholds = self._thresholds(found, slack)
        steps = 0
        a = b = torch.zeros(self.A.members, 0, dtype=torch.float64)
        while not space.complete and space.size + space.width <= space.capacity and self.A.count + space.width <= self.budget:
            space.expand()
            steps += 1
            theta, _ = self.ranked(space)
            if bool((self.wanted.keys(theta[:, :k]) > before + slack.unsqueeze(-1)).any()):
                return True, {}
            a, b = coefficients(space.T[:, k : space.size, k : space.size], width, space.R)
            clear = [all(bool((growth(t, end * a, b) > limit).all()) for end, t in level) for level in thresholds]
            if (clear[0] and (clear[1] or 2 * steps >= max(20, depth))) or steps >= max(20, depth):
                break
        if not steps:
            return False, {}
        return False, {end: reach(end * a, b, limit) for end in self.wanted.ends}

    def _thresholds(self, found: Found, slack: Tensor) -> list[list[tuple[int, Tensor]]]:
        """Per end, the extreme value found, and the last one wanted plus the smallest distinct gap between those wanted."""
        outer, inner = [], []
        for end in self.wanted.ends:
            keys = self.wanted.end_keys(found.values, end)
            gaps = (keys[:, :-1] - keys[:, 1:]).abs()
            gaps = torch.where(gaps > 4 * slack.unsqueeze(-1), gaps, torch.inf)
            gap = torch.cat([gaps, torch.full_like(keys[:, :1], torch.inf)], -1).amin(-1)
            outer.append((end, keys[:, 0]))
            inner.append((end, torch.minimum(keys[:, -1] + gap, keys[:, 0])))
        return [outer, inner]


def eigsh(
    H: Any,
    k: int = 10,
    which: str = "largest",
    tol: float = 1e-4,
    *,
    v0: Float[Tensor, "..."] | None = None,
    coarse: Operator | None = None,
    generator: torch.Generator | None = None,
    block: int = 1,
    basis: int | None = None,
    max_matvecs: int | None = None,
    verify: bool = True,
    probability: float = 0.999,
) -> EigenPairs:
    r"""Compute k eigenpairs at one end of the spectrum, at both (k from each), or the k largest in magnitude.

    Thick-restart Lanczos with full reorthogonalisation, on the device of the operator; `block` directions at once for known
    clusters. A pair has converged when `|A x - t x| <= tol max(|t|, |A| / 100)`, with the residual taken from the products
    themselves. One start vector sees one copy of a multiple eigenvalue, so with `verify` the search goes on in the
    complement of what was found, from a fresh random direction, until nothing more turns up. That also encloses the
    extreme eigenvalue (`top`, `bottom`) with the given probability, and one more product measures the noise of the products,
    below which no residual is believed. `v0`, one vector or several as columns, is a warm start: with `verify=False`, k
    products if it is still as good as asked for. `coarse` is a cheaper operator whose eigenvectors resemble these, from fewer
    data or less precise products: it is searched first, as far as it agrees with this one, and its vectors are the warm start;
    `num_matvecs` counts the products of H alone, the status both. Values, residual norms and intervals are float64.

    >>> from eigenscape.linop import Diagonal
    >>> pairs = eigsh(Diagonal(torch.tensor([5.0, 5.0, 2.0, 1.0])), k=3)
    >>> pairs.values
    tensor([5., 5., 2.], dtype=torch.float64)
    """
    A = Products(H)
    wanted = Selection.of(k, which, A.n)
    budget = 1000 + 50 * wanted.count if max_matvecs is None else max_matvecs
    _check(A, wanted.count, tol, block, budget, probability, basis)
    A.op.prepare(min(budget, 10 + 3 * wanted.count))
    if A.n <= max(SMALL, 3 * wanted.count) and A.n <= budget:
        return complete_pairs(A, wanted, columns(A))
    start = None if v0 is None else _start(A, v0, max(block, wanted.count))
    warm = 0 if start is None else start.shape[1]
    search = Search(A, wanted, tol, budget, 1 - probability, resolve_generator(generator), block, warm)
    capacity = _capacity(A, wanted.count, block, basis)
    if coarse is not None:
        search.coarse = coarse_products(A, coarse)
        start = _from_coarse(search, Krylov(search.coarse, capacity, search.generator), start)
        search.warm = start.shape[1]
    space = Krylov(A, capacity, search.generator)
    space.aim(start, block)
    found = search.converge(space)
    reaches = search.first_reaches()
    depth, rounds = A.count, 0
    while verify and not space.complete and A.count < budget:
        search.confirm(space, found)
        if not search.converged(space, found) and not search.hopeless(space, found):  # nearer, now that the noise is known
            found = search.converge(space)
        if not search.converged(space, found) or search.hopeless(space, found) or A.count >= budget:
            break
        before, rounds = A.count, rounds + 1
        more, beyond = search.verify(space, found, rounds, depth)
        reaches = beyond or ({} if more else reaches)
        search.checks += A.count - before
        if not more:
            break
        found = search.converge(space)
        depth = max(depth, A.count - before)
    return _result(search, space, found, reaches)


def _from_coarse(search: Search, space: Krylov, start: Tensor | None) -> Tensor:
    """Eigenvectors of the coarse operator: roughly first, then as precisely as it agrees with the other one, or as asked.

    Where it nearly does, they are the start one by one, and their sum where it does not: a block of poor vectors costs more.
    """
    other = replace(search, A=space.A, tol=max(search.tol, ROUGH))
    space.A.op.prepare(10 + 3 * search.wanted.count)
    space.aim(start, search.block)
    found = other.converge(space)
    gap, length = other.gap(found, search.A)
    agreed = float((gap / length.clamp(min=TINY)).max())
    if agreed < ROUGH:
        other.tol = max(search.tol, agreed / 2)
        found = other.converge(space)
    return found.vectors if agreed < NEAR * search.tol else found.vectors.sum(1, keepdim=True)


def _check(A: Products, k: int, tol: float, block: int, budget: int, probability: float, basis: int | None) -> None:
    if not 0 <= tol < 1:
        raise SolverError(f"tol is {tol}; expected a relative residual between 0 and 1, such as 1e-4.")
    if not 0 < probability < 1:
        raise SolverError(f"probability is {probability}; expected a number between 0 and 1, such as 0.999.")
    if not 1 <= block <= A.n:
        raise SolverError(f"block is {block} for a matrix of size {A.n}; expected a whole number from 1 to {A.n}.")
    if budget < k:
        raise SolverError(f"max_matvecs={budget} cannot give {k} eigenpairs; expected at least {k}.")
    if basis is not None and basis < min(A.n, k + 2 * block + 2):
        raise SolverError(f"basis={basis} is too small for {k} eigenpairs; expected at least {min(A.n, k + 2 * block + 2)}.")


def _capacity(A: Products, k: int, block: int, basis: int | None) -> int:
    """Rows of the basis: as asked, or enough to rarely restart, within the memory we allow ourselves."""
    room = MEMORY // (2 * A.members * A.n * A.dtype.itemsize)
    return min(A.n, basis or max(k + 4 * block + 20, min(3 * k + 80 + 4 * block, room)))


def _start(A: Products, v0: Tensor, block: int) -> Tensor:
    """Warm start as rows: one vector, or the columns of several dealt out over the block and added up."""
    lead = len(A.batch)
    if not isinstance(v0, Tensor) or v0.ndim not in (lead + 1, lead + 2) or tuple(v0.shape[: lead + 1]) != (*A.batch, A.n):
        came = f"has shape {tuple(v0.shape)}" if isinstance(v0, Tensor) else f"is a {type(v0).__name__}"
        raise SolverError(f"v0 {came}; expected a tensor of shape {(*A.batch, A.n)}, or that with columns at the end.")
    rows = v0.detach().to(dtype=A.dtype, device=A.device).reshape(A.members, A.n, -1).mT
    size = lengths(rows)
    if not bool((torch.isfinite(size) & (size > 0)).all()):
        raise SolverError("v0 has a column that is zero or not finite; expected vectors with a direction, or v0=None.")
    rows = normalised(rows)
    return torch.stack([rows[:, i::block].sum(-2) for i in range(min(block, rows.shape[-2]))], -2)


def _result(search: Search, space: Krylov, found: Found, reaches: dict[int, Tensor]) -> EigenPairs:
    A, wanted, noise = search.A, search.wanted, space.noise.unsqueeze(-1)
    norms = found.norms + noise
    done = norms <= search.goal(space, found.values)
    order = wanted.final(found.values)
    t, r = found.values.gather(-1, order), norms.gather(-1, order)
    X = found.vectors.gather(1, order.to(A.device).unsqueeze(-1).expand_as(found.vectors)).mT
    enclosures = {end: _enclosure(found, reach, end, noise[:, 0], 1 - search.failure) for end, reach in reaches.items()}

    def give(x: Tensor) -> Tensor:
        return A.restore(x.to(A.device))

    def enclosure(end: int) -> Enclosure | None:
        e = enclosures.get(end)
        return e and Enclosure(give(e.lower), give(e.upper), e.probability)

    return EigenPairs(
        values=give(t),
        vectors=A.restore(X.contiguous()),
        residual_norms=give(r),
        intervals=give(torch.stack([t - r, t + r], -1)),
        num_matvecs=A.count,
        status=_status(search, space, done, t, r),
        converged=bool(done.all()),
        top=enclosure(1),
        bottom=enclosure(-1),
    )


def _enclosure(found: Found, reach: Tensor, end: int, noise: Tensor, probability: float) -> Enclosure:
    """From the best Rayleigh quotient to the largest eigenvalue of `[[t, c], [c, m]]`.

    In the basis (found, complement) the matrix is `[[diag t, C^T], [C, B]]` with |C| at most the Frobenius norm c of the
    residuals and B at most m: the 2 x 2 matrix of the norms bounds it.
    """
    t = (end * found.values).amax(-1)
    c = torch.linalg.vector_norm(found.norms, dim=-1)
    far = (t + reach) / 2 + torch.hypot((t - reach) / 2, c) + noise
    near = t - noise
    low, high = (near, far) if end > 0 else (-far, -near)
    return Enclosure(low, high, probability)


def _status(search: Search, space: Krylov, done: Tensor, t: Tensor, r: Tensor) -> str:
    total, A = done.numel(), search.A
    reached = int(done.sum())
    coarse = spent_on(A, search.coarse) if search.coarse else ""
    cost = f"{A.count} products{coarse}" + (f", {search.checks} of them to check" if search.checks else "")
    if reached == total:
        return f"all {total} pairs converged to a relative residual of {search.tol:g} after {cost}"
    if A.count + 1 > search.budget:
        return f"stopped at max_matvecs={search.budget}: {reached} of {total} pairs converged to {search.tol:g}"
    noise, dtype = float((space.noise / space.scale.clamp(min=TINY)).max()), str(A.dtype).removeprefix("torch.")
    enough = float((search.tol * r / search.goal(space, t).clamp(min=TINY)).max()) if search.tol else 2 * noise
    return (
        f"{reached} of {total} pairs converged to a relative residual of {search.tol:g} after {cost}; the others stopped "
        f"at the noise of these {dtype} products, {noise:.1g} of |A|: type tol={1.5 * enough:.1g}, or raise the precision"
    )


def _asymmetry(C: Float[Tensor, "b m w"], R: Float[Tensor, "b w v"]) -> Float[Tensor, "b"]:
    """`|u^T A v - v^T A u|` for new directions v and all u before them: `v^T A u` is R for the last ones, and 0 before."""
    mirror = torch.zeros_like(C)
    mirror[:, C.shape[1] - R.shape[-1] :] = R.mT
    return torch.linalg.vector_norm(C - mirror, dim=1).amax(-1)
