"""The scalar linear network with a hidden bias against autograd, and its radicals where they apply."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_batch_is_loop, assert_eigenbasis, assert_same_spectrum, hessians
from strategies import inputs, normal, pairs, pick, random_stream, seeds, targets
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.scalar import scalar_linear
from eigenscape.theory.scalar_bias import bias_assumptions, scalar_linear_bias, scalar_linear_bias_radicals

BATCH = 25  # times 100 examples: 2,500 cases; 80 make 2,000
BIASES = {
    "generic": lambda w, v, b: b,
    "zero": lambda w, v, b: 0 * b,
    "equal to v": lambda w, v, b: v,
    "along w": lambda w, v, b: -2 * w,
    "orthogonal to v": lambda w, v, b: b - (b @ v) / (v @ v).clamp(min=1e-300) * v,
    "large": lambda w, v, b: 20 * b,
    "tiny": lambda w, v, b: 1e-9 * b,
}


def network(theta, x):
    w, v, b = theta.chunk(3)
    return w @ (v[:, None] * x + b[:, None])


def loss(theta, x, y):
    return 0.5 * (network(theta, x) - y).square().mean()


def draw(m, n, seed):
    g = random_stream(seed)
    w, v = pairs(BATCH, m, g)
    b = torch.stack([pick(BIASES, g)(p, q, normal(g, m)) for p, q in zip(w, v)])
    x = inputs(BATCH, n, g)
    fit = torch.stack([network(torch.cat(t), c) for *t, c in zip(w, v, b, x)])
    return w, v, b, x, targets(fit, g)


def dense(w, v, b, x, y):
    return hessians(loss, torch.cat([w, v, b], -1), x, y)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 2, 3, 4, 7]), st.sampled_from([1, 2, 6]), seeds())
def test_spectrum_and_eigenvectors(m, n, seed):
    w, v, b, x, y = draw(m, n, seed)
    H, spectrum = dense(w, v, b, x, y), scalar_linear_bias(w, v, b, x, y)
    assert_same_spectrum(spectrum, H)
    assert_eigenbasis(spectrum, H)


def meeting_the_assumptions(m, seed, nothing_to_learn=False):
    """A batch with orthogonal v and b of equal norm, standardised x, and targets whose moments are parallel to k."""
    g = random_stream(seed)
    Q = torch.linalg.qr(normal(g, BATCH, m, 2)).Q * torch.rand(BATCH, 1, 1, generator=g, dtype=torch.float64)
    v, b = Q.unbind(-1)
    w = normal(g, BATCH, m)
    x = normal(g, BATCH, 6)
    x = x - x.mean(-1, keepdim=True)
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    w[:4] = 0
    v[2:6], b[2:6] = 0, 0
    along = (w[6:10, None] @ Q[6:10] @ torch.linalg.pinv(Q[6:10]))[:, 0]
    w[6:10] = w[6:10] - along if m > 2 else 0  # k = 0, with any target
    fit = (w * v).sum(-1, keepdim=True) * x + (w * b).sum(-1, keepdim=True)
    way = torch.tensor([0.0, 1.0, 3.0, -1.0, 1 + 1e-9], dtype=torch.float64).repeat(5)[:, None]
    basis = torch.stack([x, torch.ones_like(x)], -1)
    noise = normal(g, BATCH, 6)
    noise = noise - (basis @ torch.linalg.lstsq(basis, noise[..., None]).solution)[..., 0]
    y = (0 if nothing_to_learn else way) * fit + noise
    if not nothing_to_learn:
        y[6:10] = normal(g, 4, 6)
        y[2:6] = normal(g, 4, 6)
        delta = torch.hypot((y[4] * x[4]).mean(), y[4].mean())
        w[4] *= delta.sqrt() / w[4].norm()  # |w|^2 = |omega| and v = b = 0: a double root of the cubic
    return w, v, b, x, y


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([2, 3, 6]), seeds(), st.booleans())
def test_radicals(m, seed, nothing_to_learn):
    w, v, b, x, y = meeting_the_assumptions(m, seed, nothing_to_learn)
    H, radicals = dense(w, v, b, x, y), scalar_linear_bias_radicals(w, v, b, x, y)
    assert_same_spectrum(radicals.spectrum, H)
    assert_eigenbasis(radicals.spectrum, H)
    trace = radicals.spectrum.trace
    assert_close(radicals.pair.mean(-1), trace / 4)
    assert_close(radicals.triple.mean(-1), trace / 6)
    assert ((radicals.triple - trace[:, None] / 6).abs() <= radicals.triple_reach[:, None] * (1 + 1e-12) + 1e-12).all()
    assert radicals.assumptions["mean yx = 0 and mean y = 0"].all() == nothing_to_learn
    assert scalar_linear_bias(w, v, b, x, y, strict=True).values.equal(radicals.spectrum.values)


def test_radicals_of_a_single_neuron():
    """|v| = |b| and <v, b> = 0 leave only v = b = 0 at m = 1."""
    x, y = torch.tensor([[1.0, -1.0]], dtype=torch.float64), torch.tensor([[3.0, 0.5]], dtype=torch.float64)
    w, zero = torch.tensor([[2.0]], dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    radicals = scalar_linear_bias_radicals(w, zero, zero, x, y)
    assert_same_spectrum(radicals.spectrum, dense(w, zero, zero, x, y))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([2, 3, 5]), seeds())
def test_degree_six_polynomial(m, seed):
    """det(l - H) = (l (l^2 - r^2))^(m-2) det(l (l^2 - r^2) I - Sxx B(l)), with B(l) the 2 x 2 matrix of the paper."""
    w, v, b, x, y = draw(m, 5, seed)
    H = dense(w, v, b, x, y)
    residual = torch.stack([network(torch.cat(t), c) for *t, c in zip(w, v, b, x)]) - y
    dx, db = (x * residual).mean(-1), residual.mean(-1)
    r2 = dx**2 + db**2
    scale = torch.linalg.matrix_norm(H, 2).clamp(min=1e-3)
    one = torch.ones_like(dx)
    Sxx = torch.stack([x.square().mean(-1), x.mean(-1), x.mean(-1), one], -1).reshape(-1, 2, 2)
    for factor in (-1.3, 0.4, 2.1):
        l = factor * scale
        rows = [[l * l, l * dx, l * db], [l * dx, l * l - db**2, dx * db], [l * db, dx * db, l * l - dx**2]]
        adjugate = torch.stack([torch.stack(row, -1) for row in rows], -2)
        gradients = torch.stack([torch.stack([v, w, 0 * w], -2), torch.stack([b, 0 * w, w], -2)], 1)  # (batch, 2, 3, m)
        B = torch.einsum("ncim,nij,ndjm->ncd", gradients, adjugate, gradients)
        cubic = l * (l * l - r2)
        P6 = torch.linalg.det(cubic[:, None, None] * torch.eye(2, dtype=torch.float64) - Sxx @ B)
        # both sides over l^(3 m): numbers of order 1
        left = torch.linalg.det(torch.eye(3 * m, dtype=torch.float64) - H / l[:, None, None])
        right = (cubic / l**3) ** (m - 2) * P6 / l**6
        assert_close(left, right, atol=1e-9, rtol=1e-9)


def test_without_bias_and_without_its_gradient_the_bulk_is_that_of_the_network_without_bias():
    """b = 0, mean x = 0 and mean y = 0 decouple the bias: its block is s w w^T."""
    g = random_stream(8)
    w, v, x, y = normal(g, 4), normal(g, 4), normal(g, 6), normal(g, 6)
    x, y = x - x.mean(), y - y.mean()
    with_bias = scalar_linear_bias(w, v, 0 * v, x, y).expand()
    extra = torch.cat([torch.zeros(3, dtype=torch.float64), (w @ w)[None]])
    assert_close(with_bias, torch.cat([scalar_linear(w, v, x, y).expand(), extra]).sort().values)


def test_batch_is_loop():
    assert_batch_is_loop(scalar_linear_bias, *draw(4, 3, 5))


def test_gradients():
    g = random_stream(4)
    tensors = tuple(normal(g, 2, 3).requires_grad_() for _ in range(5))
    assert torch.autograd.gradcheck(lambda *a: scalar_linear_bias(*a).values, tensors)
    w, v, b, x, y = (normal(g, 4).requires_grad_() for _ in range(5))
    zero = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    centred = (x - x.mean()).detach()
    assert torch.autograd.gradcheck(lambda w, v, b: scalar_linear_bias(w, v, b, centred, 0 * y).max, (w, v, zero))
    top = scalar_linear_bias(w, v, b, x, y).max
    (grad,) = torch.autograd.grad(top, w, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        grad.sum().backward()


def test_a_million_neurons_cost_a_few_vectors():
    m = 10**6
    g = random_stream(1)
    w, v, b, z = normal(g, m), normal(g, m), normal(g, m), normal(g, 3 * m)
    spectrum = scalar_linear_bias(w, v, b, normal(g, 5), normal(g, 5))
    assert spectrum.n == 3 * m
    assert_close(sum(spectrum.project(i, z) for i in range(8)), z)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"x": torch.tensor([2.0, -2.0])}, r"'mean x\^2 = 1'"),
        ({"x": torch.tensor([1.0, 1.0])}, "'mean x = 0'"),
        ({"b": torch.tensor([1.0, 1.0])}, "'<v, b> = 0'"),
        ({"b": torch.tensor([0.0, 2.0])}, r"'\|v\| = \|b\|'"),
        ({"y": torch.tensor([1.0, 2.0])}, r"'\(mean yx, mean y\) is parallel to \(<w, v>, <w, b>\)'"),
    ],
)
def test_radicals_refuse_what_they_do_not_cover(change, name):
    good = {
        "w": torch.tensor([1.0, 2.0]),
        "v": torch.tensor([1.0, 0.0]),
        "b": torch.tensor([0.0, 1.0]),
        "x": torch.tensor([1.0, -1.0]),
        "y": torch.zeros(2),
    }
    assert all(bias_assumptions(**good).values())
    scalar_linear_bias(**good, strict=True)
    with pytest.raises(
        TheoryError, match=f"the radicals were asked for, but their assumption {name} does not hold; expected all"
    ):
        scalar_linear_bias(**(good | change), strict=True)


def test_radicals_count_the_members_that_refuse():
    x, y = torch.tensor([[1.0, -1.0], [2.0, 0.0], [1.0, -1.0]]), torch.zeros(3, 2)
    e = torch.eye(2)
    with pytest.raises(TheoryError, match=r"'mean x\^2 = 1' does not hold in 1 of 3 members"):
        scalar_linear_bias_radicals(e[0], e[0], e[1], x, y)


def test_refusal():
    with pytest.raises(TheoryError, match=r"b has shape \(1,\); expected \(..., m\) with m = 2 as in w\."):
        scalar_linear_bias(torch.ones(2), torch.ones(2), torch.ones(1), torch.ones(1), torch.ones(1))
