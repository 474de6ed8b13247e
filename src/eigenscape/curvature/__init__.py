"""A module, a loss and data become operators: Hessian, GGN, functional Hessian, Fisher, NTK."""

from . import losses
from .ntk import ntk
from .objective import Objective
from .operators import fisher, functional_hessian, ggn, hessian

__all__ = ["Objective", "fisher", "functional_hessian", "ggn", "hessian", "losses", "ntk"]
