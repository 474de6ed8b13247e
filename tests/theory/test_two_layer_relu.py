"""The two-layer ReLU network against autograd: by activation pattern, in parts, and in the bounds between them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_eigenbasis, assert_same_spectrum, hessians
from strategies import normal, random_stream, seeds
from torch.func import jacrev, vmap
from torch.nn.functional import leaky_relu
from torch.testing import assert_close
from two_factor_cases import biases, criterion, derivatives_of, factors, network_loss, samples, several, sizes, targets

from eigenscape.core import TheoryError
from eigenscape.theory.factors import FactorLayout
from eigenscape.theory.scalar_relu import scalar_relu
from eigenscape.theory.two_layer import two_layer_linear
from eigenscape.theory.two_layer_relu import two_layer_relu
from eigenscape.theory.two_layer_relu_parts import two_layer_relu_bounds, two_layer_relu_functional, two_layer_relu_ggn

BATCH = 20
slopes = st.sampled_from([0.0, 0.0, 0.0, 0.1, 1.0])
losses = st.sampled_from(["mse", "cross_entropy", "quartic", "swish"])


class Case:
    """A batch of networks, and their derivatives by autograd."""

    def __init__(self, size, with_bias, slope, seed, loss="half_mse"):
        (K, m, D, n), g = size, random_stream(seed)
        self.loss, self.slope = loss, slope
        self.W, self.V = factors(BATCH, K, m, D, g)
        self.X = samples(BATCH, n, D, g)
        b = normal(g, BATCH, m) if with_bias[0] else None
        c = normal(g, BATCH, K) if with_bias[1] else None
        self.bias = {"hidden_bias": b, "output_bias": c}
        self.parameters = FactorLayout(K, m, D, b is not None, c is not None)
        hidden = self.X @ self.V.mT if b is None else self.X @ self.V.mT + b.unsqueeze(-2)
        fit = self.act(hidden) @ self.W.mT
        fit = fit if c is None else fit + c.unsqueeze(-2)
        self.Y = torch.randint(K, (BATCH, n), generator=g) if loss == "cross_entropy" else targets(fit, self.X, g)
        unsure = (hidden != 0) & (hidden.abs() < 1e-12)  # rounding decides which side of the kink it is on
        self.sure = ~unsure.flatten(1).any(-1)

    def act(self, z):
        return torch.relu(z) if self.slope == 0 else leaky_relu(z, self.slope)

    @property
    def theta(self):
        parts = [self.V.flatten(-2), self.bias["hidden_bias"], self.W.flatten(-2), self.bias["output_bias"]]
        return torch.cat([p for p in parts if p is not None], -1)

    @property
    def arguments(self):
        loss = derivatives_of(self.loss) if self.loss in ("quartic", "swish") else self.loss
        return {"loss": loss, "negative_slope": self.slope, **self.bias}

    def hessian(self):
        return hessians(network_loss(self.parameters, self.loss, self.act), self.theta, self.X, self.Y)

    def ggn(self):
        network = network_loss(self.parameters, "outputs", self.act)
        sample = lambda f, y: criterion(self.loss)(f[None], y[None])  # noqa: E731

        def one(theta, X, Y):
            J = jacrev(network)(theta, X, Y)
            return (J.mT @ (vmap(jacrev(jacrev(sample)))(network(theta, X, Y), Y) @ J)).mean(0)

        return vmap(one)(self.theta, self.X, self.Y)

    def functional(self):
        """Hessian of the outputs weighted by the fixed derivatives of the loss."""
        network = network_loss(self.parameters, "outputs", self.act)
        d1 = vmap(jacrev(lambda f, y: criterion(self.loss)(f, y)))(vmap(network)(self.theta, self.X, self.Y), self.Y)
        return hessians(lambda theta, X, Y, d1: (network(theta, X, Y) * d1).sum(), self.theta, self.X, self.Y, d1)

    def members(self):
        for i in self.sure.nonzero()[:, 0].tolist():
            bias = {name: None if b is None else b[i] for name, b in self.bias.items()}
            yield i, (self.W[i], self.V[i], self.X[i], self.Y[i]), self.arguments | bias


def check(case: Case):
    H = case.hessian()
    assert_same_spectrum(_kept(two_layer_relu(case.W, case.V, case.X, case.Y, **case.arguments), case.sure), H[case.sure])
    for i, inputs, arguments in list(case.members())[:4]:
        assert_eigenbasis(two_layer_relu(*inputs, **arguments), H[i])


def _kept(spectrum, sure):
    return type(spectrum)(spectrum.values[sure], spectrum.multiplicities[sure], spectrum.labels)


@settings(max_examples=20, deadline=None)
@given(sizes, biases, slopes, seeds())
def test_squared_errors(size, with_bias, slope, seed):
    check(Case(size, with_bias, slope, seed))


@settings(max_examples=10, deadline=None)
@given(sizes, biases, slopes, losses, seeds())
def test_any_loss(size, with_bias, slope, loss, seed):
    check(Case(size, with_bias, slope, seed, loss))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(sizes, biases, slopes, st.sampled_from(["half_mse", "half_mse", "mse", "cross_entropy", "quartic", "swish"]), seeds())
def test_three_thousand_cases(size, with_bias, slope, loss, seed):
    check(Case(size, with_bias, slope, seed, loss))


@settings(max_examples=25, deadline=None)
@given(sizes, biases, slopes, seeds())
def test_functional_hessian_and_gauss_newton(size, with_bias, slope, seed):
    case = Case(size, with_bias, slope, seed)
    G = case.ggn()[case.sure]
    functional = two_layer_relu_functional(case.W, case.V, case.X, case.Y, **case.arguments)
    assert_same_spectrum(_kept(functional, case.sure), case.functional()[case.sure])
    arguments = {name: value for name, value in case.arguments.items() if name != "loss"}
    assert_same_spectrum(_kept(two_layer_relu_ggn(case.W, case.V, case.X, **arguments), case.sure), G)


@settings(max_examples=25, deadline=None)
@given(sizes, biases, slopes, st.sampled_from(["half_mse", "cross_entropy"]), seeds())
def test_certified_gap_to_gauss_newton(size, with_bias, slope, loss, seed):
    case = Case(size, with_bias, slope, seed, loss)
    H, G = (torch.linalg.eigvalsh(A)[case.sure] for A in (case.hessian(), case.ggn()))
    bounds = two_layer_relu_bounds(case.W, case.V, case.X, case.Y, **case.arguments)
    gap, trace = bounds.gap[case.sure], bounds.trace[case.sure]
    slack = 1e-11 * H.abs().amax(-1).clamp(min=1)
    assert ((H[:, -1] - G[:, -1]).abs() <= gap + slack).all()
    assert (H[:, 0] >= -gap - slack).all()
    assert ((H.sum(-1) - trace).abs() <= slack * H.shape[-1]).all()
    assert (G.gt(slack.unsqueeze(-1)).sum(-1) <= bounds.ggn_rank).all()


def test_one_input_is_two_cells():
    g = random_stream(1)
    w, v, x, y = (normal(g, k) for k in (12, 12, 5, 5))
    spectrum = two_layer_relu(w[None], v[:, None], x[:, None], y[:, None])
    assert_close(spectrum.expand(), scalar_relu(w, v, x, y).expand(), atol=1e-12, rtol=1e-12)
    assert spectrum.labels.count("outlier") + spectrum.labels.count("zero") <= 2 * 4 + 2


def test_slope_one_is_the_linear_network():
    W, V, X, Y = several(2, (2, 7), (7, 3), (4, 3), (4, 2))
    linear = two_layer_linear(W, V, X, Y)
    same = two_layer_relu(W, V, X, Y, negative_slope=1.0)
    assert_close(same.expand(), linear.expand(), atol=1e-12, rtol=1e-12)


def test_shared_patterns_make_a_small_matrix():
    """Two inputs and three samples cut the plane into six cones: the matrix does not grow with the width."""
    kept, angle = [], torch.arange(3, dtype=torch.float64) * torch.pi / 3
    X = torch.stack([angle.cos(), angle.sin()], -1)
    for m in (100, 1000):
        W, V, Y = several(3, (1, m), (m, 2), (3, 1))
        spectrum = two_layer_relu(W, V, X, Y)
        assert spectrum.n == 3 * m
        kept.append(sum(label != "bulk" for label in spectrum.labels))
    assert kept[0] == kept[1] <= 6 * 8


def test_dead_neurons_add_zeros():
    W, V = torch.ones(2, 3), torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    spectrum = two_layer_relu(W, V, torch.ones(4, 2), torch.zeros(4, 2))
    alone = two_layer_relu(W[:, :1], V[:1], torch.ones(4, 2), torch.zeros(4, 2))
    expected = torch.cat([alone.expand(), torch.zeros(2 * (2 + 2), dtype=torch.float64)]).sort().values
    assert_close(spectrum.expand(), expected, atol=1e-13, rtol=0)


def test_gradients_of_eigenvalues():
    W, V, X, Y = (A.requires_grad_() for A in several(5, (2, 5), (5, 2), (4, 2), (4, 2)))
    assert torch.autograd.gradcheck(lambda *a: two_layer_relu(*a).max, (W, V, X, Y))
    assert torch.autograd.gradcheck(lambda *a: two_layer_relu_bounds(*a).gap, (W, V, X, Y))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"V": torch.ones(3, 2)}, r"V has shape \(3, 2\); expected \(\.\.\., m, D\) with m = 4 as in W\."),
        ({"X": torch.ones(0, 2)}, r"X has shape \(0, 2\), which is empty along n"),
        ({"Y": torch.full((5, 3), torch.nan)}, "Y holds NaN or infinity"),
        ({"loss": "cross_entropy", "Y": torch.tensor([0, 1, 2, 3, 0])}, "Y holds class 3; expected classes from 0 to 2"),
        ({"negative_slope": float("nan")}, "negative_slope is nan; expected a finite number"),
    ],
)
@pytest.mark.parametrize("function", [two_layer_relu, two_layer_relu_functional, two_layer_relu_bounds])
def test_refusals(function, change, sentence):
    good = {"W": torch.ones(3, 4), "V": torch.ones(4, 2), "X": torch.ones(5, 2), "Y": torch.ones(5, 3)}
    with pytest.raises(TheoryError, match=sentence):
        function(**(good | change))


def test_gauss_newton_alone_is_for_squared_errors():
    with pytest.raises(TheoryError, match="loss is 'cross_entropy'; expected half_mse or mse"):
        two_layer_relu_ggn(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1), loss="cross_entropy")
