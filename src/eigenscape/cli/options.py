"""Options that all commands share, and their values as PyTorch knows them."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from ..core import EigenscapeError

Out = Annotated[Path, typer.Option(help="Folder for everything that is written; made if it is missing.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, ...")]
Dtype = Annotated[str, typer.Option(help="Precision to compute in: float32 or float64 (also bfloat16, float16).")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice; the same seed gives the same numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output, and nothing else.")]
Top = Annotated[int, typer.Option(help="How many of the largest eigenvalues to find.")]
NoDensity = Annotated[bool, typer.Option("--no-density", help="Leave out the spectral density, the longest measurement.")]

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


class OptionError(EigenscapeError, ValueError):
    """An option or argument of the command line cannot be used."""


def dtype_of(text: str) -> torch.dtype:
    """Return the dtype with this name.

    >>> dtype_of("float64")
    torch.float64
    """
    if text not in DTYPES:
        raise OptionError(f"--dtype is {text!r}; expected one of {', '.join(DTYPES)}.")
    return DTYPES[text]


def device_of(text: str) -> torch.device:
    """Return the device with this name, if this machine has it.

    >>> device_of("cpu")
    device(type='cpu')
    """
    try:
        device = torch.device(text)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise OptionError(
            f"--device {text!r} cannot be used here ({reason}); expected cpu, or cuda where there is one."
        ) from None
    if device.type == "meta":
        raise OptionError("--device 'meta' holds no numbers; expected cpu, or cuda where there is one.")
    return device


def seeded(seed: int) -> torch.Generator:
    """Return the random stream of a seed."""
    try:
        return torch.Generator().manual_seed(seed)
    except (RuntimeError, ValueError, OverflowError):
        raise OptionError(f"--seed is {seed}; expected a whole number below 2^64.") from None


def whole(name: str, value: int, least: int = 1) -> int:
    """Refuse numbers below the least one that makes sense."""
    if value < least:
        raise OptionError(f"{name} is {value}; expected a whole number of at least {least}.")
    return value


def folder_of(path: Path) -> Path:
    """Make the folder for results, or say why it cannot be one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".eigenscape-can-write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OptionError(f"--out {str(path)!r} cannot be written to ({error.strerror}); expected a folder.") from None
    return path
