"""Spectral densities by stochastic Lanczos quadrature, of one operator or of all its blocks in one pass."""

from collections.abc import Generator
from typing import Any, overload

import torch
from torch import Tensor

from ..core import Density, SolverError, random_like, resolve_generator
from ..linop import Blocks
from .products import Products, normalised
from .recurrence import Coefficients, gauss, lanczos

BYTES = 1 << 30  # of the vectors that advance together


@overload
def density(  # pyright: ignore[reportOverlappingOverload]
    H: Blocks, steps: int = ..., probes: int = ..., generator: torch.Generator | None = ..., *, reorthogonalize: bool = ...
) -> dict[str, Density]: ...
@overload
def density(
    H: Any, steps: int = ..., probes: int = ..., generator: torch.Generator | None = ..., *, reorthogonalize: bool = ...
) -> Density: ...
def density(
    H: Any,
    steps: int = 100,
    probes: int = 8,
    generator: torch.Generator | None = None,
    *,
    reorthogonalize: bool = False,
) -> Density | dict[str, Density]:
    """Approximate the distribution of the eigenvalues: one Gauss rule of `steps` nodes for each random unit vector.

    Memory does not grow with `steps`, unless `reorthogonalize`, which spends the nodes that rounding would waste on copies of
    converged eigenvalues (the weights are right either way). The probes advance together. For `Blocks`, one density per
    block, all of them in one pass over the data per step and probe.

    >>> from eigenscape.linop import Diagonal
    >>> d = density(Diagonal(torch.tensor([1.0, 1.0, 1.0, 1.0])), probes=3)
    >>> d.cdf(torch.tensor([0.0, 2.0])), d.num_matvecs
    (tensor([0., 1.], dtype=torch.float64), 3)
    """
    for name, value in (("steps", steps), ("probes", probes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SolverError(f"{name} is {value!r}; expected a whole number of at least 1.")
    generator = resolve_generator(generator)
    if isinstance(H, Blocks):
        return _of_blocks(H, steps, probes, generator, reorthogonalize)
    A = Products(H)
    steps = min(steps, A.n)
    A.op.prepare(steps * probes)
    held = A.members * A.n * A.dtype.itemsize * (4 + (steps if reorthogonalize else 0))
    width = max(1, min(probes, BYTES // held))
    starts = _probes(A, (A.members, probes, A.n), generator)
    rules = [_drive(lanczos(rows, steps, reorthogonalize), A) for rows in starts.split(width, 1)]
    return _density(rules, A)


def _probes(A: Products, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Unit vectors, uniform on the sphere: the band of a density relies on that."""
    return normalised(random_like(shape, generator, dtype=A.dtype, device=A.device))


def _drive(process: Generator[Tensor, Tensor, Coefficients], A: Products) -> Coefficients:
    try:
        v = next(process)
        while True:
            v = process.send(A(v))
    except StopIteration as end:
        return end.value


def _of_blocks(
    blocks: Blocks, steps: int, probes: int, generator: torch.Generator, reorthogonalize: bool
) -> dict[str, Density]:
    parts = {name: Products(block) for name, block in blocks.items()}
    rules: dict[str, list[Coefficients]] = {name: [] for name in parts}
    for _ in range(probes):
        starts = {name: _probes(A, (A.n,), generator) for name, A in parts.items()}
        running = {name: lanczos(v, min(steps, parts[name].n), reorthogonalize) for name, v in starts.items()}
        asked = {name: next(process) for name, process in running.items()}
        while asked:
            products = blocks.products(asked)
            asked = {}
            for name, product in products.items():
                parts[name].observe(product)
                try:
                    asked[name] = running[name].send(product.detach())
                except StopIteration as end:
                    rules[name].append(tuple(x[None, None] for x in end.value))
    return {name: _density(rules[name], A) for name, A in parts.items()}


def _density(rules: list[Coefficients], A: Products) -> Density:
    """Bring rules of different lengths to one, then to nodes and weights."""
    longest = max(a.shape[-1] for a, _ in rules)
    a, b = (
        torch.cat([torch.nn.functional.pad(rule[i], (0, longest - rule[i].shape[-1])) for rule in rules], 1) for i in (0, 1)
    )
    nodes, weights = gauss(a, b)
    probes = a.shape[1]
    return Density(
        nodes=A.restore(nodes),
        weights=A.restore(weights),
        n=A.n,
        num_matvecs=A.count,
        status=f"{probes} random vectors, up to {longest} Lanczos steps each, {A.count} products",
        resolution=A.restore(32 * A.eps * nodes.abs().amax((-1, -2))),
    )
