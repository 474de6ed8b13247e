"""Image sets as [data] App. C cuts them: a subset with one large class, its pixels as they are or whitened."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ....report.style import AMBER, BLUE, GREEN, PURPLE, VERMILLION
from ....theory import one_hot
from ...data import images, inputs, subset
from ...ledger.oracle import normal

WHITE, RAW = "white", "raw"
NOISE = "noise"
LOOKS = {
    "mnist": ("MNIST", BLUE, "o"),
    "fashion-mnist": ("FashionMNIST", VERMILLION, "s"),
    "cifar-10": ("CIFAR-10", GREEN, "^"),
    "mnist-5k": ("MNIST, 500 small images", PURPLE, "D"),
    NOISE: ("inputs of pure noise", AMBER, "v"),
}
CLASSES = 10


@dataclass(frozen=True)
class Subset:
    """`n` images of which class 0 has the proportion `largest`, averaged down to `side` pixels a side (0: as published)."""

    images: str
    n: int
    side: int
    largest: float


@lru_cache(maxsize=3)
def _published(name: str) -> tuple[Tensor, Tensor]:
    return images(name)


def _pixels(cut: Subset) -> tuple[Float[Tensor, "n features"], Tensor]:
    """Pixels from 0 to 1, in rows, and classes; a set that is not here is an error that says how to come by it."""
    if cut.images == NOISE:
        generator = torch.Generator().manual_seed(0)
        everything = torch.arange(CLASSES).repeat(cut.n)
        X, y = subset(torch.zeros(len(everything), 1), everything, cut.n, cut.largest)
        return normal(generator, len(X), cut.side**2), y
    X, y = subset(*_published(cut.images), cut.n, cut.largest)
    return inputs(adaptive_avg_pool2d(X.double(), cut.side) if cut.side else X), y


def samples(cut: Subset, form: str, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Inputs and one-hot labels, samples in rows.

    White inputs have second moment 1 in every direction that the pixels span; pixels that never change, or are combinations of
    others, span none, and nothing is made up for them.
    """
    X, y = _pixels(cut)
    return (whitened(X) if form == WHITE else X).to(device), one_hot(y, CLASSES).to(device)


def whitened(X: Float[Tensor, "n features"]) -> Float[Tensor, "n rank"]:
    """`sqrt(n)` times an orthonormal basis of the columns, whatever their rank.

    >>> Q = whitened(torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 1.0], [1.0, 2.0, 3.0]], dtype=torch.float64))
    >>> (Q.T @ Q / 3).round(decimals=9).abs().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    U, s, _ = torch.linalg.svd(X, full_matrices=False)
    return len(X) ** 0.5 * U[:, s > 1e-10 * s[0]]
