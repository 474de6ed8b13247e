"""Closed-form spectra: parameters and data in, exact spectrum out."""

from . import dynamics, quadratic
from .aligned import aligned_deep_linear
from .aligned_frames import aligned_frames
from .attention import self_attention, self_attention_ggn, self_attention_heads
from .attention_numbers import AttentionNumbers, self_attention_numbers
from .balanced import BalancedMinimum, balanced_ggn, balanced_minimum
from .block_diagonal import block_diagonal_inputs, block_diagonal_outputs, diagonal_linear, diagonal_linear_mixture
from .chain import with_ones
from .deep_linear import deep_linear_bounds, deep_linear_ggn, deep_linear_trace
from .labels import (
    balanced_white,
    class_proportions,
    one_hot,
    sharpness_from_labels,
    sharpness_from_proportions,
    two_layer_white_ggn,
)
from .paired import PairedConditions, paired_conditions, paired_outliers
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
from .two_layer_relu import two_layer_relu
from .two_layer_relu_parts import ReluBounds, two_layer_relu_bounds, two_layer_relu_functional, two_layer_relu_ggn
from .whitening import sample_balanced_weights, white_scale, whiten

__all__ = [
    "AttentionNumbers",
    "BalancedMinimum",
    "BiasRadicals",
    "PairedConditions",
    "Phase",
    "ReluBounds",
    "ScalarNet",
    "SharpnessParts",
    "TwoLayerBounds",
    "aligned_deep_linear",
    "aligned_frames",
    "balanced_ggn",
    "balanced_minimum",
    "balanced_white",
    "bias_assumptions",
    "block_diagonal_inputs",
    "block_diagonal_outputs",
    "class_proportions",
    "deep_linear_bounds",
    "deep_linear_ggn",
    "deep_linear_trace",
    "diagonal_linear",
    "diagonal_linear_mixture",
    "dynamics",
    "one_hot",
    "paired_conditions",
    "paired_outliers",
    "product_bulk",
    "quadratic",
    "sample_balanced_weights",
    "scalar_linear",
    "scalar_linear_bias",
    "scalar_linear_bias_radicals",
    "scalar_linear_derivatives",
    "scalar_linear_loss",
    "scalar_linear_parts",
    "scalar_products",
    "scalar_relu",
    "self_attention",
    "self_attention_ggn",
    "self_attention_heads",
    "self_attention_numbers",
    "sharpness_from_labels",
    "sharpness_from_proportions",
    "squared_error_ggn",
    "two_layer_linear",
    "two_layer_linear_bounds",
    "two_layer_linear_ggn",
    "two_layer_relu",
    "two_layer_relu_bounds",
    "two_layer_relu_functional",
    "two_layer_relu_ggn",
    "two_layer_white_ggn",
    "white_scale",
    "whiten",
    "with_ones",
]
