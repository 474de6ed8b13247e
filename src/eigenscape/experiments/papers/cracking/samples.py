"""Random numbers of a cell: float64, the same on every device."""

import torch
from jaxtyping import Float
from torch import Tensor

from ....core import random_like
from ...machine import Cell, stream


def normal(cell: Cell, what: str, *shape: int, device: torch.device | str = "cpu") -> Float[Tensor, "..."]:
    """Draw standard normal numbers from one of the cell's streams."""
    return random_like(shape, stream(cell, what), dtype=torch.float64, device=device)


def uniform(cell: Cell, what: str, *shape: int, device: torch.device | str = "cpu") -> Float[Tensor, "..."]:
    """Draw numbers between -1 and 1 from one of the cell's streams."""
    return (2 * torch.rand(*shape, generator=stream(cell, what), dtype=torch.float64) - 1).to(device)
