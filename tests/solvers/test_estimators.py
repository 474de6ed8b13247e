"""Trace, Frobenius norm and diagonal: exact where they can be, and error bars that hold as often as they say."""

import pytest
import torch

from eigenscape.core import SolverError
from eigenscape.linop import Counted, Dense, Diagonal, as_operator
from eigenscape.solvers import dense, diagonal, frobenius, trace
from eigenscape.testing import SPECTRA, disguises, rotated, spectrum_like

ESTIMATORS = {
    "trace": (trace, lambda A: A.diagonal(dim1=-2, dim2=-1).sum(-1)),
    "frobenius": (frobenius, lambda A: torch.linalg.matrix_norm(A)),
    "diagonal": (diagonal, lambda A: A.diagonal(dim1=-2, dim2=-1)),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_exact_when_every_column_fits_the_budget(name, n):
    estimate, oracle = ESTIMATORS[name]
    A = rotated(spectrum_like("indefinite", n))
    op = Counted(Dense(A))
    result = estimate(op)
    assert torch.allclose(result.value, oracle(A), atol=1e-12)
    assert op.num_matvecs == result.num_matvecs == n
    assert not result.stderr.any()
    assert "every column was multiplied" in result.status


@pytest.mark.parametrize("name", ESTIMATORS)
def test_exact_when_the_sketch_holds_the_range(name):
    estimate, oracle = ESTIMATORS[name]
    A = rotated(spectrum_like("low rank", 150))
    result = estimate(Dense(A), max_matvecs=30)
    assert torch.allclose(result.value, oracle(A), atol=1e-10)
    assert float(result.stderr.max()) < 1e-10


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_disguise_is_the_same_matrix(name, dtype):
    estimate, oracle = ESTIMATORS[name]
    for kind, op in disguises(spectrum_like("outliers", 30), dtype=dtype).items():
        A = (op @ torch.eye(30, dtype=dtype)).double()
        assert torch.allclose(estimate(op).value, oracle(A), atol=1e-3 if dtype == torch.float32 else 1e-10), kind


@pytest.mark.parametrize("spectrum", ["outliers", "indefinite", "power law", "multiple"])
@pytest.mark.parametrize("budget", [15, 45])
@pytest.mark.parametrize("name", ["trace", "frobenius"])
def test_95_percent_intervals_hold(name, budget, spectrum):
    # 1000 runs: fewer than 920 of a true 95 % has probability 2e-5 for one of these tests, 4e-4 for all.
    estimate, oracle = ESTIMATORS[name]
    values = spectrum_like(spectrum, 80)
    result = estimate(Diagonal(values.expand(1000, -1)), max_matvecs=budget)
    true = oracle(torch.diag(values))
    interval = result.interval(0.95)
    assert int(((interval[:, 0] <= true) & (true <= interval[:, 1])).sum()) >= 920
    assert result.num_matvecs == budget
    rms = (result.value - true).square().mean().sqrt()
    assert 0.5 * rms < result.stderr.square().mean().sqrt() < 2.5 * rms  # wide enough, and not wider than of use


def test_95_percent_intervals_of_each_diagonal_entry_hold():
    # 500 runs x 60 entries at 95 %: a run's share deviates by at most 0.218, so the mean is below 0.91 once in 4e4.
    A = rotated(spectrum_like("outliers", 60))
    result = diagonal(Dense(A.expand(500, -1, -1)), max_matvecs=45)
    interval = result.interval(0.95)
    inside = (interval[..., 0] <= A.diagonal()) & (A.diagonal() <= interval[..., 1])
    assert inside.double().mean() > 0.91
    assert inside.double().mean(0).min() > 0.88


@pytest.mark.parametrize("name", ["trace", "frobenius"])
def test_adaptive_runs_stop_early_and_their_intervals_hold(name):
    # 400 runs: fewer than 360 of a true 95 % has probability 2e-5.
    estimate, oracle = ESTIMATORS[name]
    values = 2.0 ** (-torch.arange(150, dtype=torch.float64) / 8)
    true, op = oracle(torch.diag(values)), Diagonal(values)
    results = [estimate(op, torch.Generator().manual_seed(s), rtol=0.015) for s in range(400)]
    intervals = torch.stack([r.interval(0.95) for r in results])
    assert int(((intervals[:, 0] <= true) & (true <= intervals[:, 1])).sum()) >= 360
    assert all(float(r.stderr) <= 0.015 * float(r.value) for r in results if "standard error at most" in r.status)
    errors = torch.stack([r.value - true for r in results])
    assert errors.square().mean().sqrt() < 0.02 * true
    assert errors.mean().abs() < 4.5 * errors.std() / 20  # unbiased


def test_rtol_stops_at_the_limit_and_says_so():
    result = trace(Diagonal(torch.linspace(-1, 1, 5000, dtype=torch.float64)), rtol=1e-3, max_matvecs=60)
    assert result.num_matvecs == 60
    assert "stopped before the standard error fell to 0.001" in result.status


def test_fewer_products_than_hutchinson():
    """Few large eigenvalues: the sketch takes them out, and the error is far below that of as many random vectors alone."""
    values = spectrum_like("outliers", 1000)
    hutchinson = (2 * values.square().sum() / 100).sqrt()
    assert trace(Diagonal(values), max_matvecs=100).stderr < 1.1 * hutchinson
    values = spectrum_like("power law", 1000)
    assert trace(Diagonal(values), max_matvecs=100).stderr < 0.3 * (2 * values.square().sum() / 100).sqrt()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scale_does_not_matter(name):
    estimate, _ = ESTIMATORS[name]
    A = rotated(spectrum_like("outliers", 150))
    one, small = (estimate(Dense(s * A), max_matvecs=40) for s in (1.0, 2.0**-23))
    assert torch.allclose(small.value * 2.0**23, one.value, rtol=1e-12)
    assert torch.allclose(small.stderr * 2.0**23, one.stderr, rtol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_stacks_and_generators(name):
    estimate, oracle = ESTIMATORS[name]
    A = torch.stack([rotated(spectrum_like(s, 150)) for s in ("outliers", "zero", "identity", "low rank")]).reshape(
        2, 2, 150, 150
    )
    first, again = (estimate(Dense(A), torch.Generator().manual_seed(1), max_matvecs=40) for _ in range(2))
    assert torch.equal(first.value, again.value)
    true = oracle(A)
    assert first.value.shape == first.stderr.shape == true.shape
    assert ((first.value - true).abs() <= 6 * first.stderr + 1e-10).all()


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": 0.0}, "rtol is 0.0; expected a relative standard error"),
        ({"rtol": 2}, "rtol is 2; expected"),
        ({"max_matvecs": 1}, "max_matvecs is 1; expected a whole number of at least 2"),
        ({"max_matvecs": 1.5}, "max_matvecs is 1.5; expected"),
    ],
)
def test_bad_requests_are_sentences(name, options, message):
    with pytest.raises(SolverError, match=message):
        ESTIMATORS[name][0](Diagonal(torch.ones(5)), **options)


@pytest.mark.parametrize("solve", [trace, frobenius, diagonal, dense])
def test_nan_is_an_error(solve):
    with pytest.raises(SolverError, match="is not finite"):
        solve(as_operator(lambda v: v * float("nan"), n=3))


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_dense_gives_every_eigenvalue_and_vector(spectrum):
    values = spectrum_like(spectrum, 40)
    A = rotated(values)
    result = dense(Dense(A), vectors=True)
    assert torch.allclose(result.expand(), values.flip(0), atol=1e-13 * float(values.abs().max() + 1))
    X = torch.cat([result.eigenspace(i) for i in range(40)], -1)
    assert torch.allclose(X @ torch.diag(result.values) @ X.mT, A, atol=1e-12 * float(values.abs().max() + 1))
    assert result.labels.count("zero") == int((values.abs() < 1e-12).sum())


def test_dense_takes_stacks_and_refuses_giants():
    A = torch.stack([rotated(spectrum_like("outliers", 12), seed) for seed in range(3)])
    assert torch.allclose(dense(Dense(A)).expand(), torch.linalg.eigvalsh(A), atol=1e-12)
    with pytest.raises(SolverError, match=r"the matrix has size 30000; expected at most 20000 .* use es.eigsh"):
        dense(Diagonal(torch.ones(30_000)))
    with pytest.raises(SolverError, match="the operator is not symmetric"):
        dense(as_operator(lambda v: torch.triu(torch.ones(3, 3)) @ v, n=3))


def test_an_easy_trace_takes_a_few_products_and_a_hard_one_loses_none():
    flat = Diagonal(torch.linspace(0.5, 1.5, 3000, dtype=torch.float64))
    found = trace(flat, rtol=0.03)
    assert found.num_matvecs == 8
    assert "0 directions" in found.status
    spiked = Diagonal(torch.cat([torch.full((5,), 100.0), torch.full((2995,), 0.1)]).double())
    found = trace(spiked, rtol=0.03)
    assert found.num_matvecs == 48  # the first eight products are the sketch's
    assert abs(found.value - 799.5) < 1e-2 * 799.5
