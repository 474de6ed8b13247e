"""Hundreds of networks of one architecture as one computation: drawn, trained and measured together."""

from .ensemble import Ensemble
from .hessian import StackedHessian, hessian
from .parametrisation import SCHEMES, initialise
from .plateau import Plateau
from .sharpness import Sharpness, sharpness, spectra, trace
from .training import Run, train

__all__ = [
    "SCHEMES",
    "Ensemble",
    "Plateau",
    "Run",
    "Sharpness",
    "StackedHessian",
    "hessian",
    "initialise",
    "sharpness",
    "spectra",
    "trace",
    "train",
]
