"""Does the sharpness go with the norms of the weights? [cracking] App. D.1.3, D.1.4, Figs. 4, 14 to 22 and 26."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ....ensembles import Ensemble, Plateau, Run, initialise, sharpness, train
from ....ensembles import trace as trace_of
from ...machine import Experiment, Row, stream
from ...synthetic import teacher
from .brute import hessian_eigenvalues
from .correlations import NORMS, Correlations, alignments, correlate, knocked_out, norms

WIDTH = 100
SCHEMES = ("sp", "mup", "ntp")
START, END = "start", "end"
GROUP = 20  # members trained together: their weights stay in the cache
FEW = 50  # members measured together: so many Krylov spaces fit into memory
FEWEST = 4  # networks that must be left for a correlation
DENSE = 450  # parameters up to which one member's sharpness is checked against automatic differentiation


@dataclass(frozen=True)
class Nets:
    """Networks of one kind with as many inputs as outputs, trained on the same samples from different beginnings.

    - lr: of the run; `patience`: epochs without a better loss after which it is divided by ten, until it is 1e-5.
    """

    weights: str
    inputs: int
    depth: int = 2
    activation: str = "linear"
    count: int = 200
    samples: int = 1024
    batch: int = 128
    lr: float = 0.01
    steps: int = 100_000
    patience: int = 20

    @property
    def widths(self) -> list[int]:
        """Sizes of the layers."""
        return [self.inputs, *[WIDTH] * (self.depth - 1), self.inputs]


SIZES = {
    "smoke": ((1, 10), (1, 3), (2, 3), (1, 10)),
    "quick": ((1, 2, 3, 5, 10, 20, 50), (1, 3, 10, 30), (2, 3, 4, 5, 6), (1, 10)),
    "paper": (
        (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100),
        (1, 2, 3, 5, 10, 20, 30, 50, 70, 100),
        (2, 3, 4, 5, 6),
        (1, 10),
    ),
}


def cells(profile: str) -> list[Nets]:
    """Two layers over the input sizes, and depths up to 6 for one and ten inputs; each linear and ReLU."""
    linear, relu, depths, deep = SIZES[profile]
    kinds = [Nets(w, D) for w in SCHEMES for D in linear]
    kinds += [Nets(w, D, depth=L) for w in SCHEMES for D in deep for L in depths if L > 2 or D not in linear]
    kinds += [Nets(w, D, activation="relu") for w in SCHEMES for D in relu]
    kinds += [Nets(w, 1, depth=L, activation="relu") for w in SCHEMES for L in depths if L > 2]
    return [sized(cell, profile) for cell in kinds]


def sized(cell: Nets, profile: str) -> Nets:
    """Give a cell the text's learning rate, or a smaller population, fewer samples and faster runs."""
    deep = cell.depth > 2
    lr = 1e-3 if deep and cell.inputs == 1 and cell.weights != "ntp" else 1e-2
    if profile == "paper":
        return replace(cell, lr=lr)
    if cell.weights == "ntp":
        lr = 0.02 * cell.inputs
    elif cell.inputs >= 50:
        lr = 0.03
    if profile == "smoke":
        return replace(cell, lr=lr, count=12, samples=128, batch=32, steps=60, patience=5)
    relu = cell.activation == "relu"
    small = {"samples": 256, "batch": 32} if relu and deep else {}
    count = 60 if relu and deep else 100 if relu or deep or cell.inputs >= 50 else 200
    return replace(cell, lr=lr, count=count, steps=6000, patience=10, **small)


def measure(cell: Nets, device: torch.device) -> list[Row]:
    """Correlations before and after training, one row per quantity; one row says how the training went."""
    nets, rates = initialise(
        cell.weights, cell.widths, cell.count, stream(cell, "weights"), activation=cell.activation, device=device
    )
    X, Y = (A.to(device) for A in teacher(cell.activation, cell.samples, cell.inputs, cell.inputs, stream(cell, "data")))
    runs = [trained(cell, part, rates, X, Y, seeds) for part, seeds in _groups(cell, nets)]
    fine = ~torch.cat([run.diverged for run in runs])
    after = nets.replace([torch.cat(stack).double() for stack in zip(*(run.ensemble.weights for run in runs))])
    rows, told = [], _story(cell, runs)
    if int(fine.sum()) < FEWEST:
        return [told]
    for when, them in ((START, nets), (END, after)):
        them = them.select(fine)
        top = sharpest(them, X, Y, stream(cell, f"lanczos {when}"))
        told |= {f"sharpness_{when}": float(top.mean()), **_error(them, X, Y, top, when)}
        rows += _rows(cell, when, "sharpness", top, them)
        if cell.activation == "linear" and cell.depth == 2:
            rows += _rows(cell, when, "trace", trace_of(them, X, Y), them)
    return [told, *rows]


def _groups(cell: Nets, nets: Ensemble) -> Iterator[tuple[Ensemble, list[int]]]:
    seeds = torch.randint(2**62, (cell.count,), generator=stream(cell, "minibatches")).tolist()
    size = GROUP if nets.device.type == "cpu" else cell.count
    for i in range(0, cell.count, size):
        yield nets.select(slice(i, i + size)), seeds[i : i + size]


def trained(cell: Nets, nets: Ensemble, rates: tuple[float, ...], X: Tensor, Y: Tensor, seeds: list[int]) -> Run:
    """Train in float32, as the text's networks were."""
    return train(
        nets.to(torch.float32),
        X.float(),
        Y.float(),
        steps=cell.steps,
        lr=cell.lr,
        batch=cell.batch,
        rates=rates,
        plateau=Plateau(patience=cell.patience, threshold=1e-3, final=1e-5),
        seeds=seeds,
    )


def sharpest(nets: Ensemble, X: Tensor, Y: Tensor, generator: torch.Generator) -> Float[Tensor, "N"]:
    """Sharpness of every member."""
    parts = [nets.select(slice(i, i + FEW)) for i in range(0, len(nets), FEW)]
    return torch.cat([sharpness(part, X, Y, tol=1e-3, generator=generator).values[:, 0] for part in parts])


def _story(cell: Nets, runs: list[Run]) -> Row:
    """How the training went."""
    taken, losses = (torch.cat([getattr(run, name) for run in runs]) for name in ("taken", "losses"))
    fine = torch.cat([~run.diverged for run in runs])
    left = bool(fine.any())
    return {
        "kind": "training",
        "diverged": int((~fine).sum()),
        "steps_taken": float(taken.double().mean()),
        "finished": float((taken < cell.steps)[fine].double().mean()) if left else 0.0,
        "loss_start": float(losses[:, 0].mean()) / cell.inputs,
        "loss_end": float(losses[fine, -1].mean()) / cell.inputs if left else float("inf"),
    }


def _error(nets: Ensemble, X: Tensor, Y: Tensor, top: Tensor, when: str) -> Row:
    """How far the first member's sharpness is from that of the dense Hessian by autograd, where that is small."""
    first = nets.select(0)
    if first.layout.size > DENSE:
        return {}

    def loss(t: Tensor) -> Tensor:
        h = X
        for l, W in enumerate(first.layout.unflatten(t).values()):
            h = first.multipliers[l] * (h @ W.T)
            h = torch.relu(h) if first.activation == "relu" and l < first.depth - 1 else h
        return 0.5 * (h - Y).square().sum(-1).mean()

    exact = hessian_eigenvalues(loss, first.flat()[0], columns=50)[-1]
    return {f"error_{when}": float((top[0] - exact).abs() / exact)}


def quantities(nets: Ensemble) -> dict[tuple[str, int], Float[Tensor, "N 3"]]:
    """What is correlated, by kind and number of the matrix: squared norms, and for two layers alignments."""
    W = nets.weights
    found = {("single", l + 1): norms(A).square() for l, A in enumerate(W)}
    if nets.depth == 2:
        return found | {("aligned", 0): alignments(W[1], W[0])}
    return found | {("product", l + 1): norms(knocked_out(W, l)).square() for l in range(nets.depth)}


def _rows(cell: Nets, when: str, of: str, target: Tensor, nets: Ensemble) -> list[Row]:
    """Correlate everything with the target, over the same resampled populations."""
    found = quantities(nets)
    result = correlate(target, torch.cat(list(found.values()), -1), stream(cell, f"bootstrap {when}"))
    base: Row = {"when": when, "of": of}
    rows: list[Row] = [
        base | {"kind": kind, "matrix": number, "norm": norm, "pearson": float(r), "error": float(e)}
        for ((kind, number), norm), r, e in zip(((key, n) for key in found for n in NORMS), result.values, result.errors)
    ]
    return rows + [base | {"kind": "best", **row} for row in _best(found, result)]


def _best(found: dict[tuple[str, int], Tensor], result: Correlations) -> Iterator[Row]:
    """For each norm the largest correlation over the matrices, and its lead over those of the other norms."""
    single = [i for i, (kind, _) in enumerate(found) if kind == "single"]
    values, resampled = (A.unflatten(-1, (-1, len(NORMS)))[..., single, :].amax(-2) for A in (result.values, result.resampled))
    for i, norm in enumerate(NORMS):
        others = [j for j in range(len(NORMS)) if j != i]
        lead, leads = (A[..., i] - A[..., others].amax(-1) for A in (values, resampled))
        yield {"norm": norm, "pearson": float(values[i]), "lead": float(lead), "error": float(leads.std())}


EXPERIMENT = Experiment("cracking/norms", cells, measure)
