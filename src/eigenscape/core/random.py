"""Random streams: every random result takes `generator=`, and no global seed is ever read or written."""

from collections.abc import Sequence

import torch
from torch import Tensor

DEFAULT_SEED = 0


def resolve_generator(generator: torch.Generator | None) -> torch.Generator:
    """Return `generator`, or a fresh one with the fixed default seed: results are reproducible unless asked otherwise."""
    return torch.Generator().manual_seed(DEFAULT_SEED) if generator is None else generator


def random_like(
    shape: Sequence[int],
    generator: torch.Generator,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    kind: str = "normal",
) -> Tensor:
    """Draw a `"normal"` or `"rademacher"` tensor on the generator's device in float64, then move it where it is used.

    The same generator state gives the same numbers on every device and (up to rounding) in every dtype.
    """
    if kind == "normal":
        draw = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
    elif kind == "rademacher":
        draw = torch.randint(0, 2, shape, generator=generator, device=generator.device, dtype=torch.int8) * 2.0 - 1.0
    else:
        raise ValueError(f'kind is {kind!r}; expected "normal" or "rademacher".')
    return draw.to(device=device, dtype=dtype)
