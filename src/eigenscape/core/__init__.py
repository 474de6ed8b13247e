"""The words all other layers speak: results with certificates, spectra, errors, layouts, random streams."""

from .errors import (
    CurvatureError,
    DataError,
    EigenscapeError,
    NotRecognised,
    OperatorError,
    SelfTestError,
    SolverError,
    TheoryError,
    TrainingModeError,
)
from .layout import Layout
from .random import random_like, resolve_generator
from .results import Density, EigenPairs, Enclosure, Estimate
from .spectrum import Eigenspace, ExplicitSpace, Spectrum

__all__ = [
    "CurvatureError",
    "DataError",
    "Density",
    "EigenPairs",
    "EigenscapeError",
    "Eigenspace",
    "Enclosure",
    "Estimate",
    "ExplicitSpace",
    "Layout",
    "NotRecognised",
    "OperatorError",
    "SelfTestError",
    "SolverError",
    "Spectrum",
    "TheoryError",
    "TrainingModeError",
    "random_like",
    "resolve_generator",
]
