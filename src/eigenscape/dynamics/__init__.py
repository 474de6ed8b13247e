"""Curvature along a training run."""

from .advice import RateRange, StableRate, lr_range, max_stable_lr
from .history import History, read
from .instruments import MEASURES
from .monitor import Monitor
from .phases import PHASES, phase
from .rules import GroupRule, View, group_rule, view
from .tracking import Tracked, Tracker

__all__ = [
    "MEASURES",
    "PHASES",
    "GroupRule",
    "History",
    "Monitor",
    "RateRange",
    "StableRate",
    "Tracked",
    "Tracker",
    "View",
    "group_rule",
    "lr_range",
    "max_stable_lr",
    "phase",
    "read",
    "view",
]
