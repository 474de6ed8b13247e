"""Real images: found in a folder or inside installed packages, checked against published hashes, and cut to size."""

from .catalogue import SETS, ImageSet
from .folder import data_folder
from .samples import SUBSETS, available, fingerprint, fixed, images, inputs, one_hot, subset
from .tables import MNIST_5K, mnist_5k

__all__ = [
    "MNIST_5K",
    "SETS",
    "SUBSETS",
    "ImageSet",
    "available",
    "data_folder",
    "fingerprint",
    "fixed",
    "images",
    "inputs",
    "mnist_5k",
    "one_hot",
    "subset",
]
