"""The sets: what each holds, how its files are named where people keep them, and which package brings it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .folder import data_folder
from .layouts import Batches, Idx, Layout, PickledBatches, Split
from .tables import TABLES


@dataclass(frozen=True)
class ImageSet:
    """One set of labelled images.

    - counts: images per split.
    - shape: channels, height, width.
    - top: the largest value that a pixel can have.
    - layouts: places below the data folder, or absolute ones, and how the files lie there; the first place is where
      `eigenscape data get` puts them.
    - licence: as it is usually given; the files themselves state none, except FashionMNIST's.
    """

    name: str
    title: str
    counts: Mapping[Split, int]
    shape: tuple[int, int, int]
    layouts: tuple[tuple[str, Layout], ...]
    licence: str
    top: int = 255
    classes: int = 10

    def found(self, split: Split, folder: Path | None = None) -> tuple[Path, Layout] | None:
        """Return the first place that holds the split, and its layout."""
        root = data_folder(folder)
        places = [(root / place, layout) for place, layout in self.layouts]
        installed = [(place, layout) for _, layout in self.layouts if (place := layout.installed())]
        return next(((place, layout) for place, layout in places + installed if layout.holds(place, split)), None)

    @property
    def home(self) -> str:
        """Where the files belong below the data folder."""
        return self.layouts[0][0]


MNIST = Idx(
    {
        "train": ("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"),
        "test": ("2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
    }
)
FASHION = Idx(
    {
        "train": ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
        "test": ("8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
    }
)
CIFAR = Batches(
    {
        "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
    }
)
CIFAR_PICKLED = PickledBatches(
    {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    }
)

FULL = {"train": 60_000, "test": 10_000}
GREY = (1, 28, 28)
SETS: Mapping[str, ImageSet] = {
    s.name: s
    for s in (
        ImageSet(
            "mnist",
            "MNIST",
            FULL,
            GREY,
            (("MNIST/raw", MNIST), ("mnist", MNIST), ("MNIST", MNIST), (".", MNIST)),
            "CC BY-SA 3.0",
        ),
        ImageSet(
            "fashion-mnist",
            "FashionMNIST",
            FULL,
            GREY,
            (
                ("FashionMNIST/raw", FASHION),
                ("fashion-mnist", FASHION),
                ("FashionMNIST", FASHION),
                (".", FASHION),
                ("/usr/share/datasets/fashion-mnist", FASHION),
            ),
            "MIT",
        ),
        ImageSet(
            "cifar-10",
            "CIFAR-10",
            {"train": 50_000, "test": 10_000},
            (3, 32, 32),
            (
                ("cifar-10-batches-bin", CIFAR),
                ("cifar-10-batches-py", CIFAR_PICKLED),
                (".", CIFAR),
                (".", CIFAR_PICKLED),
            ),
            "none stated",
        ),
        ImageSet(
            "mnist-5k",
            "MNIST, the first 500 of each digit",
            {"train": 5000},
            GREY,
            ((".", TABLES["mnist-5k"]),),
            "CC BY-SA 3.0",
        ),
        ImageSet(
            "digits",
            "small digits",
            {"train": 1797},
            (1, 8, 8),
            ((".", TABLES["digits"]),),
            "BSD-3",
            top=16,
        ),
    )
}
