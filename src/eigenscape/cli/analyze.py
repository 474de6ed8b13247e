"""`eigenscape analyze`: measure the curvature of a user's own objective."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..analysis import analyze as measure
from ..analysis import placed, publish
from . import options
from .progress import Reporter
from .show import show
from .source import load_objective, read_target

Target = Annotated[
    str, typer.Argument(metavar="FILE.py:FUNCTION", help="A function without arguments that returns an es.Objective.")
]


def analyze(
    target: Target,
    out: options.Out = Path("out/analysis"),
    device: Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, ...; default: where the model is.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64; default: the model's own.")] = None,
    seed: options.Seed = 0,
    json_: options.Json = False,
    top: options.Top = 10,
    no_density: options.NoDensity = False,
    layers: Annotated[bool, typer.Option("--layers", help="Also measure the diagonal block of every parameter.")] = False,
) -> None:
    """Measure the curvature of a model of your own and write numbers, figures and a report.

    The function returns what is to be measured. With this in `train.py`

        import torch, eigenscape as es

        def objective():
            model = torch.nn.Linear(10, 1)
            x, y = torch.randn(100, 10), torch.randn(100, 1)
            return es.Objective(model, torch.nn.MSELoss(), (x, y))

    type one of

        eigenscape analyze train.py:objective
        eigenscape analyze train.py:objective --top 20 --dtype float64 --out out/train
        eigenscape analyze train.py:objective --json --no-density | jq .sharpness
    """
    generator, folder = options.seeded(seed), options.folder_of(out)
    k = options.whole("--top", top)
    where = None if device is None else options.device_of(device)
    kind = None if dtype is None else options.dtype_of(dtype)
    obj = placed(load_objective(target), where, kind)
    name = f"{read_target(target)[1]} ({type(obj.model).__name__})"
    with Reporter(quiet=json_) as progress:
        wanted = {"k": k, "density": not no_density, "blocks": layers}
        found = measure(obj, **wanted, name=name, generator=generator, progress=progress)
        publish(found, folder)
    if json_:
        sys.stdout.write(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) + "\n")
    else:
        show(found, folder)
