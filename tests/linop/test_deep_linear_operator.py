"""The moment operator is the Hessian that autograd finds from the samples."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenscape.core import OperatorError
from eigenscape.linop import DeepLinear

DTYPE = torch.float64

# Widths with every relation between neighbours: narrow, wide, bottleneck, depth 1, output wider than everything.
WIDTHS = [(1, 1), (3, 2), (2, 4), (1, 1, 1), (2, 3, 2), (4, 1, 3), (3, 2, 4), (2, 3, 3, 1), (4, 2, 1, 3), (2, 2, 3, 2, 2)]


def network(widths, n, seed, biased=(), batch=()):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=DTYPE)

    weights = [draw(*batch, b, a) for a, b in pairwise(widths)]
    biases = [draw(*batch, d) if l in biased else None for l, d in enumerate(widths[1:])] if biased else None
    return weights, biases, draw(n, widths[0]) + 0.3, draw(n, widths[-1])


def loss_of(op, X, Y):
    def loss(theta):
        parts, H = op.unflatten(theta), X
        for l in range(len(op._shapes)):
            H = H @ parts[f"{l}.weight"].mT
            if f"{l}.bias" in parts:
                H = H + parts[f"{l}.bias"]
        return (H - Y).square().sum() / (2 * len(X))

    return loss


def flat(weights, biases):
    biases = biases or [None] * len(weights)
    return torch.cat([t.flatten(-k) for W, b in zip(weights, biases) for t, k in ((W, 2), (b, 1)) if t is not None], -1)


def residuals_jacobian(op, X, theta):
    zero = torch.zeros(len(X), op._shapes[-1][0], dtype=DTYPE)

    def outputs(t):
        parts, H = op.unflatten(t), X
        for l in range(len(op._shapes)):
            H = H @ parts[f"{l}.weight"].mT
            if f"{l}.bias" in parts:
                H = H + parts[f"{l}.bias"]
        return (H - zero).flatten()

    return torch.func.jacrev(outputs)(theta)


@st.composite
def cases(draw):
    widths = draw(st.sampled_from(WIDTHS))
    biased = tuple(sorted(draw(st.sets(st.integers(0, len(widths) - 2)))))
    return widths, draw(st.sampled_from([1, 2, 7])), draw(st.integers(0, 10**6)), biased


def check(case):
    widths, n, seed, biased = case
    weights, biases, X, Y = network(widths, n, seed, biased)
    op = DeepLinear.from_data(weights, X, Y, biases=biases)
    theta, loss, eye = flat(weights, biases), loss_of(op, X, Y), torch.eye(op.n, dtype=DTYPE)
    H = torch.func.jacrev(torch.func.grad(loss))(theta)
    scale = max(1.0, H.abs().max().item())
    assert (op @ eye - H).abs().max() <= 1e-12 * scale
    g = torch.func.grad(loss)(theta)
    assert (op.gradient() - g).abs().max() <= 1e-12 * max(1.0, g.abs().max().item())
    value = loss(theta)
    assert abs(op.loss(Y.square().sum(1).mean()) - value) <= 1e-12 * max(1.0, value.item())
    J = residuals_jacobian(op, X, theta)
    G = DeepLinear.from_data(weights, X, Y, biases=biases, kind="ggn") @ eye
    assert (G - J.mT @ J / n).abs().max() <= 1e-12 * scale


@settings(max_examples=100, deadline=None, derandomize=True)
@given(cases())
def test_operator_is_the_hessian_of_the_samples(case):
    check(case)


@pytest.mark.slow
@settings(max_examples=2500, deadline=None, derandomize=True)
@given(cases())
def test_operator_is_the_hessian_of_the_samples_many(case):
    check(case)


@pytest.mark.parametrize("kind", ["hessian", "ggn"])
@pytest.mark.parametrize("biased", [(), (0, 2)])
def test_stack_is_its_members(kind, biased):
    weights, biases, X, Y = network((3, 4, 2, 3), 6, 0, biased, batch=(2, 5))
    stack = DeepLinear.from_data(weights, X, Y, biases=biases, kind=kind)
    V = torch.randn(2, 5, stack.n, 3, generator=torch.Generator().manual_seed(1), dtype=DTYPE)
    product, gradient, loss = stack @ V, stack.gradient(), stack.loss(1.0)
    assert stack.shape == (2, 5, stack.n, stack.n)
    for i, j in [(0, 0), (1, 3)]:
        own = None if biases is None else [b if b is None else b[i, j] for b in biases]
        one = DeepLinear.from_data([W[i, j] for W in weights], X, Y, biases=own, kind=kind)
        torch.testing.assert_close(product[i, j], one @ V[i, j], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient[i, j], one.gradient(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(loss[i, j], one.loss(1.0), rtol=1e-12, atol=1e-12)


def test_each_member_may_have_its_own_moments():
    weights, _, X, Y = network((3, 2, 2), 6, 0, batch=(2,))
    scales = torch.tensor([1.0, 3.0], dtype=DTYPE)[:, None, None]
    stack = DeepLinear.from_data(weights, scales * X, Y.expand(2, -1, -1))
    v = torch.ones(2, stack.n, dtype=DTYPE)
    one = DeepLinear.from_data([W[1] for W in weights], 3 * X, Y)
    torch.testing.assert_close((stack @ v)[1], one @ v[1])


def test_one_tensor_may_serve_two_layers():
    W = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=DTYPE)
    b = torch.tensor([0.1, 0.2], dtype=DTYPE)
    X, Y = torch.eye(2, dtype=DTYPE), torch.ones(2, 2, dtype=DTYPE)
    op = DeepLinear.from_data([W, W], X, Y, biases=[b, b])
    H = torch.func.jacrev(torch.func.grad(loss_of(op, X, Y)))(flat([W, W], [b, b]))
    torch.testing.assert_close(op @ torch.eye(op.n, dtype=DTYPE), H)


def test_layout_is_that_of_a_sequential():
    weights, biases, X, Y = network((3, 2, 2), 4, 0, biased=(0,))
    op = DeepLinear.from_data(weights, X, Y, biases=biases)
    assert op.layout is not None
    assert (op.layout.names, op.layout.shapes) == (("0.weight", "0.bias", "1.weight"), ((2, 3), (2,), (2, 2)))
    eye = torch.eye(op.n, dtype=DTYPE)
    torch.testing.assert_close(op.block("1.weight") @ torch.eye(4, dtype=DTYPE), (op @ eye)[8:, 8:])
    assert "deep linear hessian" in repr(op)


def test_cost_forgets_the_samples():
    weights, _, X, Y = network((3, 2, 2), 4, 0)
    few, many = DeepLinear.from_data(weights, X, Y), DeepLinear.from_data(weights, X.repeat(5, 1), Y.repeat(5, 1))
    v = torch.ones(few.n, dtype=DTYPE)
    torch.testing.assert_close(few @ v, many @ v)


eye2 = torch.eye(2, dtype=DTYPE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DeepLinear([], eye2, eye2), r"list of weights is empty; expected at least one matrix"),
        (lambda: DeepLinear([eye2, eye2[:, :1]], eye2, eye2), r"weight 2 has shape \(2, 1\); expected \('d', 2\)"),
        (lambda: DeepLinear([eye2[0]], eye2, eye2), r"weight 1 has shape \(2,\); expected \(\*batch, d_1, d_0\)"),
        (lambda: DeepLinear([eye2, eye2.float()], eye2, eye2), r"weight 2 is torch.float32 on cpu; expected torch.float64"),
        (lambda: DeepLinear([eye2], eye2, eye2[:1]), r"Syx has shape \(1, 2\); expected \(2, 2\)"),
        (lambda: DeepLinear([eye2], eye2.float(), eye2), r"Sxx is torch.float32 on cpu, the weights torch.float64"),
        (lambda: DeepLinear([eye2], eye2, eye2, biases=[eye2[0]]), r"expected \(3, 3\), the moments of \(x; 1\)"),
        (lambda: DeepLinear([eye2], eye2, eye2, biases=[]), r"0 biases came with 1 weights; expected one each"),
        (lambda: DeepLinear([eye2], eye2, eye2, biases=[eye2]), r"bias 1 has shape \(2, 2\); expected \(2,\)"),
        (lambda: DeepLinear([eye2], eye2, eye2, kind="fisher"), r"""kind is 'fisher'; expected "hessian" or "ggn"."""),
        (
            lambda: DeepLinear.from_data([eye2], eye2, eye2[:1]),
            r"shapes \(2, 2\) and \(1, 2\); expected \(n, d0\) and \(n, dL\)",
        ),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(OperatorError, match=message):
        call()
