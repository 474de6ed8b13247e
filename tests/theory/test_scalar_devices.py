"""The scalar closed forms promote to float64 and follow the device of their inputs."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from eigenscape import theory
from eigenscape.core import Spectrum


def numbers(*shapes, dtype=torch.float32, device="cpu"):
    g = torch.Generator().manual_seed(5)
    return [torch.randn(*shape, generator=g, dtype=torch.float64).to(device, dtype) for shape in shapes]


BATCHED = [(3, 4), (3, 4), (3, 5), (3, 5)]
CALLS = {
    "scalar_linear": (theory.scalar_linear, BATCHED),
    "scalar_linear_loss": (lambda w, v: theory.scalar_linear_loss(w, v, torch.exp), [(3, 4), (3, 4)]),
    "scalar_linear_derivatives": (theory.scalar_linear_derivatives, [(3, 4), (3, 4), (3,), (3,)]),
    "scalar_relu": (theory.scalar_relu, BATCHED),
    "scalar_linear_bias": (theory.scalar_linear_bias, [(3, 4), (3, 4), (3, 4), (3, 5), (3, 5)]),
    "block_diagonal_inputs": (theory.block_diagonal_inputs, [(3, 2, 4), (3, 2, 4), (3, 5, 2), (3, 5)]),
    "block_diagonal_outputs": (theory.block_diagonal_outputs, [(3, 2, 4), (3, 2, 4), (3, 5), (3, 5, 2)]),
    "diagonal_linear": (theory.diagonal_linear, [(3, 2), (3, 2), (3, 5, 2), (3, 5)]),
    "diagonal_linear_mixture": (theory.diagonal_linear_mixture, [(3, 4, 2), (3, 4, 2), (3, 5, 2), (3, 5)]),
}


def descent(w, v, x, y):
    return theory.dynamics.gradient_descent(theory.ScalarNet.of(w, v, x, y), 0.1, 5, momentum=0.5).net.sharpness


def flow(w, v, x, y):
    return theory.dynamics.gradient_flow(theory.ScalarNet.of(w, v, x, y), torch.ones(2)).net.sharpness


OTHERS = {
    "descent": (descent, BATCHED),
    "flow": (flow, BATCHED),
    "flow_limit": (lambda *t: theory.dynamics.flow_limit(theory.ScalarNet.of(*t)).sharpness, BATCHED),
    "largest_learning_rate": (lambda x, y: theory.dynamics.largest_learning_rate(x, y, 0.5), [(3, 5), (3, 5)]),
    "phase": (lambda *t: theory.ScalarNet.of(*t).phase.double(), BATCHED),
    "parts": (lambda *t: theory.scalar_linear_parts(*t).sharpness, BATCHED),
    "classify": (lambda e: theory.quadratic.classify(e).double(), [(3, 4)]),
    "rate": (lambda e: theory.quadratic.rate(e, 0.1, 0.5), [(3, 4)]),
    "trace_variance": (lambda H: theory.quadratic.trace_variance(H, "sphere"), [(3, 4, 4)]),
}


def everything(result: Spectrum | Tensor) -> Tensor:
    """All that a result can tell, in one row."""
    if isinstance(result, Tensor):
        return result.flatten()
    V = torch.ones(result.n, 2)
    shadows = [result.project(i, V).flatten() for i in range(len(result.labels))]
    return torch.cat([result.values.flatten(), result.expand().flatten(), *shadows])


@pytest.mark.parametrize(("function", "shapes"), (CALLS | OTHERS).values(), ids=(CALLS | OTHERS).keys())
def test_float32_is_promoted(function, shapes):
    single = everything(function(*numbers(*shapes)))
    double = everything(function(*(t.double() for t in numbers(*shapes))))
    assert single.dtype == torch.float64
    assert_close(single, double, atol=0, rtol=0)


@pytest.mark.parametrize(("function", "shapes"), (CALLS | OTHERS).values(), ids=(CALLS | OTHERS).keys())
def test_no_tensor_is_made_on_the_default_device(function, shapes):
    """Under a default device without storage, a tensor that did not follow the inputs could not be mixed with them."""
    inputs = [t.double() for t in numbers(*shapes)]
    expected = function(*inputs)
    times = torch.ones(2)
    with torch.device("meta"):
        if function is flow:
            found = theory.dynamics.gradient_flow(theory.ScalarNet.of(*inputs), times).net.sharpness
        else:
            found = function(*inputs)
        values = found if isinstance(found, Tensor) else found.values
    assert values.device.type == "cpu"
    assert_close(everything(found), everything(expected))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("function", "shapes"), (CALLS | OTHERS).values(), ids=(CALLS | OTHERS).keys())
def test_cuda_gives_the_same_numbers(function, shapes):
    here, there = numbers(*shapes, dtype=torch.float64), numbers(*shapes, dtype=torch.float64, device="cuda")
    found = function(*there)
    assert everything(found).device.type == "cuda"
    assert_close(everything(found).cpu(), everything(function(*here)), atol=1e-12, rtol=1e-12)
    if isinstance(found, Spectrum) and function is not theory.scalar_relu:
        Q = found.eigenspace(0)
        assert Q.device.type == "cuda"
