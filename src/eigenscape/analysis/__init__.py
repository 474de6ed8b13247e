"""Everything known about one model, in one object."""

from .analyze import analyze
from .derived import Condition, Interval
from .placed import placed
from .provenance import Provenance, Stage
from .publish import publish
from .record import Analysis, load

__all__ = ["Analysis", "Condition", "Interval", "Provenance", "Stage", "analyze", "load", "placed", "publish"]
