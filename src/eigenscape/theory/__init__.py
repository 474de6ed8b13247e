"""Closed-form spectra: parameters and data in, exact spectrum out."""

from .product_bulk import product_bulk
from .two_layer import two_layer_linear, two_layer_linear_ggn
from .two_layer_bounds import TwoLayerBounds, squared_error_ggn, two_layer_linear_bounds

__all__ = [
    "TwoLayerBounds",
    "product_bulk",
    "squared_error_ggn",
    "two_layer_linear",
    "two_layer_linear_bounds",
    "two_layer_linear_ggn",
]
