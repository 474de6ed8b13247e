"""The scalar two-layer linear network against autograd, at every degenerate point."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_batch_is_loop, assert_eigenbasis, assert_same_spectrum, hessians
from strategies import INPUTS, WEIGHTS, inputs, normal, pairs, random_stream, seeds, targets
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.scalar import (
    derivatives,
    scalar_linear,
    scalar_linear_derivatives,
    scalar_linear_loss,
    scalar_linear_parts,
)
from eigenscape.theory.scalar_net import Phase, ScalarNet
from eigenscape.theory.scalar_products import scalar_products

BATCH = 25  # times 100 examples: 2,500 cases; 80 make 2,000
widths = st.sampled_from([1, 2, 3, 6])
samples = st.sampled_from([1, 2, 5])


def loss(theta, x, y):
    v, w = theta.chunk(2)
    return 0.5 * ((w @ v) * x - y).square().mean()


def draw(m, n, seed, batch=BATCH):
    g = random_stream(seed)
    w, v = pairs(batch, m, g)
    x = inputs(batch, n, g)
    return w, v, x, targets((w * v).sum(-1, keepdim=True) * x, g)


def dense(w, v, x, y):
    return hessians(loss, torch.cat([v, w], -1), x, y)


@settings(max_examples=100, deadline=None)
@given(widths, samples, seeds())
def test_spectrum_and_eigenvectors(m, n, seed):
    w, v, x, y = draw(m, n, seed)
    H, spectrum = dense(w, v, x, y), scalar_linear(w, v, x, y)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=50, deadline=None)
@given(widths, samples, seeds())
def test_facts_about_all_points(m, n, seed):
    """Interlacing, the lower bound, the trace, and the sign of the small outlier by phase."""
    w, v, x, y = draw(m, n, seed)
    spectrum, net = scalar_linear(w, v, x, y), ScalarNet.of(w, v, x, y)
    slack = 1e-12 * spectrum.max.clamp(min=1)
    large, small = spectrum.values[:, 0], spectrum.values[:, 1]
    bulk = net.bulk
    assert (small.abs() <= bulk + slack).all()
    assert (bulk <= large + slack).all()
    assert (spectrum.min >= net.lower_bound - slack).all()
    assert_close(spectrum.min, torch.minimum(small, -bulk) if m > 1 else small)
    assert_close(spectrum.trace, net.trace)
    assert_close(large, net.sharpness)
    assert ((small - net.small_outlier).abs() <= slack).all()
    assert_close(net.loss, 0.5 * (net.c[:, None] * x - y).square().mean(-1))
    assert (small[net.phase == Phase.LATE] >= -slack[net.phase == Phase.LATE]).all()
    assert (small[net.phase != Phase.LATE] <= slack[net.phase != Phase.LATE]).all()
    parts = scalar_linear_parts(w, v, x, y)
    assert_close(parts.sharpness, large)
    assert_close(parts.overall, net.trace)
    for part in (parts.imbalance, parts.non_collinearity, parts.deviation):
        assert (part >= 0).all()


def test_each_part_of_the_sharpness_is_what_its_name_says():
    w, x, y = torch.tensor([3.0, 0.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])
    same_norm = scalar_linear_parts(w, torch.tensor([0.0, 3.0]), x, y)
    assert same_norm.imbalance == 0
    assert same_norm.non_collinearity > 0
    collinear = scalar_linear_parts(w, torch.tensor([-1.0, 0.0]), x, y)
    assert collinear.non_collinearity == 0
    assert collinear.imbalance > 0
    # the deviation vanishes where c is half the target: mean yx / (2 s2) = 1.5 / 5
    halfway = scalar_linear_parts(torch.tensor([0.3, 0.0], dtype=torch.float64), torch.tensor([1.0, 5.0]), x, y)
    assert halfway.deviation < 1e-30


@pytest.mark.parametrize("target", [-2.0, 0.0, 2.0])
def test_phases_by_the_ratio_of_c_to_the_target(target):
    x = torch.ones(1)
    ways = {-0.5: Phase.EARLY, 0.0: Phase.EARLY, 0.3: Phase.EARLY, 0.5: Phase.LATE, 1.0: Phase.LATE, 1.1: Phase.DIVERGENT}
    for way, phase in ways.items():
        if target == 0:
            net = ScalarNet.of(torch.tensor([way]), torch.ones(1), x, torch.zeros(1))
            assert net.phase == (Phase.DIVERGENT if way else Phase.LATE)
        else:
            net = ScalarNet.of(torch.tensor([way * target]), torch.ones(1), x, torch.tensor([target]))
            assert net.phase == phase


def test_bulk_eigenvectors_follow_the_sign_of_the_slope():
    """Theorem 3.3 takes the sign of the eigenvalue alone, which fails where dx < 0."""
    w, v = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.0, 1.0])
    x, y = torch.ones(1), torch.tensor([20.0])
    spectrum = scalar_linear(w, v, x, y)
    assert spectrum.values[2] < 0
    Q = spectrum.eigenspace(2)
    assert_close(Q[:3], Q[3:])
    assert_close((w + v).double() @ Q[:3], torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)


@settings(max_examples=80, deadline=None)
@given(widths, seeds(), st.sampled_from(["logistic", "exp", "quartic", "sine", "linear", "huber"]))
def test_any_loss(m, seed, kind):
    g = random_stream(seed)
    w, v = pairs(BATCH, m, g)
    w, v = w / (1 + w.norm(dim=-1, keepdim=True)), v / (1 + v.norm(dim=-1, keepdim=True))
    a = normal(g, BATCH)
    of = {
        "logistic": lambda c, a: torch.nn.functional.softplus(a * c),
        "exp": lambda c, a: torch.exp(-a * c),
        "quartic": lambda c, a: (c - a) ** 4,
        "sine": lambda c, a: torch.sin(a + 2 * c),
        "linear": lambda c, a: a * c,
        "huber": lambda c, a: torch.sqrt(1 + (c - a) ** 2),
    }[kind]

    H = hessians(lambda t, a: of(t[m:] @ t[:m], a), torch.cat([v, w], -1), a)
    spectrum = scalar_linear_loss(w, v, lambda c: of(c, a))
    given = scalar_linear_derivatives(w, v, *derivatives(lambda c: of(c, a), (w * v).sum(-1)))
    assert given.values.equal(spectrum.values)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


@settings(max_examples=80, deadline=None)
@given(widths, st.sampled_from([1, 2, 3]), seeds())
def test_several_products_under_any_loss(m, groups, seed):
    """A quadratic loss of the products with a random, also indefinite or singular, second derivative."""
    g = random_stream(seed)
    w, v = (t.reshape(BATCH, groups, m) for t in pairs(BATCH * groups, m, g))
    A = normal(g, BATCH, groups, groups)
    C, at = A + A.mT, normal(g, BATCH, groups)
    C[::3] = 0
    at[::4] = 0

    def quadratic(theta, C, at):
        vw = theta.reshape(groups, 2, m)
        c = (vw[:, 0] * vw[:, 1]).sum(-1)
        return at @ c + 0.5 * c @ C @ c

    c = (w * v).sum(-1)
    gradient = at + (C @ c.unsqueeze(-1)).squeeze(-1)
    H = hessians(quadratic, torch.stack([v, w], -2).flatten(1), C, at)
    spectrum = scalar_products(w, v, gradient, C)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


def test_batch_is_loop():
    w, v, x, y = draw(4, 3, 7)
    assert_batch_is_loop(scalar_linear, w, v, x, y)
    assert_batch_is_loop(lambda w, v: scalar_linear_loss(w, v, torch.exp), w / 100, v / 100)


def test_data_is_shared_or_per_member():
    w, v, x, y = draw(3, 4, 11)
    shared = scalar_linear(w, v, x[0], y[0])
    repeated = scalar_linear(w, v, x[:1].expand_as(x), y[:1].expand_as(y))
    assert_close(shared.values, repeated.values)
    many_data = scalar_linear(w[0], v[0], x, y)
    assert many_data.values.shape == (BATCH, 4)
    assert_eigenbasis(many_data, dense(w[:1].expand_as(w), v[:1].expand_as(v), x, y))


def test_gradients():
    g = random_stream(3)
    w, v, x, y = (normal(g, 2, 4).requires_grad_() for _ in range(4))
    assert torch.autograd.gradcheck(lambda *a: scalar_linear(*a).values, (w, v, x, y))
    assert torch.autograd.gradgradcheck(lambda *a: scalar_linear(*a).max, (w, v, x, y))
    assert torch.autograd.gradcheck(lambda w, v: scalar_linear_loss(w, v, torch.exp).max, (w, v))
    C = normal(g, 2, 2)
    products = lambda w, v: scalar_products(w, v, w[:, 0], C + C.T).values[..., :4]  # noqa: E731
    assert torch.autograd.gradcheck(products, (w, v))


def test_gradient_of_the_sharpness_is_finite_and_right_at_degenerate_points():
    x, y = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([1.0, 0.5], dtype=torch.float64)
    e = torch.eye(3, dtype=torch.float64)
    for w, v in [(e[0], e[0]), (e[0], -e[0]), (0 * e[0], e[1]), (e[0], e[1])]:
        w, v = w.clone().requires_grad_(), v.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda w, v: scalar_linear(w, v, x, y).max, (w, v))
    w, v = torch.zeros(2, dtype=torch.float64).requires_grad_(), torch.zeros(2, dtype=torch.float64).requires_grad_()
    scalar_linear(w, v, x, 0 * y).max.backward()
    assert w.grad.isfinite().all()


def test_a_million_neurons_cost_a_few_vectors():
    """No basis is formed: projecting leaves tensors of the size of the network only."""
    m = 10**6
    g = random_stream(1)
    w, v, z = normal(g, m), normal(g, m), normal(g, 2 * m)
    x, y = normal(g, 5), normal(g, 5)
    spectrum = scalar_linear(w, v, x, y)
    assert spectrum.n == 2 * m
    assert spectrum.multiplicities.tolist() == [1, 1, m - 1, m - 1]
    whole = sum(spectrum.project(i, z) for i in range(4))
    assert_close(whole, z)
    bulk = spectrum.project(2, z)
    assert_close(bulk[:m], bulk[m:])
    assert abs((w + v) @ bulk[:m]) < 1e-9 * (w + v).norm() * bulk.norm()


def test_float32_and_integers_are_promoted():
    exact = scalar_linear(torch.tensor([1, 2]), torch.tensor([3, 1]), torch.tensor([1, 2]), torch.tensor([0, 1]))
    single = scalar_linear(
        torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]), torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0])
    )
    assert exact.values.dtype == single.values.dtype == torch.float64
    assert exact.values.equal(single.values)


def test_tiny_and_huge_weights_keep_their_eigenvectors():
    x, y = torch.ones(1), torch.ones(1)
    for scale in (1e-200, 1e-150, 1e60):
        w, v = scale * normal(random_stream(5), 3), scale * normal(random_stream(6), 3)
        spectrum = scalar_linear(w, v, x, y)
        assert_eigenbasis(spectrum, dense(w[None], v[None], x[None].double(), y[None].double())[0])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"v": torch.ones(3)}, r"v has shape \(3,\); expected \(..., m\) with m = 2 as in w\."),
        ({"y": torch.ones(3)}, r"y has shape \(3,\); expected \(..., n\) with n = 4 as in x\."),
        ({"x": torch.ones(0), "y": torch.ones(0)}, r"x has shape \(0,\), which is empty along n; expected at least one\."),
        ({"w": torch.tensor([1.0, torch.nan])}, "w holds NaN or infinity; expected finite numbers"),
        ({"w": [1.0, 2.0]}, "w is a list; expected a tensor"),
        ({"w": torch.full((2,), 1e200, dtype=torch.float64)}, "the spectrum overflows float64; expected smaller weights"),
    ],
)
def test_refusals(change, sentence):
    good = {"w": torch.ones(2), "v": torch.ones(2), "x": torch.ones(4), "y": torch.ones(4)}
    with pytest.raises(TheoryError, match=sentence):
        scalar_linear(**(good | change))


def test_other_refusals():
    one = torch.ones(1, 2)
    with pytest.raises(TheoryError, match=r"hessian is not symmetric: max \|C - C\^T\| is 1 where max \|C\| is 1"):
        scalar_products(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2), torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(TheoryError, match=r"v has shape \(1,\); expected \(..., m\) with m = 2 as in w"):
        scalar_linear_derivatives(one[0], one[0, :1], one[0, 0], one[0, 0])
    with pytest.raises(TheoryError, match="plus or minus is negative; expected squared norms"):
        ScalarNet.from_norms(-torch.ones(1), torch.ones(1), torch.ones(1), torch.ones(1))
    with pytest.raises(TheoryError, match="slope holds NaN or infinity"):
        scalar_linear_loss(one[0], one[0], lambda c: (c - 2).sqrt())
    with pytest.raises(TheoryError, match=r"the vector has shape \(3,\); expected \(4,\), \(4, k\) or \(\*batch, 4, k\)"):
        scalar_linear(one[0], one[0], one[0], one[0]).project(2, torch.ones(3))


def test_tables_cover_what_the_theorems_exclude():
    assert {"equal", "opposite", "w zero", "v zero", "both zero"} <= set(WEIGHTS)
    assert {"zero", "ties", "some zero"} <= set(INPUTS)
