"""Rates against iterated steps, definiteness against functions, variances against enumeration and sampling."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import normal, random_stream, seeds
from torch.func import jacrev
from torch.testing import assert_close

from eigenscape.core import Spectrum, TheoryError
from eigenscape.theory import quadratic, scalar_linear
from eigenscape.theory.quadratic import CriticalPoint

BATCH = 100  # times 25 examples: 2,500 cases


def step_matrices(values, lr, beta):
    """One step on (theta, theta_old), per eigenvalue."""
    rows = [1 + beta - lr * values, -beta, torch.ones_like(values), torch.zeros_like(values)]
    return torch.stack(torch.broadcast_tensors(*rows), -1).unflatten(-1, (2, 2))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 5]), seeds())
def test_contraction_is_the_spectral_radius_of_a_step(n, seed):
    g = random_stream(seed)
    values = 3 * normal(g, BATCH, n)
    values[::4, 0] = 0
    lr, beta = torch.rand(2, BATCH, generator=g, dtype=torch.float64)
    beta[::3] = 0
    radius = torch.linalg.eigvals(step_matrices(values, lr[:, None], beta[:, None])).abs().amax(-1)
    # two roots next to each other: eigvals sees sqrt(eps)
    assert_close(quadratic.contraction(values, lr, beta), radius, atol=1e-7, rtol=0)
    assert_close(quadratic.contraction(values, lr), (1 - lr[:, None] * values).abs())
    assert_close(quadratic.rate(values, lr, beta), radius.amax(-1), atol=1e-7, rtol=0)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 5]), seeds())
def test_the_best_steps_are_best(n, seed):
    """The stated rate is reached, and no other learning rate or momentum does better."""
    g = random_stream(seed)
    values = normal(g, BATCH, n).exp()
    kappa = values.amax(-1) / values.amin(-1)
    plain, ball = quadratic.tune(values), quadratic.tune(values, momentum=True)
    assert_close(plain.rate, (kappa - 1) / (kappa + 1))
    assert_close(quadratic.rate(values, plain.lr), plain.rate)
    assert_close(quadratic.rate(values, 1 / values.amax(-1)), 1 - 1 / kappa)
    assert_close(ball.rate, (kappa.sqrt() - 1) / (kappa.sqrt() + 1))
    assert_close(quadratic.rate(values, ball.lr, ball.momentum), ball.rate, atol=1e-6, rtol=0)  # double roots
    for _ in range(5):
        lr, beta = (1 + 0.2 * normal(g, BATCH)).abs() * plain.lr, torch.rand(BATCH, generator=g, dtype=torch.float64)
        assert (quadratic.rate(values, lr) >= plain.rate - 1e-12).all()
        assert (quadratic.rate(values, lr, beta) >= ball.rate - 1e-12).all()


def test_iterates_shrink_by_the_rate():
    g = random_stream(1)
    Q = torch.linalg.qr(normal(g, 4, 4)).Q
    values = torch.tensor([5.0, 3.0, 1.0, 0.5], dtype=torch.float64)
    H, theta = Q @ torch.diag(values) @ Q.T, normal(g, 4)
    best = quadratic.tune(values)
    norms = []
    for _ in range(60):
        norms.append(theta.norm())
        theta = theta - best.lr * (H @ theta)
    assert_close(norms[-1] / norms[-2], best.rate)
    assert all(b <= a * best.rate * (1 + 1e-12) for a, b in itertools.pairwise(norms))


def test_worked_example():
    example = quadratic.worked_example()
    f = lambda w: 2 * w[0] ** 2 + 8 * w[1] ** 2 + 4 * w[0] * w[1]  # noqa: E731
    H = jacrev(jacrev(f))(torch.zeros(2, dtype=torch.float64))
    assert_close(example.expand(), torch.linalg.eigvalsh(H))
    for i in range(2):
        v = example.eigenspace(i)
        assert_close(H @ v, example.values[i] * v)
        assert_close(v.norm(), torch.ones((), dtype=torch.float64))
    assert_close(example.condition_number, (10 + 2 * math.sqrt(13)) / (10 - 2 * torch.tensor(13).double().sqrt()))


def test_the_steep_direction_is_the_faster_one_below_the_best_learning_rate():
    example = quadratic.worked_example()
    lrs = torch.tensor([0.01, 0.05, 0.0999, 0.1001, 0.116])
    assert quadratic.slowest(example.values, lrs).tolist() == [1, 1, 1, 0, 0]
    assert_close(quadratic.tune(example).lr.item(), 0.1)
    assert_close(quadratic.contraction(example.values, 0.1)[0], quadratic.contraction(example.values, 0.1)[1])
    assert quadratic.rate(example, 2 / example.max * 1.0001) > 1
    assert quadratic.rate(example, 2 / example.max * 0.9999) < 1


@pytest.mark.parametrize(
    ("f", "kind"),
    [
        (lambda x: (x**2).sum(), CriticalPoint.MINIMUM),
        (lambda x: -(x**2).sum(), CriticalPoint.MAXIMUM),
        (lambda x: x[0] ** 2 - x[1] ** 2, CriticalPoint.SADDLE),  # singular as well: diag(2, -2, 0)
        (lambda x: (x**4).sum(), CriticalPoint.INCONCLUSIVE),  # a minimum
        (lambda x: -(x**4).sum(), CriticalPoint.INCONCLUSIVE),  # a maximum
        (lambda x: x[0] ** 2 + x[1] ** 3, CriticalPoint.INCONCLUSIVE),  # neither
    ],
)
def test_what_second_derivatives_prove(f, kind):
    H = jacrev(jacrev(f))(torch.zeros(3, dtype=torch.float64))
    assert quadratic.classify(torch.linalg.eigvalsh(H)) == kind


def test_a_closed_form_can_be_classified():
    """Two linear layers: 0 is a saddle, a fitted point of full width has zeros."""
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])
    kinds = [scalar_linear(w, w, x, y) for w in (torch.zeros(2), torch.tensor([1.0, 0.0]))]
    assert [int(quadratic.classify(s)) for s in kinds] == [CriticalPoint.SADDLE, CriticalPoint.INCONCLUSIVE]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 4]), seeds())
def test_rademacher_variance_by_enumeration(n, seed):
    A = normal(random_stream(seed), BATCH, n, n)
    H = A + A.mT
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=n)), dtype=torch.float64)
    samples = torch.einsum("si,bij,sj->bs", signs, H, signs)
    assert_close(samples.var(-1, correction=0), quadratic.trace_variance(H), atol=1e-11, rtol=1e-11)
    assert_close(quadratic.trace_variance(A), quadratic.trace_variance(H) / 4, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("probes", ["gaussian", "sphere"])
def test_variance_by_sampling(probes):
    """200,000 samples: the standard error of the variance is under 1 %, the bound five of them."""
    g = random_stream(9)
    A = normal(g, 5, 5)
    H, z = A + A.T, normal(g, 200_000, 5)
    if probes == "sphere":
        z = z / z.norm(dim=-1, keepdim=True) * math.sqrt(5)
    samples = torch.einsum("si,ij,sj->s", z, H, z)
    variance = quadratic.trace_variance(H, probes)
    error = ((samples - samples.mean()).square() - variance).std() / math.sqrt(len(samples))
    assert error < 0.01 * variance
    assert abs(samples.var() - variance) < 5 * error
    assert abs(samples.mean() - H.trace()) < 5 * (variance / len(samples)).sqrt()


def test_the_identity_needs_one_probe_but_a_gaussian_one():
    eye = 3 * torch.eye(4)
    assert [quadratic.trace_variance(eye, p).item() for p in quadratic.PROBES] == [0.0, 72.0, 0.0]


def test_gradients():
    g = random_stream(5)
    values = normal(g, 2, 4).exp().requires_grad_()
    lr = torch.tensor([0.1, 0.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(quadratic.contraction, (values, lr))
    assert torch.autograd.gradcheck(lambda v, lr: quadratic.contraction(v, lr, 0.5), (values, lr))
    assert torch.autograd.gradcheck(lambda v: quadratic.tune(v, momentum=True).rate, (values,))
    assert torch.autograd.gradcheck(quadratic.trace_variance, (normal(g, 3, 3).requires_grad_(),))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: quadratic.tune(torch.tensor([1.0, -0.5])), "the smallest eigenvalue is -0.5; expected a positive definite"),
        (lambda: quadratic.rate(torch.ones(2), -1.0), "lr or momentum is negative; expected 0 or more"),
        (lambda: quadratic.rate(torch.ones(2), float("inf")), "lr holds NaN or infinity"),
        (lambda: quadratic.classify(torch.ones(0)), r"eigenvalues has shape \(0,\), which is empty along n"),
        (lambda: quadratic.trace_variance(torch.ones(2, 3)), r"H has shape \(2, 3\); expected \(..., n, n\)"),
        (
            lambda: quadratic.trace_variance(torch.eye(2), "uniform"),
            "probes is 'uniform'; expected one of rademacher, gaussian, sphere",
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(TheoryError, match=sentence):
        call()


def test_a_spectrum_counts_its_multiplicities():
    s = Spectrum(torch.tensor([4.0, 1.0, 9.0]), torch.tensor([1, 2, 0]), ("outlier", "bulk", "bulk"))
    assert quadratic.tune(s).rate == 0.6
