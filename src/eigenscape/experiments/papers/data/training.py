"""Networks of [data] Sec. 4 and 5, trained on real labels, with what theory says of their sharpness."""

from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import torch
from torch import Tensor

from ....ensembles import Ensemble, Plateau, initialise, sharpness, train
from ....theory import balanced_ggn, balanced_minimum, class_proportions, sharpness_from_proportions
from ...machine import Experiment, Row, stream
from .pictures import NOISE, RAW, WHITE, Subset, samples

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SIZES = (90, 180, 450, 900, 1800, 4500)  # multiples of 18, so that half of the samples can be in one of ten classes
HALVING = Plateau(factor=0.5, patience=0, threshold=1e-3)  # App. C: halved when 100 epochs improve the loss by less than 0.1 %
LOOK = 100
DEPTH, WIDTH = 4, 64


@dataclass(frozen=True)
class Trained:
    """Full-batch descent of four layers of width 64 on `n` images, the largest class of which has the share `largest`."""

    images: str
    n: int
    side: int
    largest: float
    inputs: str = WHITE
    start: str = "balanced"
    activation: str = "linear"
    steps: int = 10_000
    lr: float = 0.01
    seed: int = 0

    @property
    def cut(self) -> Subset:
        """The data."""
        return Subset(self.images, self.n, self.side, self.largest)


def cells(profile: str) -> list[Trained]:
    """Every set, share and kind of network, and numbers of samples at one share; only small images at smoke."""
    if profile == "smoke":
        small = Trained("mnist-5k", 500, 7, 0.1, steps=2500)
        tanh = replace(small, activation="tanh", steps=800)
        return [*_variants([small], (0.1, 0.5, 0.9)), *_shares([tanh], (0.1, 0.9)), *_sizes([small], (54, 180, 450))]
    small = Trained("mnist-5k", 500, 7, 0.1)
    full = [Trained("mnist", 5000, 0, 0.1), Trained("fashion-mnist", 5000, 0, 0.1), Trained("cifar-10", 5000, 0, 0.1)]
    if profile == "paper":
        seeds = [replace(c, seed=s) for c in (small, *full) for s in range(3)]
        tanh = [replace(c, activation="tanh") for c in seeds]
        sizes = [*full, Trained(NOISE, 5000, 28, 0.1)]
        return [*_variants(seeds, SHARES), *_tanh(tanh, SHARES), *_sizes(sizes, SIZES[1:])]
    grey = [replace(c, side=side) for c, side in zip(full, (14, 14, 8))]
    tanh = [replace(c, n=500, activation="tanh", steps=2500) for c in grey]
    wide = [*full[:2], replace(full[2], side=16)]
    sizes = [*grey, Trained(NOISE, 5000, 14, 0.1)]
    return [
        *_variants([small], SHARES),
        *(replace(c, start=s) for c, s in product(_shares(wide, SHARES), ("balanced", "sp"))),
        *(replace(c, inputs=RAW) for c in _shares(grey, SHARES)),
        *_tanh(tanh, SHARES),
        *_sizes(sizes, SIZES),
    ]


def _shares(nets: list[Trained], shares: tuple[float, ...]) -> list[Trained]:
    return [replace(net, largest=share) for net, share in product(nets, shares)]


def _variants(nets: list[Trained], shares: tuple[float, ...]) -> list[Trained]:
    """Linear networks: white inputs and balanced weights, then without the one, then without the other."""
    white = _shares(nets, shares)
    return [*white, *(replace(c, inputs=RAW) for c in white), *(replace(c, start="sp") for c in white)]


def _tanh(nets: list[Trained], shares: tuple[float, ...]) -> list[Trained]:
    """From balanced weights, and from those of PyTorch: the caption and the appendix differ."""
    return [*_shares(nets, shares), *(replace(c, start="sp") for c in _shares(nets, shares[::2]))]


def _sizes(nets: list[Trained], sizes: tuple[int, ...]) -> list[Trained]:
    """One share, many numbers of samples; another seed keeps them apart from the other figures."""
    return [replace(net, n=n, largest=0.5, seed=100) for net, n in product(nets, sizes)]


def narrowed(X: Tensor, Y: Tensor, nets: Ensemble) -> tuple[Tensor, Ensemble]:
    """White inputs in a basis of what the first layer and the labels see of them: descent, loss and sharpness are the same.

    The gradient of the first layer is `S^T (W - Syx)` there, whose rows never leave the span of its own rows and of Syx.
    """
    V = nets.weights[0][0]
    seen = torch.cat([V.mT, X.mT @ Y], -1)
    if seen.shape[-1] >= len(seen):
        return X, nets
    B = torch.linalg.qr(seen).Q
    return X @ B, nets.replace([V[None] @ B, *nets.weights[1:]])


def measure(cell: Trained, device: torch.device) -> list[Row]:
    """The sharpness that training reaches, beside predictions from the labels, from all data, and from the trained map."""
    X, Y = samples(cell.cut, cell.inputs, device)
    features, shares = X.shape[-1], class_proportions(Y.argmax(-1), Y.shape[-1])
    sizes = [features, *[WIDTH] * (DEPTH - 1), Y.shape[-1]]
    nets, _ = initialise(cell.start, sizes, 1, stream(cell), activation=cell.activation, device=device)
    linear = cell.activation == "linear"
    if linear and cell.inputs == WHITE:
        X, nets = narrowed(X, Y, nets)
    run = train(nets, X, Y, steps=cell.steps, lr=cell.lr, plateau=HALVING, look=LOOK)
    minimum = balanced_minimum(X, Y, DEPTH, width=WIDTH)
    before, after = (sharpness(e, X, Y, generator=stream(cell, "lanczos")).values.item() for e in (nets, run.ensemble))
    gradient = torch.stack([g.square().sum() for g in run.ensemble.gradients(X, Y)]).sum().sqrt()
    return [
        {
            "features": features,
            "share": float(shares.max()),
            "start_sharpness": before,
            "sharpness": after,
            "printed": float(sharpness_from_proportions(shares, DEPTH)),
            "from_data": float(minimum.sharpness),
            "at_map": _at_map(run.ensemble, X) if linear else None,
            "loss": float(run.losses[0, -1]),
            "least": float(minimum.loss),
            "gradient": float(gradient),
            "imbalance": _imbalance(run.ensemble),
            "rate": float(run.rates[0]),
        }
    ]


def _at_map(nets: Ensemble, X: Tensor) -> float:
    """Sharpness of balanced layers that multiply to the trained map."""
    W = reduce(lambda done, layer: layer @ done, [W[0] for W in nets.weights])
    return float(balanced_ggn(W, X, DEPTH, width=WIDTH).max)


def _imbalance(nets: Ensemble) -> float:
    """Largest `|W_l W_l^T - W_{l+1}^T W_{l+1}|_2` over the largest squared spectral norm of a layer."""
    gaps = [torch.linalg.matrix_norm(V @ V.mT - W.mT @ W, 2) for V, W in zip(nets.weights, nets.weights[1:])]
    size = torch.stack([torch.linalg.matrix_norm(W, 2).square() for W in nets.weights]).amax()
    return float(torch.stack(gaps).amax() / size)


TRAINED = Experiment("data/trained", cells, measure)
