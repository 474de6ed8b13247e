"""How numbers came about: versions, command, seed, device, and the cost and ending of every stage."""

import platform
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import scipy
import torch

from ..core.version import VERSION


@dataclass(frozen=True)
class Stage:
    """One measurement: its name, its seconds and matrix-vector products, and the sentence with which it ended."""

    name: str
    seconds: float
    num_matvecs: int
    status: str


@dataclass(frozen=True)
class Provenance:
    """What one needs to measure the same again.

    - command: what was typed.
    - versions: of this package and of everything that touches a number.
    - device, dtype, engine: where and in what precision products were computed, and how.
    - threads: that torch computed with on the CPU.
    - seed: of the generator that all random choices came from.
    - started: when, in UTC, as ISO 8601.
    - stages: in order.
    """

    command: str
    versions: Mapping[str, str]
    device: str
    dtype: str
    engine: str
    threads: int
    seed: int
    started: str
    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        """Time of all stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def num_matvecs(self) -> int:
        """Products of all stages."""
        return sum(stage.num_matvecs for stage in self.stages)


def versions() -> dict[str, str]:
    """Versions of this package, Python and the numerical libraries."""
    return {
        "eigenscape": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def command() -> str:
    """Return what was typed, as well as a process can know."""
    program = Path(sys.argv[0])
    start = ["python", "-m", program.parent.name] if program.name == "__main__.py" else [program.name or "python"]
    return shlex.join([*start, *sys.argv[1:]])


def device_name(device: torch.device) -> str:
    """Return the device with the name of the accelerator, where there is one."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Stopwatch:
    """Seconds since it was made, with the accelerator's queue emptied first."""

    def __init__(self, device: torch.device):
        self.device = device
        self._wait()
        self.start = time.perf_counter()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def seconds(self) -> float:
        """Elapsed time."""
        self._wait()
        return time.perf_counter() - self.start
