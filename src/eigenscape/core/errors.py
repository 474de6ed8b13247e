"""Errors as part of the interface: each says what came, what was expected, and what to type."""


class EigenscapeError(Exception):
    """Base of every error this package raises on purpose."""


class DataError(EigenscapeError, ValueError):
    """The data cannot be used: empty, one-shot, drifting between passes, of the wrong kind or shape."""


class CurvatureError(EigenscapeError, ValueError):
    """Model, criterion or parameter selection do not define a curvature."""


class TrainingModeError(CurvatureError):
    """A module is in a mode in which the loss is not a fixed function of the parameters."""


class SelfTestError(EigenscapeError, ArithmeticError):
    """A start-up self-test saw numbers that no Hessian has."""


class OperatorError(EigenscapeError, ValueError):
    """Shapes, dtypes or devices of operators and vectors do not fit."""


class SolverError(EigenscapeError, ValueError):
    """A solver was asked for something that does not exist, or met numbers that are not finite."""


class TheoryError(EigenscapeError, ValueError):
    """The inputs of a closed form do not fit it, or do not meet the assumptions that were asked for."""


class NotRecognised(EigenscapeError, LookupError):
    """The network has no closed form here; the message says which condition failed."""
