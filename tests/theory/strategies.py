"""Random and degenerate networks and data: every case in which a closed form could divide by zero or miscount.

A case is drawn from a seed and from names in these tables, many at a time, so that one vectorised call checks a batch.
"""

import torch
from hypothesis import strategies as st
from torch import Tensor

WEIGHTS = {
    "generic": lambda w, v: (w, v),
    "equal": lambda w, v: (w, w),
    "opposite": lambda w, v: (w, -w),
    "w zero": lambda w, v: (0 * w, v),
    "v zero": lambda w, v: (w, 0 * v),
    "both zero": lambda w, v: (0 * w, 0 * v),
    "parallel": lambda w, v: (2 * v, v),
    "antiparallel": lambda w, v: (-0.5 * v, v),
    "orthogonal": lambda w, v: (w - (w @ v) / (v @ v) * v, v),
    "equal norms": lambda w, v: (w * v.norm() / w.norm(), v),
    "nearly equal": lambda w, v: (v + 1e-9 * w, v),
    "whole numbers": lambda w, v: (w.round(), v.round()),
    "some v zero": lambda w, v: (w, v * (torch.arange(len(v)) % 2)),
    "large": lambda w, v: (20 * w, 20 * v),
    "small": lambda w, v: (1e-3 * w, 1e-3 * v),
    "unequal scales": lambda w, v: (1e3 * w, 1e-3 * v),
    "positive v": lambda w, v: (w, v.abs()),
    "negative v": lambda w, v: (w, -v.abs()),
}

INPUTS = {
    "generic": lambda x: x,
    "zero": lambda x: 0 * x,
    "some zero": lambda x: x * (torch.arange(len(x)) % 2),
    "ties": lambda x: x[:1].expand_as(x),
    "far from centred": lambda x: x + 5,
    "centred": lambda x: x - x.mean(),
    "positive": lambda x: x.abs(),
    "negative": lambda x: -x.abs(),
    "large": lambda x: 10 * x,
    "small": lambda x: 0.01 * x,
}

TARGETS = {
    "generic": lambda y, fit: y,
    "fitted": lambda y, fit: fit,
    "nearly fitted": lambda y, fit: fit + 1e-9 * y,
    "zero": lambda y, fit: 0 * y,
    "negative of the fit": lambda y, fit: -fit,
    "a third of the way": lambda y, fit: 3 * fit,
}


def seeds() -> st.SearchStrategy[int]:
    """Seeds of a torch generator."""
    return st.integers(0, 2**32 - 1)


def random_stream(seed: int) -> torch.Generator:
    """A generator of its own for each case."""
    return torch.Generator().manual_seed(seed)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def pick(table: dict, generator: torch.Generator):
    """One entry of a table."""
    return list(table.values())[int(torch.randint(len(table), (), generator=generator))]


def pair(m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two vectors of size m in a random relation."""
    return pick(WEIGHTS, generator)(normal(generator, m), normal(generator, m))


def pairs(batch: int, m: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A batch of pairs, each in a relation of its own."""
    drawn = [pair(m, generator) for _ in range(batch)]
    return torch.stack([w for w, _ in drawn]), torch.stack([v for _, v in drawn])


def inputs(batch: int, n: int, generator: torch.Generator) -> Tensor:
    """A batch of n scalar inputs, each of a kind of its own."""
    return torch.stack([pick(INPUTS, generator)(normal(generator, n)) for _ in range(batch)])


def targets(fit: Tensor, generator: torch.Generator) -> Tensor:
    """Targets for a batch of outputs, each of a kind of its own."""
    return torch.stack([pick(TARGETS, generator)(normal(generator, *f.shape), f) for f in fit])
