"""`eigenscape demo`: the main job on an embedded default."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.demo import DEFAULT, run
from . import options
from .progress import Reporter
from .show import show

Steps = Annotated[int, typer.Option(help="Gradient-descent steps to train for.")]


def demo(
    out: options.Out = Path("out/demo"),
    device: options.Device = "cpu",
    dtype: options.Dtype = "float32",
    seed: options.Seed = 0,
    json_: options.Json = False,
    top: options.Top = 10,
    no_density: options.NoDensity = False,
    steps: Steps = DEFAULT.steps,
) -> None:
    """Train a small network on MNIST to the edge of stability, then analyse its curvature.

    Full-batch gradient descent on 5,000 real images drives the sharpness (the largest eigenvalue of the Hessian) up to
    2 / learning rate, where it stays and hovers. Needs the extra `data` and about a minute. Look at `out/demo/report.html`.

        eigenscape demo
        eigenscape demo --seed 1 --out out/another
        eigenscape demo --device cuda --json
    """
    options.seeded(seed)
    where, kind, folder = options.device_of(device), options.dtype_of(dtype), options.folder_of(out)
    k, count = options.whole("--top", top), options.whole("--steps", steps)
    with Reporter(quiet=json_) as progress:
        setting = DEFAULT.but(steps=count, seed=seed)
        found = run(folder, setting, device=where, dtype=kind, k=k, density=not no_density, progress=progress)
    if json_:
        sys.stdout.write(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) + "\n")
    else:
        show(found, folder)
