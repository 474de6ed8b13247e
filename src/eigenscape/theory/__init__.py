"""Closed-form spectra: parameters and data in, exact spectrum out."""

from .block_diagonal import block_diagonal_inputs, block_diagonal_outputs, diagonal_linear, diagonal_linear_mixture
from .product_bulk import product_bulk
from .scalar import (
    SharpnessParts,
    scalar_linear,
    scalar_linear_derivatives,
    scalar_linear_loss,
    scalar_linear_parts,
)
from .scalar_bias import BiasRadicals, bias_assumptions, scalar_linear_bias, scalar_linear_bias_radicals
from .scalar_net import Phase, ScalarNet
from .scalar_products import scalar_products
from .scalar_relu import scalar_relu
from .two_layer import two_layer_linear, two_layer_linear_ggn
from .two_layer_bounds import TwoLayerBounds, squared_error_ggn, two_layer_linear_bounds

__all__ = [
    "BiasRadicals",
    "Phase",
    "ScalarNet",
    "SharpnessParts",
    "TwoLayerBounds",
    "bias_assumptions",
    "block_diagonal_inputs",
    "block_diagonal_outputs",
    "diagonal_linear",
    "diagonal_linear_mixture",
    "product_bulk",
    "scalar_linear",
    "scalar_linear_bias",
    "scalar_linear_bias_radicals",
    "scalar_linear_derivatives",
    "scalar_linear_loss",
    "scalar_linear_parts",
    "scalar_products",
    "scalar_relu",
    "squared_error_ggn",
    "two_layer_linear",
    "two_layer_linear_bounds",
    "two_layer_linear_ggn",
]
