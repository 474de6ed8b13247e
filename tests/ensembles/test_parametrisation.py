"""Each parametrisation draws weights of its own scale, and trains each layer at its own rate."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from eigenscape import CurvatureError
from eigenscape.ensembles import initialise

WIDTHS = (4, 100, 50, 2)
LAYERS = [(d_out, d_in) for d_in, d_out in pairwise(WIDTHS)]
# (variance, multiplier, rate) of a layer from d_in to d_out, written down again from the definitions
SCALES = {
    "sp": lambda o, i: (1 / (3 * i), 1.0, 1.0),
    "kaiming_uniform": lambda o, i: (2 / i, 1.0, 1.0),
    "ntp": lambda o, i: (1.0, i**-0.5, 1.0),
    "mup": lambda o, i: (min(1, o / i) / i, 1.0, o / i),
    "mup_printed": lambda o, i: (o / i, 1.0, 1 / i),
}


@pytest.mark.parametrize("name", SCALES)
def test_variances_multipliers_and_rates(name):
    nets, rates = initialise(name, WIDTHS, 400, torch.Generator().manual_seed(0))
    for W, c, rate, layer in zip(nets.weights, nets.multipliers, rates, LAYERS):
        variance, multiplier, factor = SCALES[name](*layer)
        assert (c, rate) == pytest.approx((multiplier, factor))
        size = W.numel()
        assert W.mean().abs() < 5 * math.sqrt(variance / size)
        assert W.var().item() == pytest.approx(variance, rel=5 * math.sqrt(2 / size))


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("sp", lambda o, i: nn.Linear(i, o, bias=False).weight), ("kaiming_uniform", lambda o, i: kaiming(o, i))],
)
def test_uniform_draws_have_torchs_bounds(name, theirs):
    nets, _ = initialise(name, WIDTHS, 200, torch.Generator().manual_seed(1))
    for W, (o, i) in zip(nets.weights, LAYERS):
        most = max(theirs(o, i).abs().max().item() for _ in range(200))
        assert W.abs().max().item() == pytest.approx(most, rel=0.02)


def kaiming(o, i):
    return nn.init.kaiming_uniform_(torch.empty(o, i))


def test_orthogonal_draws_have_orthonormal_rows_or_columns():
    nets, rates = initialise("orthogonal", WIDTHS, 5)
    assert rates == (1.0, 1.0, 1.0)
    for W in nets.weights:
        gram = W.mT @ W if W.shape[1] >= W.shape[2] else W @ W.mT
        assert (gram - torch.eye(len(gram[0]))).abs().max() < 1e-14
    signs = initialise("orthogonal", (1, 1), 1000, torch.Generator().manual_seed(0))[0].weights[0].flatten()
    assert abs(signs.sum()) < 5 * 1000**0.5, "the sign of QR is no matter of chance"


def test_balanced_draws_are_balanced():
    nets, _ = initialise("balanced", (3, 7, 5, 4), 6)
    for V, W in pairwise(nets.weights):
        assert (V @ V.mT - W.mT @ W).abs().max() < 1e-14
    sigma = torch.linalg.svdvals(nets.weights[0])
    assert ((sigma >= 0) & (sigma <= 1)).all()
    assert sigma.std() > 0.1


def test_the_outputs_of_ntp_have_the_size_of_the_inputs():
    nets, _ = initialise("ntp", (50, 400, 400, 50), 50, torch.Generator().manual_seed(0))
    X = torch.randn(30, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert nets.outputs(X).square().mean().item() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("width", [50, 200, 800])
def test_mup_features_and_updates_do_not_feel_the_width(width):
    nets, rates = initialise("mup", (10, width, width, 10), 8, torch.Generator().manual_seed(0))
    X = torch.randn(64, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sizes = [h.square().mean().item() for h in nets.run(X).inputs[1:]]
    assert sizes == pytest.approx([1.0, 1.0], rel=0.15)
    Y = torch.randn(64, 10, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    moved = [r * torch.linalg.matrix_norm(G, 2).mean().item() for r, G in zip(rates, nets.gradients(X, Y))]
    kept = [torch.linalg.matrix_norm(W, 2).mean().item() for W in nets.weights]
    for relative in (m / k for m, k in zip(moved, kept)):
        assert 0.02 < relative < 5.0, "a step of rate 1 changes every layer by a share of its own size"


def test_gain_dtype_and_the_same_numbers_again():
    one, _ = initialise("ntp", (3, 5, 2), 4, torch.Generator().manual_seed(5), gain=2.0, dtype=torch.float32)
    two, _ = initialise("ntp", (3, 5, 2), 4, torch.Generator().manual_seed(5))
    assert one.dtype == torch.float32
    for a, b in zip(one.weights, two.weights):
        assert torch.equal(a, (2 * b).float())


@pytest.mark.parametrize(
    ("name", "widths", "members", "message"),
    [
        ("he", (2, 3), 1, "parametrisation is 'he'; expected one of sp, kaiming_uniform, ntp"),
        ("sp", (2,), 1, r"widths are \[2\] for 1 members"),
        ("sp", (2, 0), 1, "at least one member"),
        ("sp", (2, 3), 0, "for 0 members"),
    ],
)
def test_refusals(name, widths, members, message):
    with pytest.raises(CurvatureError, match=message):
        initialise(name, widths, members)
