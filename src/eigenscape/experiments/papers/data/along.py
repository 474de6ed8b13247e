"""Curvature along training on white images: [data] Fig. 3 (trace, four layers) and Fig. 4 (top ten, two layers)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....ensembles import Ensemble, hessian, initialise, sharpness, train
from ....theory import deep_linear_trace, two_layer_white_ggn
from ...ledger.oracle import normal
from ...machine import Experiment, Row, stream
from .pictures import WHITE, Subset, samples
from .training import HALVING, LOOK

TOP, PROBES, AT_ONCE = 10, 100, 20


@dataclass(frozen=True)
class Traced:
    """Four linear layers of width 256 in training, with Hutchinson's estimate of the trace at some steps."""

    images: str
    n: int
    side: int
    steps: int
    points: int
    width: int = 256
    depth: int = 4
    lr: float = 0.003
    seed: int = 0


@dataclass(frozen=True)
class Topped:
    """Two linear layers of width 256 in training, with the ten largest eigenvalues of the Hessian at some steps."""

    images: str
    n: int
    side: int
    steps: int
    points: int
    width: int = 256
    depth: int = 2
    lr: float = 0.001
    seed: int = 0


def _sets(profile: str) -> list[tuple[str, int, int, int, int]]:
    """Images, samples, pixels a side, steps and records."""
    if profile == "smoke":
        return [("mnist-5k", 500, 7, 800, 4)]
    steps, points, sides = (4000, 9, (14, 14, 8)) if profile == "quick" else (10_000, 20, (0, 0, 0))
    names = ("mnist", "fashion-mnist", "cifar-10")
    return [("mnist-5k", 500, 7, steps, points), *((name, 5000, side, steps, points) for name, side in zip(names, sides))]


def traced(profile: str) -> list[Traced]:
    """One run per set."""
    return [Traced(*given) for given in _sets(profile)]


def topped(profile: str) -> list[Topped]:
    """One run per set."""
    return [Topped(*given) for given in _sets(profile)]


def _visits(cell: Traced | Topped, device: torch.device) -> tuple[Tensor, Tensor, list[tuple[int, Ensemble, float]]]:
    """Data, and the networks at the recorded steps with their losses."""
    X, Y = samples(Subset(cell.images, cell.n, cell.side, 0.1), WHITE, device)
    sizes = [X.shape[-1], *[cell.width] * (cell.depth - 1), Y.shape[-1]]
    nets, _ = initialise("sp", sizes, 1, stream(cell), device=device)
    marks = [0, *np.unique(np.geomspace(10, cell.steps, cell.points - 1).round().astype(int)).tolist()]
    seen: list[tuple[int, Ensemble]] = []
    run = train(
        nets,
        X,
        Y,
        steps=cell.steps,
        lr=cell.lr,
        plateau=HALVING,
        look=LOOK,
        record=marks,
        watch=lambda step, now: seen.append((step, now.select(0))),
    )
    return X, Y, [(step, now, float(loss)) for (step, now), loss in zip(seen, run.losses[0])]


def trace_along(cell: Traced, device: torch.device) -> list[Row]:
    """Hutchinson's mean of `z^T H z` with its standard error, and eq. 7, at every record."""
    X, Y, seen = _visits(cell, device)
    rows = []
    for step, nets, loss in seen:
        H, generator, found = hessian(nets, X, Y), stream(cell, f"probes {step}"), []
        for _ in range(0, PROBES, AT_ONCE):
            Z = normal(generator, 1, H.shape[-1], AT_ONCE).to(device)
            found.append((Z * (H @ Z)).sum((0, 1)))
        x = torch.cat(found)
        exact = float(deep_linear_trace([W[0] for W in nets.weights], X))
        parts = {"estimate": float(x.mean()), "stderr": float(x.std() / PROBES**0.5), "exact": exact}
        rows.append({"step": step, "loss": loss, "features": X.shape[-1]} | parts)
    return rows


def top_along(cell: Topped, device: torch.device) -> list[Row]:
    """The ten largest eigenvalues of the Hessian beside those of eq. 15, at every record."""
    X, Y, seen = _visits(cell, device)
    rows = []
    for step, nets, loss in seen:
        values = sharpness(nets, X, Y, TOP, tol=1e-5, generator=stream(cell, f"lanczos {step}")).values[0]
        V, W = (A[0] for A in nets.weights)
        theory = two_layer_white_ggn(W, V).expand().flip(0)[:TOP]
        norms = [float(torch.linalg.matrix_norm(A, 2).square()) for A in (V, W)]
        frobenius = sum(float(A.square().sum()) for A in (V, W))
        about = {"step": step, "loss": loss, "features": X.shape[-1], "first": norms[0], "second": norms[1], "norm": frobenius}
        rows += [about | {"rank": i, "measured": float(a), "theory": float(b)} for i, (a, b) in enumerate(zip(values, theory))]
    return rows


TRACE = Experiment("data/trace", traced, trace_along)
TOPS = Experiment("data/top-ten", topped, top_along, version=2)
