"""Spectra that solvers find hard, each of any size."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def _with_bulk(outliers: list[float], low: float, high: float) -> Callable[[int], Tensor]:
    def values(n: int) -> Tensor:
        head = torch.tensor(outliers[:n], dtype=torch.float64)
        return torch.cat([head, torch.linspace(low, high, n - len(head), dtype=torch.float64)])

    return values


def _padded(head: list[float]) -> Callable[[int], Tensor]:
    def values(n: int) -> Tensor:
        return torch.nn.functional.pad(torch.tensor(head[:n], dtype=torch.float64), (0, n - len(head[:n])))

    return values


SPECTRA: dict[str, Callable[[int], Float[Tensor, "n"]]] = {
    "outliers": _with_bulk([50.0, 40.0, 30.0, 20.0, 10.0], -1.0, 3.0),
    "huge outliers": _with_bulk([1e4, 9e3, 5e3, 1e3, 1e2], 0.0, 1.0),
    "multiple": _with_bulk([10.0, 10.0, 10.0, 10.0, 7.0, 7.0, -5.0, -5.0], 0.0, 2.0),
    "clustered": _with_bulk([10.0, 10.001, 10.002, 10.003], 0.0, 2.0),
    "indefinite": _with_bulk([9.0, -9.5, 8.0, -8.5, 7.0], -1.0, 1.0),
    "low rank": _padded([3.0, 2.5, 2.0, 1.0]),
    "power law": lambda n: 1 / torch.arange(1, n + 1, dtype=torch.float64),
    "negative": lambda n: -1 / torch.arange(1, n + 1, dtype=torch.float64),
    "zero": lambda n: torch.zeros(n, dtype=torch.float64),
    "identity": lambda n: torch.ones(n, dtype=torch.float64),
}


def spectrum_like(name: str, n: int) -> Float[Tensor, "n"]:
    """Give the n eigenvalues of a named spectrum, descending, float64.

    >>> spectrum_like("low rank", 5)
    tensor([3.0000, 2.5000, 2.0000, 1.0000, 0.0000], dtype=torch.float64)
    """
    return SPECTRA[name](n).sort(descending=True).values
