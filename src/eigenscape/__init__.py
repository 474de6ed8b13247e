"""Eigenscape: what does a neural network's curvature look like?"""

from . import theory
from .analysis import Analysis, analyze, load
from .analysis.recognise import spectrum
from .core import (
    CurvatureError,
    DataError,
    Density,
    EigenPairs,
    EigenscapeError,
    Enclosure,
    Estimate,
    NotRecognised,
    OperatorError,
    SelfTestError,
    SolverError,
    Spectrum,
    TheoryError,
    TrainingModeError,
)
from .curvature import Objective, fisher, functional_hessian, ggn, hessian, losses, ntk
from .linop import Operator, as_operator, blocks
from .solvers import dense, density, diagonal, eigsh, frobenius, trace

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "CurvatureError",
    "DataError",
    "Density",
    "EigenPairs",
    "EigenscapeError",
    "Enclosure",
    "Estimate",
    "NotRecognised",
    "Objective",
    "Operator",
    "OperatorError",
    "SelfTestError",
    "SolverError",
    "Spectrum",
    "TheoryError",
    "TrainingModeError",
    "analyze",
    "as_operator",
    "blocks",
    "dense",
    "density",
    "diagonal",
    "eigsh",
    "fisher",
    "frobenius",
    "functional_hessian",
    "ggn",
    "hessian",
    "load",
    "losses",
    "ntk",
    "spectrum",
    "theory",
    "trace",
]
