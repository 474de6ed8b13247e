"""Eigenscape: what does a neural network's curvature look like?"""

from . import ensembles, theory
from .analysis import Analysis, analyze, load
from .analysis.recognise import spectrum
from .analysis.run import Monitor
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
from .core.version import VERSION
from .curvature import Objective, fisher, functional_hessian, ggn, hessian, losses, ntk
from .dynamics import History, RateRange, StableRate, lr_range, max_stable_lr
from .linop import Operator, as_operator, blocks
from .solvers import dense, density, diagonal, eigsh, frobenius, trace

__version__ = VERSION

__all__ = [
    "Analysis",
    "CurvatureError",
    "DataError",
    "Density",
    "EigenPairs",
    "EigenscapeError",
    "Enclosure",
    "Estimate",
    "History",
    "Monitor",
    "NotRecognised",
    "Objective",
    "Operator",
    "OperatorError",
    "RateRange",
    "SelfTestError",
    "SolverError",
    "Spectrum",
    "StableRate",
    "TheoryError",
    "TrainingModeError",
    "analyze",
    "as_operator",
    "blocks",
    "dense",
    "density",
    "diagonal",
    "eigsh",
    "ensembles",
    "fisher",
    "frobenius",
    "functional_hessian",
    "ggn",
    "hessian",
    "load",
    "losses",
    "lr_range",
    "max_stable_lr",
    "ntk",
    "spectrum",
    "theory",
    "trace",
]
