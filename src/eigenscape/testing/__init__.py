"""Public oracles: losses and matrices whose spectrum is known."""

from .losses import loss_with_hessian, objective_with_hessian
from .matrices import disguises, rotated
from .spectra import SPECTRA, spectrum_like

__all__ = ["SPECTRA", "disguises", "loss_with_hessian", "objective_with_hessian", "rotated", "spectrum_like"]
