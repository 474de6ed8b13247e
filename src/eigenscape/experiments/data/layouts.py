"""File layouts of published image sets: each knows its files, their MD5, and how pixels and labels lie in them."""

import io
import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import DataError
from .folder import md5, spelling, unpacked, verified

Arrays = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # pixels (n, channels, height, width); labels (n,)
Split = str


class Layout(ABC):
    """How one set lies in a folder."""

    @abstractmethod
    def holds(self, place: Path, split: Split) -> bool:
        """Whether the files of the split lie in this place."""

    @abstractmethod
    def expected(self) -> list[str]:
        """Return the names of all files, as people would put them into the place."""

    def installed(self) -> Path | None:
        """Return the place inside an installed package that may hold the files."""
        return None

    @abstractmethod
    def read(self, place: Path, split: Split) -> Arrays:
        """Return pixels and labels in the published order, or say which file is not as published."""


@dataclass(frozen=True)
class Idx(Layout):
    """Two idx files per split, gzipped or not, as MNIST was published; `md5s` is of (pixels, labels), unzipped."""

    md5s: Mapping[Split, tuple[str, str]]

    def names(self, split: Split) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the two spellings in use of both files' names."""
        stem = {"train": "train", "test": "t10k"}[split]
        pixels, labels = f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"
        return (pixels, pixels.replace("-idx", ".idx")), (labels, labels.replace("-idx", ".idx"))

    def expected(self) -> list[str]:
        """Return the four names."""
        return [spellings[0] for split in self.md5s for spellings in self.names(split)]

    def holds(self, place: Path, split: Split) -> bool:
        """Whether both files are there; the labels, which are small, tell sets with the same file names apart."""
        pixels, labels = (spelling(place, names) for names in self.names(split))
        return pixels is not None and labels is not None and md5(unpacked(labels)) == self.md5s[split][1]

    def read(self, place: Path, split: Split) -> Arrays:
        """Read both files."""
        found = [spelling(place, names) for names in self.names(split)]
        pixels, labels = (_idx(verified(path, digest)) for path, digest in zip(found, self.md5s[split]) if path)
        return pixels[:, None], labels


def _idx(content: bytes) -> NDArray[np.uint8]:
    """Return the array in an idx file: two zeros, the type (8: bytes), the number of axes, their sizes, the entries."""
    zeros, kind, axes = content[:2], content[2], content[3]
    if zeros != b"\0\0" or kind != 8:
        raise DataError(f"the idx file starts with {content[:4].hex()}; expected 000008 and the number of axes.")
    sizes = np.frombuffer(content, ">i4", axes, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(sizes)


@dataclass(frozen=True)
class Batches(Layout):
    """CIFAR-10's files of 10,000 images: records of a label and then all pixels by channel, row and column."""

    md5s: Mapping[str, str]
    ending: str = ".bin"

    def names(self, split: Split) -> list[str]:
        """Return the files of the split, in order."""
        return [name for name in self.md5s if name.startswith("data_batch" if split == "train" else "test_batch")]

    def expected(self) -> list[str]:
        """Return the six names."""
        return [name + self.ending for name in self.md5s]

    def holds(self, place: Path, split: Split) -> bool:
        """Whether every file is there."""
        return all((place / (name + self.ending)).is_file() for name in self.names(split))

    def read(self, place: Path, split: Split) -> Arrays:
        """Read the files one after the other."""
        parts = [self.records(verified(place / (name + self.ending), self.md5s[name])) for name in self.names(split)]
        records = np.concatenate(parts)
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]

    def records(self, content: bytes) -> NDArray[np.uint8]:
        """Return one row per image: the label, then the pixels."""
        return np.frombuffer(content, np.uint8).reshape(-1, 3073)


@dataclass(frozen=True)
class PickledBatches(Batches):
    """The same records as Python pickles of `{b"labels": [...], b"data": array}`."""

    ending: str = ""

    def records(self, content: bytes) -> NDArray[np.uint8]:
        """Unpickle nothing but an array, after its hash has been checked."""
        batch = ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        labels = np.array(batch[b"labels"], np.uint8)
        return np.concatenate([labels[:, None], batch[b"data"]], axis=1)


class ArraysOnly(pickle.Unpickler):
    """An unpickler that can build containers, numbers, strings and numpy arrays, and calls nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return one of numpy's three constructors, or refuse."""
        rebuild = np.empty(0).__reduce__()[0]
        if module_name in ("numpy.core.multiarray", "numpy._core.multiarray") and global_name == "_reconstruct":
            return rebuild
        if module_name == "numpy" and global_name in ("ndarray", "dtype"):
            return getattr(np, global_name)
        raise DataError(f"the pickle asks for {module_name}.{global_name}; expected arrays only. It was not opened further.")
