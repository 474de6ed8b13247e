"""Do two eigenvalues sum to the trace over the number of inputs? [cracking] App. D.1.2, Figs. 3 and 10 to 13."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ....ensembles import Ensemble, initialise, spectra
from ....ensembles import trace as trace_of
from ...machine import Experiment, Row, stream
from .brute import hessian_eigenvalues
from .pairs import closest_pair, gaps_to, members
from .samples import normal

ORTHOGONAL, STANDARD = "orthogonal", "sp"
DECORRELATED, STANDARDISED = "decorrelated", "standardised"
SAMPLES = {10: 102, 150: 152}
DENSE = 700  # parameters up to which the first model's spectrum is checked against automatic differentiation
RANDOM = 25  # targets between half and one and a half times the trace over D


@dataclass(frozen=True)
class Models:
    """Models of one kind, each with data of its own, in groups: a group is a cell."""

    width: int
    inputs: int
    weights: str
    data: str
    depth: int = 2
    activation: str = "linear"
    count: int = 100
    group: int = 0


def cells(profile: str) -> list[Models]:
    """Two layers of widths 10 and 150, four layers and ReLU of width 10; input sizes up to the width."""
    both = ((ORTHOGONAL, DECORRELATED), (STANDARD, STANDARDISED))
    crossed = ((ORTHOGONAL, STANDARDISED), (STANDARD, DECORRELATED))
    narrow = {"smoke": (1, 4, 10)}.get(profile, tuple(range(1, 11)))
    wide = {"smoke": (2, 20), "quick": (1, 2, 5, 10, 20, 50, 100, 150)}.get(
        profile, (1, 2, 3, 5, 10, 20, 35, 50, 75, 100, 125, 150)
    )
    small, large = {"smoke": (5, 2), "quick": (100, 20), "paper": (100, 100)}[profile]
    found = [Models(10, D, *kind, count=small) for kind in both + crossed for D in narrow]
    found += [
        Models(10, D, *kind, depth=depth, activation=a, count=small)
        for depth, a in ((4, "linear"), (2, "relu"), (4, "relu"))
        for kind in both
        for D in narrow
    ]
    return found + [
        Models(150, D, *kind, count=min(large, 10), group=g) for kind in both for D in wide for g in range(-(-large // 10))
    ]


def measure(cell: Models, device: torch.device) -> list[Row]:
    """One row per model: the best pair, the next, the mean eigenvalue, and what random targets get."""
    m, D = cell.width, cell.inputs
    nets, _ = initialise(
        cell.weights,
        [D, *[m] * (cell.depth - 1), 1],
        cell.count,
        stream(cell, "weights"),
        activation=cell.activation,
        device=device,
    )
    X, Y = data(cell, device)
    spectrum, traces = spectra(nets, X, Y), trace_of(nets, X, Y)
    random = 0.5 + torch.rand(cell.count, RANDOM, generator=stream(cell, "targets"), dtype=torch.float64).to(device)
    rows: list[Row] = []
    for i, values in enumerate(members(spectrum)):
        target = float(traces[i]) / D
        pair = closest_pair(values, target)
        rows.append(
            {
                "member": i,
                "target": target,
                "low": pair.low,
                "high": pair.high,
                "gap": pair.gap,
                "next_gap": pair.next_gap,
                "mean": float(traces[i]) / spectrum.n,
                "random_gap": float(gaps_to(values, target * random[i]).median()),
                "largest": float(values[-1]),
            }
        )
    if spectrum.n <= DENSE:
        dense = hessian_eigenvalues(_loss(nets), nets.flat()[0], X[0], Y[0])
        rows[0]["error"] = float((spectrum.expand()[0] - dense).abs().max() / dense.abs().max())
    return rows


def data(cell: Models, device: torch.device) -> tuple[Float[Tensor, "N n D"], Float[Tensor, "N n 1"]]:
    """Random inputs and targets of mean 0 and variance 1; decorrelated: all of them orthogonal as well, sample by sample."""
    n, D = SAMPLES[cell.width], cell.inputs
    Z = normal(cell, "data", cell.count, n, D + 1, device=device)
    Z = Z - Z.mean(1, keepdim=True)
    if cell.data == DECORRELATED:
        Z = torch.linalg.qr(Z).Q
    Z = Z / Z.square().mean(1, keepdim=True).sqrt()
    return Z[..., :D], Z[..., D:]


def _loss(nets: Ensemble):
    """Half the squared error of one member, as autograd sees it."""
    shapes = [W.shape[1:] for W in nets.weights]

    def loss(t: Tensor, x: Tensor, y: Tensor) -> Tensor:
        h = x
        for l, part in enumerate(t.split([s.numel() for s in shapes])):
            h = h @ part.reshape(shapes[l]).T
            h = torch.relu(h) if nets.activation == "relu" and l < len(shapes) - 1 else h
        return 0.5 * (h - y).square().sum(-1).mean()

    return loss


def median(values: np.ndarray) -> float:
    """Median as a plain number."""
    return float(np.median(values))


EXPERIMENT = Experiment("cracking/pairing", cells, measure)
