"""Self-attention over scalar tokens against autograd: heads, masks, sinks, lengths, activations, losses, degenerate points."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import assert_batch_is_loop, assert_eigenbasis, assert_same_spectrum, hessians
from strategies import normal, pick, random_stream, seeds
from torch.func import jacrev, vmap
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.attention import self_attention, self_attention_ggn, self_attention_heads
from eigenscape.theory.attention_numbers import self_attention_numbers

BATCH = 25

WEIGHTS = {
    "generic": lambda a, q, k: (a, q, k),
    "equal": lambda a, q, k: (a, q, q),
    "opposite": lambda a, q, k: (a, q, -q),
    "parallel": lambda a, q, k: (a, q, 2 * q),
    "no value": lambda a, q, k: (0 * a, q, k),
    "no query": lambda a, q, k: (a, 0 * q, k),
    "neither": lambda a, q, k: (a, 0 * q, 0 * k),
    "nothing": lambda a, q, k: (0 * a, 0 * q, 0 * k),
    "large value": lambda a, q, k: (6 * a, q, k),
    "large": lambda a, q, k: (a, 2 * q, 2 * k),
    "small": lambda a, q, k: (a, 1e-2 * q, 1e-2 * k),
    "unequal": lambda a, q, k: (a, 10 * q, 0.1 * k),
}

TOKENS = {
    "generic": lambda x: x,
    "constant": lambda x: x[..., :1].expand_as(x),
    "zero": lambda x: 0 * x,
    "one token": lambda x: x * (torch.arange(x.shape[-1]) == 0),
    "large": lambda x: 2 * x,
    "massive first": lambda x: x * (1 + 2.0 * (torch.arange(x.shape[-1]) == 0)),
    "whole numbers": lambda x: x.round(),
}

TARGETS = {
    "generic": lambda y, f: y,
    "fitted": lambda y, f: f,
    "nearly fitted": lambda y, f: f + 1e-9 * y,
    "far": lambda y, f: 10 * y,
    "zero": lambda y, f: 0 * y,
}

ACTIVATIONS = {
    None: None,
    "sigmoid": torch.sigmoid,
    "linear": lambda z: z / z.shape[-1],
    "tanh": torch.tanh,
}

masks = st.sampled_from([None, None, "causal", "random", "numbers", "per sequence"])
shapes = st.tuples(st.sampled_from([1, 2, 3, 6]), st.sampled_from([1, 1, 3]), st.sampled_from([1, 2, 3, 5]))  # d, s, L


def mask_of(kind, s, L, g):
    if kind == "numbers":
        return normal(g, L, L)
    if kind == "per sequence":
        return (normal(g, s, L, L) > 0) | torch.eye(L).bool()
    causal = torch.ones(L, L).tril().bool()
    return {None: None, "causal": causal, "random": (normal(g, L, L) > 0) | torch.eye(L).bool()}[kind]


class Case:
    """A batch of networks, and the same network written down for autograd."""

    def __init__(self, shape, heads, seed, mask=None, sink=0.0, lengths=False, activation=None, loss="half_mse"):
        (d, s, L), g = shape, random_stream(seed)
        drawn = [pick(WEIGHTS, g)(normal(g, heads), normal(g, heads, d), normal(g, heads, d)) for _ in range(BATCH)]
        self.a, self.q, self.k = (torch.stack(part) for part in zip(*drawn))
        self.X = torch.stack([pick(TOKENS, g)(normal(g, s, L)) for _ in range(BATCH)])
        self.mask, self.sink, self.loss = mask_of(mask, s, L, g), sink, loss
        self.lengths = torch.randint(1, L + 1, (s,), generator=g) if lengths else None
        self.activation = ACTIVATIONS[activation]
        f = vmap(self.outputs)(self.theta, self.X)
        self.Y = torch.stack([pick(TARGETS, g)(normal(g, s, L), fit) for fit in f])

    @property
    def theta(self):
        return torch.cat([self.a, self.q.flatten(1), self.k.flatten(1)], -1)

    def outputs(self, theta, X):
        """One network, token by token, as it would be written for training."""
        heads, d = self.q.shape[-2:]
        a, q, k = theta[:heads], *theta[heads:].reshape(2, heads, d)
        total, L = 0.0, X.shape[-1]
        for h in range(heads):
            Q, K = X[:, :, None] * q[h], X[:, :, None] * k[h]
            scores = Q @ K.mT / d**0.5
            scores = scores + self.sink * (torch.arange(L) == 0)
            if self.mask is not None:
                scores = scores + (self.mask.double().log() if self.mask.dtype == torch.bool else self.mask)
            if self.lengths is not None:
                scores = scores + (torch.arange(L) < self.lengths[:, None]).double().log()[:, None, :]
            A = torch.softmax(scores, -1) if self.activation is None else self.activation(scores)
            total = total + a[h] * (A @ X[:, :, None])[:, :, 0]
        return total

    def token_loss(self, f, y):
        return {"half_mse": lambda e: e**2 / 2, "mse": lambda e: e**2, "quartic": lambda e: e**4}[self.loss](f - y)

    def mean(self, f, Y):
        loss = self.token_loss(f, Y)
        if self.lengths is None:
            return loss.mean(-1).mean()
        return torch.stack([row[:n].mean() for row, n in zip(loss, self.lengths.tolist())]).mean()

    def hessian(self):
        return hessians(lambda theta, X, Y: self.mean(self.outputs(theta, X), Y), self.theta, self.X, self.Y)

    def ggn(self):
        def one(theta, X, Y):
            J = jacrev(self.outputs)(theta, X).flatten(0, 1)
            h = jacrev(jacrev(lambda f: self.mean(f, Y)))(self.outputs(theta, X)).reshape(len(J), len(J))
            return J.T @ h @ J

        return vmap(one)(self.theta, self.X, self.Y)

    @property
    def tol(self):
        """Autograd rounds derivatives of a saturated softmax by as much as weights enlarge them; ours agree with 60 digits."""
        return 1e-11 * max(1.0, float(self.q.square().sum(-1).max()), float(self.k.square().sum(-1).max()))

    @property
    def options(self):
        quartic = lambda f, y: (4 * (f - y) ** 3, 12 * (f - y).square().unsqueeze(-1))  # noqa: E731
        loss = quartic if self.loss == "quartic" else self.loss
        extra = {"mask": self.mask, "sink": self.sink, "lengths": self.lengths}
        return {"loss": loss, "activation": self.activation, **extra}

    def one_head(self):
        return self.a[:, 0], self.q[:, 0], self.k[:, 0], self.X, self.Y


def check_one_head(case: Case):
    H, spectrum = case.hessian(), self_attention(*case.one_head(), **case.options)
    assert_same_spectrum(spectrum, H, case.tol)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=80, deadline=None)
@example((3, 1, 5), 7436, "causal", 0.0, True)
@given(shapes, seeds(), masks, st.sampled_from([0.0, 0.0, 2.0]), st.booleans())
def test_one_head(shape, seed, mask, sink, lengths):
    check_one_head(Case(shape, 1, seed, mask, sink, lengths and mask in (None, "causal", "numbers")))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(shapes, seeds(), masks, st.sampled_from([0.0, 2.0]), st.booleans(), st.sampled_from(["half_mse", "mse", "quartic"]))
def test_one_head_in_five_thousand_cases(shape, seed, mask, sink, lengths, loss):
    check_one_head(Case(shape, 1, seed, mask, sink, lengths and mask in (None, "causal", "numbers"), loss=loss))


@settings(max_examples=25, deadline=None)
@given(shapes, seeds(), st.sampled_from(["sigmoid", "linear", "tanh"]), st.sampled_from(["half_mse", "mse", "quartic"]))
def test_any_activation_and_loss(shape, seed, activation, loss):
    check_one_head(Case(shape, 1, seed, activation=activation, loss=loss))


@settings(max_examples=25, deadline=None)
@given(shapes, st.sampled_from([1, 2, 3]), seeds(), masks, st.sampled_from(["half_mse", "quartic"]))
def test_several_heads(shape, heads, seed, mask, loss):
    case = Case(shape, heads, seed, mask, loss=loss)
    H = case.hessian()
    spectrum = self_attention_heads(case.a, case.q, case.k, case.X, case.Y, **case.options)
    assert_same_spectrum(spectrum, H, case.tol)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=15, deadline=None)
@given(shapes, seeds(), st.sampled_from(["half_mse", "quartic"]))
def test_gauss_newton(shape, seed, loss):
    case = Case(shape, 1, seed, loss=loss)
    G, spectrum = case.ggn(), self_attention_ggn(*case.one_head(), **case.options)
    assert_same_spectrum(spectrum, G, case.tol)
    assert_eigenbasis(spectrum, G)
    assert ((spectrum.values > 1e-11 * spectrum.max.clamp(min=1)[:, None]).sum(-1) <= 2).all()


@settings(max_examples=50, deadline=None)
@given(shapes, seeds(), masks)
def test_bounds(shape, seed, mask):
    """Theorem 3.5 and Remarks 3.1, B.3 and B.4 with the corrected xi, and the exact condition number."""
    case = Case(shape, 1, seed, mask)
    spectrum = self_attention(*case.one_head(), **case.options)
    numbers = self_attention_numbers(*case.one_head(), **case.options)
    slack = 1e-10 * spectrum.values.abs().amax(-1).clamp(min=1)
    outliers = spectrum.values[:, :3]
    low, high = numbers.outlier_bounds
    assert (outliers[:, -1] >= low - slack).all()
    assert (outliers[:, 0] <= high + slack).all()
    low, high = numbers.sharpness_bounds
    assert (outliers[:, 0] >= low - slack).all()
    assert (spectrum.max <= high + slack).all()
    assert_close(numbers.trace, spectrum.trace, rtol=1e-9, atol=1e-9)
    sure = numbers.gamma.abs() > 1e-6 * outliers.abs().amax(-1)
    kappa = spectrum.condition_number
    assert (kappa >= numbers.condition_bound * (1 - 1e-6))[sure].all()
    sizes = outliers.abs() if shape[0] == 1 else torch.cat([outliers, numbers.gamma[:, None]], -1).abs()
    exact = sizes.amax(-1) / sizes.amin(-1)
    regular = torch.isfinite(kappa)
    assert_close(kappa[regular], exact[regular])


@settings(max_examples=30, deadline=None)
@given(shapes, seeds())
def test_cubic(shape, seed):
    """The outliers, centred, are the roots of the corrected cubic."""
    case = Case(shape, 1, seed)
    numbers = self_attention_numbers(*case.one_head())
    z = self_attention(*case.one_head()).values[:, :3] - numbers.trace[:, None] / 3
    p, q = numbers.cubic
    scale = z.abs().amax(-1).clamp(min=1)
    assert (z.sum(-1).abs() <= 1e-10 * scale).all()
    pairwise = z[:, 0] * z[:, 1] + z[:, 0] * z[:, 2] + z[:, 1] * z[:, 2]
    assert ((pairwise - p).abs() <= 1e-10 * scale**2).all()
    assert ((z.prod(-1) + q).abs() <= 1e-10 * scale**3).all()


def test_upper_bound_of_the_remark_fails_for_negative_zeta():
    x, y = torch.tensor([[2.239, 0.147, -0.456]]), torch.tensor([[-0.225, -2.606, -11.936]])
    inputs = torch.tensor(-6.653), torch.tensor([-0.788, -0.287]), torch.tensor([-0.809, -0.295]), x, y
    spectrum, numbers = self_attention(*inputs), self_attention_numbers(*inputs)
    assert numbers.zeta < 0
    assert spectrum.max > numbers.outlier_bounds[1] + 20
    assert spectrum.max <= numbers.sharpness_bounds[1]


def test_printed_radius_misses_outliers():
    """Theorem 3.5 prints norms where it means their squares."""
    case = Case((2, 1, 3), 1, 17)
    numbers = self_attention_numbers(*case.one_head())
    a, b = case.q[:, 0].norm(dim=-1), case.k[:, 0].norm(dim=-1)
    T = numbers.zeta * (a + b) + numbers.alpha
    inside = -3 * numbers.cubic[0] - numbers.trace.square() + T.square()
    outliers = self_attention(*case.one_head()).values[:, :3]
    printed = 2 / 3 * inside.clamp(min=0).sqrt()
    assert (outliers[:, 0] > numbers.trace / 3 + printed + 1e-6).any()


def test_query_key_block_is_a_scalar_network():
    """Remark B.2, with (zeta, gamma) in the place of (s2, dx)."""
    numbers = self_attention_numbers(*Case((3, 2, 4), 1, 3).one_head())
    H = Case((3, 2, 4), 1, 3).hessian()[:, 1:, 1:]
    T, c, g, z = numbers.norms, numbers.inner, numbers.gamma, numbers.zeta
    root = 0.5 * (z.square() * T.square() + 4 * (g.square() + 2 * z * g * c)).clamp(min=0).sqrt()
    bulk = g.unsqueeze(-1).expand(-1, 2)
    expected = torch.cat([bulk, -bulk, torch.stack([z * T / 2 + root, z * T / 2 - root], -1)], -1).sort(-1).values
    assert_close(torch.linalg.eigvalsh(H), expected, atol=1e-10, rtol=1e-10)


def test_batch_is_loop():
    case = Case((3, 2, 4), 1, 5, "causal", 1.0)
    options = case.options
    assert_batch_is_loop(lambda *inputs: self_attention(*inputs, **options), *case.one_head())
    heads = Case((2, 1, 4), 2, 6)
    together = self_attention_heads(heads.a, heads.q, heads.k, heads.X, heads.Y)
    alone = self_attention_heads(heads.a[3], heads.q[3], heads.k[3], heads.X[3], heads.Y[3])
    assert_close(together.values[3], alone.values)
    V = normal(random_stream(1), alone.n, 2)
    for i in range(6, 10):
        assert_close(together.project(i, V)[3], alone.project(i, V))


def test_a_sweep_over_sinks_is_one_call():
    case = Case((2, 1, 4), 1, 8)
    a, q, k, X, Y = (part[0] for part in case.one_head())
    sinks = torch.tensor([0.0, 1.0, 5.0, 40.0])
    sweep = self_attention(a, q, k, X, Y, sink=sinks)
    for i, sink in enumerate(sinks.tolist()):
        assert_close(sweep.values[i], self_attention(a, q, k, X, Y, sink=sink).values)
    limit = torch.tensor([X[0, 0] ** 2, 0.0, 0.0], dtype=torch.float64)
    assert_close(sweep.values[-1, :3], limit, atol=1e-9, rtol=1e-9)  # every token attends to the first only


def test_gradients_of_eigenvalues():
    g = random_stream(9)
    X, Y = normal(g, 2, 4), normal(g, 2, 4)
    a, q, k = normal(g, 1)[0].requires_grad_(), normal(g, 3).requires_grad_(), normal(g, 3).requires_grad_()
    outliers = lambda a, q, k: self_attention(a, q, k, X, Y).values  # noqa: E731
    assert torch.autograd.gradcheck(outliers, (a, q, k))
    assert torch.autograd.gradgradcheck(lambda a, q, k: self_attention(a, q, k, X, Y).max, (a, q, k))
    assert torch.autograd.gradcheck(lambda a, q, k: self_attention(a, q, k, X, Y, activation=torch.sigmoid).max, (a, q, k))


def test_a_million_wide_head_costs_a_few_vectors():
    d, g = 10**6, random_stream(4)
    q, k = normal(g, d) / d**0.25, normal(g, d) / d**0.25
    spectrum = self_attention(torch.tensor(1.5), q, k, normal(g, 2, 5), normal(g, 2, 5))
    assert spectrum.multiplicities.tolist() == [1, 1, 1, d - 1, d - 1]
    z = normal(g, spectrum.n)
    assert_close(sum(spectrum.project(i, z) for i in range(5)), z)


GOOD = {
    "w_value": torch.tensor(1.0),
    "w_query": torch.ones(2),
    "w_key": torch.ones(2),
    "X": torch.ones(3, 4),
    "Y": torch.ones(3, 4),
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"w_key": torch.ones(3)}, r"w_key has shape \(3,\); expected \(\.\.\., d\) with d = 2 as in w_query\."),
        ({"Y": torch.ones(3, 5)}, r"Y has shape \(3, 5\); expected \(\.\.\., s, L\) with s = 3 as in X and L = 4 as in X\."),
        ({"X": torch.ones(4)}, r"X has shape \(4,\); expected \(\.\.\., s, L\)\."),
        ({"X": torch.ones(3, 0)}, r"X has shape \(3, 0\), which is empty along L"),
        ({"w_value": torch.tensor(torch.nan)}, "w_value holds NaN or infinity"),
        ({"mask": torch.ones(4, 3)}, r"the mask has shape \(4, 3\); expected \(4, 4\) or \(\.\.\., 3, 4, 4\)"),
        ({"mask": "causal"}, r"the mask has type str; expected \(4, 4\)"),
        ({"mask": torch.zeros(4, 4).bool()}, "a token may attend to none; expected at least one True in each row of the mask"),
        ({"mask": torch.full((4, 4), torch.nan)}, r"the mask holds NaN or \+inf; expected numbers to add to the scores"),
        ({"sink": float("nan")}, "sink holds NaN or infinity"),
        ({"lengths": torch.tensor([1, 5, 2])}, r"lengths are tensor\(\[1, 5, 2\]\); expected 3 integers from 1 to 4"),
        ({"lengths": [1, 2, 3]}, r"lengths are \[1, 2, 3\]; expected 3 integers from 1 to 4: torch\.tensor"),
        ({"loss": "hinge"}, "loss is 'hinge'; expected one of"),
        ({"activation": torch.log}, "activation holds NaN or infinity"),
    ],
)
@pytest.mark.parametrize("function", [self_attention, self_attention_ggn, self_attention_numbers])
def test_refusals(function, change, sentence):
    change = {"X": -GOOD["X"].cumsum(0) + 2} | change if change.get("activation") else change
    with pytest.raises(TheoryError, match=sentence):
        function(**(GOOD | change))


def test_refusals_of_heads():
    with pytest.raises(TheoryError, match=r"w_query has shape \(2, 2\); expected \(\.\.\., h, d\) with h = 3 as in w_value\."):
        self_attention_heads(torch.ones(3), torch.ones(2, 2), torch.ones(2, 2), torch.ones(1, 4), torch.ones(1, 4))
