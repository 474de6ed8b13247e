"""Pixels and labels as tensors, cut to a size, and made the inputs and targets of a network."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from ...core import DataError
from .catalogue import SETS, ImageSet
from .folder import VARIABLE, data_folder

Pixels = UInt8[Tensor, "n channels height width"]
Labels = Int[Tensor, "n"]
Scaling = Literal["unit", "centred", "channels", "pixels"]

SUBSETS: Mapping[str, str] = {
    "mnist": "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d",
    "mnist-5k": "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d",
    "fashion-mnist": "d3fd13f231f4922feba89022566507120268713d24d9a24506cc5385f3695f9c",
    "cifar-10": "5454d717e8c96a8dd16a7ad55982e0b1e54e192b69ecd10cf455f9e2d5a63d9f",
}


def named(name: str) -> ImageSet:
    """Return the set of this name."""
    if name not in SETS:
        raise DataError(f"there is no set {name!r}; expected one of {', '.join(SETS)}.")
    return SETS[name]


def available(folder: Path | None = None) -> dict[str, Path | None]:
    """Return where the training images of each set were found, `None` for a set that is not here."""
    return {name: found[0] if (found := s.found("train", folder)) else None for name, s in SETS.items()}


def images(
    name: str, split: str = "train", n: int | None = None, *, per_class: int | None = None, folder: Path | None = None
) -> tuple[Pixels, Labels]:
    """Read a set in its published order: all of it, the first `n` images, or the first `per_class` of each class by class.

    Pixels are whole numbers from 0, one axis each for channels, rows and columns; every file is checked against its
    published hash. Sets are looked for in `folder`, by default the one that `EIGENSCAPE_DATA` names or the user's cache.
    """
    source = named(name)
    if split not in source.counts:
        raise DataError(f"{name} has no split {split!r}; expected one of {', '.join(source.counts)}.")
    if n is not None and per_class is not None:
        raise DataError(f"n = {n} and per_class = {per_class} were both given; expected one of them.")
    found = source.found(split, folder)
    if found is None:
        raise DataError(missing(source, folder))
    X, y = (torch.from_numpy(array.copy()) for array in found[1].read(found[0], split))
    y = y.long()
    kept = slice(None) if per_class is None else _first_of_each(y, [_whole("per_class", per_class)] * source.classes)
    if n is not None:
        if _whole("n", n) > len(y):
            raise DataError(f"n is {n}; expected at most {len(y)}, the size of {name}'s {split} split.")
        kept = slice(n)
    return X[kept], y[kept]


def missing(source: ImageSet, folder: Path | None = None) -> str:
    """Say how to come by a set that is not here."""
    place = data_folder(folder) / source.home
    return (
        f"{source.title} is not in {place}; expected its published files there. Type 'eigenscape data get {source.name}', "
        f"or let {VARIABLE} name a folder that has them."
    )


def fixed(name: str, folder: Path | None = None) -> tuple[Pixels, Labels]:
    """Read the fixed subset of 5,000: the first 500 training images of each class, by class, whose hash is in `SUBSETS`."""
    if name not in SUBSETS:
        raise DataError(f"{name!r} has no fixed subset; expected one of {', '.join(SUBSETS)}.")
    X, y = images(name, per_class=500, folder=folder)
    if (found := fingerprint(X, y)) != SUBSETS[name]:
        raise DataError(f"the 5,000 images of {name} have the hash {found}; expected {SUBSETS[name]}: the order is another.")
    return X, y


def subset(
    X: Tensor, y: Labels, n: int = 5000, largest: float | None = None, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Labels]:
    """Take `n` samples, of which class 0 has the proportion `largest` and every other class the same number.

    With k classes, every class but 0 has floor((1 - largest) n / (k - 1)) samples and class 0 has the rest. [data] App. C
    prints floor((1 - largest) n), which is more than n in all: it lacks the division. By default all classes have the same
    proportion, 1/k. Samples come by class and are the first of each, or drawn without replacement if a generator is given.

    >>> X, y = torch.arange(40.0)[:, None], torch.arange(40) % 4
    >>> subset(X, y, n=10, largest=0.7)[1].bincount()
    tensor([7, 1, 1, 1])
    >>> subset(X, y, n=8)[0].T
    tensor([[0., 4., 1., 5., 2., 6., 3., 7.]])
    """
    if y.ndim != 1 or len(X) != len(y) or not len(y):
        raise DataError(f"X {tuple(X.shape)} and y {tuple(y.shape)} do not fit; expected one sample per label, at least one.")
    classes = int(y.max()) + 1
    share = 1 / classes if largest is None else float(largest)
    if not 1 / classes - 1e-12 <= share <= 1:
        raise DataError(f"largest is {largest}; expected a proportion from 1/{classes} (all classes alike) to 1 (one class).")
    each = math.floor((1 - share) * _whole("n", n) / max(classes - 1, 1) + 1e-9)  # 0.3 * 10 is 3, whatever 1 - 0.7 rounds to
    kept = _first_of_each(y, [n - (classes - 1) * each] + [each] * (classes - 1), generator)
    return X[kept], y[kept]


def _first_of_each(y: Labels, counts: list[int], generator: torch.Generator | None = None) -> Labels:
    """Return the places of the first `counts[k]` samples of each class k, or of as many random ones."""
    kept = []
    for k, count in enumerate(counts):
        places = (y == k).nonzero().flatten()
        if len(places) < count:
            raise DataError(f"{count} samples of class {k} were asked for; expected at most {len(places)}, all there are.")
        if generator is not None:
            places = places[torch.randperm(len(places), generator=generator).to(places.device)]
        kept.append(places[:count])
    return torch.cat(kept)


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DataError(f"{name} is {value!r}; expected a whole number of at least 1.")
    return value


def inputs(
    X: Pixels, scaling: Scaling = "unit", *, top: float = 255, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "n features"]:
    """Flatten images to rows and scale them.

    - "unit": pixels from 0 to 1; divided by `top`, their largest possible value (`SETS[name].top`).
    - "centred": the same less the mean of each pixel over the samples.
    - "channels": every channel has mean 0 and variance 1 over samples and pixels, as is the habit with CIFAR-10.
    - "pixels": every pixel has mean 0 and variance 1 over the samples; one that never changes is 0.

    >>> X = torch.tensor([[[[0, 255]]], [[[255, 255]]]], dtype=torch.uint8)
    >>> inputs(X), inputs(X, "pixels")
    (tensor([[0., 1.],
            [1., 1.]], dtype=torch.float64), tensor([[-1.,  0.],
            [ 1.,  0.]], dtype=torch.float64))
    """
    if scaling not in ("unit", "centred", "channels", "pixels"):
        raise DataError(f"scaling is {scaling!r}; expected 'unit', 'centred', 'channels' or 'pixels'.")
    Z = X.to(dtype) / top
    over = (0, 2, 3) if scaling == "channels" else 0
    if scaling != "unit":
        Z = Z - Z.mean(over, keepdim=True)
    if scaling in ("channels", "pixels"):
        deviation = Z.square().mean(over, keepdim=True).sqrt()
        Z = Z / deviation.where(deviation > 1e-6, torch.ones_like(deviation))  # a pixel of 0 and 1 in 10^9 images has 3e-5
    return Z.flatten(1)


def one_hot(y: Labels, classes: int = 10, dtype: torch.dtype = torch.float64) -> Float[Tensor, "n classes"]:
    """Return a row per label with a 1 in its class's place."""
    return torch.nn.functional.one_hot(y, classes).to(dtype)


def fingerprint(X: Pixels, y: Labels) -> str:
    """Return the SHA-256 of the pixels (rows, columns, channels) followed by the labels, as bytes.

    >>> fingerprint(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.tensor([0]))[:8]
    '8855508a'
    """
    digest = hashlib.sha256(X.permute(0, 2, 3, 1).contiguous().cpu().numpy().tobytes())
    digest.update(y.to(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()
