"""Where and with what a run was made: the commit of the code, versions, the machine."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from ...analysis.provenance import command, device_name, now, versions

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """One start of the machine.

    - started: when, in UTC; command: what was typed; commit: of the code, where it lies in its repository.
    - profile, seed: of the cells; versions: of everything that touches a number.
    """

    started: str
    command: str
    commit: str
    profile: str
    seed: int
    versions: dict[str, str]


def this_run(profile: str, seed: int) -> Run:
    """Describe the run that is about to start in this process."""
    return Run(now(), command(), commit(), profile, seed, versions())


def commit(package: Path = PACKAGE) -> str:
    """Return the commit of the source tree that is running, `+` if it was changed since; "" where there is none."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(package), *words], capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / "eigenscape" != package:
            return ""
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", str(package)) else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def machine(device: torch.device, threads: int) -> dict[str, str | int]:
    """Processor, number of its cores, device and threads of a measurement."""
    return {"cpu": processor(), "cores": os.cpu_count() or 1, "device": device_name(device), "threads": threads}


def processor(facts: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor."""
    try:
        names = [line.partition(":")[2].strip() for line in facts.read_text().splitlines() if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
