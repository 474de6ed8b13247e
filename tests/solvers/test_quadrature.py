"""Densities: exact at full depth, with bands that hold, scaled with the matrix, and of all blocks in one pass."""

import pytest
import torch

from eigenscape.core import Density, Layout, SolverError
from eigenscape.linop import Counted, Dense, Diagonal, as_operator, blocks
from eigenscape.solvers import density
from eigenscape.testing import SPECTRA, disguises, rotated, spectrum_like


def share(values, grid):
    return (values[:, None] <= grid).double().mean(0)


@pytest.mark.parametrize("name", SPECTRA)
def test_moments_are_exact_in_the_mean_of_a_whole_basis(name):
    """A Gauss rule of s nodes reproduces the first 2 s moments of its probe."""
    values = spectrum_like(name, 40)
    values = values / values.abs().max().clamp(min=1)
    generator = torch.Generator().manual_seed(3)
    d = density(Diagonal(values), steps=6, probes=2, generator=generator)
    z = torch.randn(1, 2, 40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)[0]
    weights = z.square() / z.square().sum(-1, keepdim=True)
    for power in range(12):
        found = (d.nodes.pow(power) * d.weights).sum(-1)
        assert torch.allclose(found, (weights * values.pow(power)).sum(-1), atol=1e-12)


@pytest.mark.parametrize("name", ["outliers", "multiple", "low rank", "identity", "zero"])
@pytest.mark.parametrize("probes", [1, 4])
def test_95_percent_bands_hold(name, probes):
    # 500 runs at 12 points: fewer than 455 of a true 95 % has probability 1e-4 at one point; most bands are wider.
    values = spectrum_like(name, 60)
    d = density(Diagonal(values.expand(500, -1)), steps=10, probes=probes)
    low, high = float(values.min()), float(values.max())
    grid = torch.linspace(low - 0.1, high + 0.1, 12, dtype=torch.float64)
    lower, upper = d.band(0.95, grid)
    true = share(values, grid)
    inside = (lower <= true + 1e-12) & (true - 1e-12 <= upper)
    assert (inside.sum(0) >= 455).all()
    assert (lower <= upper).all()
    if probes == 4 and name == "outliers":
        assert float((upper - lower).median()) < 0.6


def test_the_cdf_is_unbiased_and_runs_from_zero_to_one():
    values = spectrum_like("outliers", 60)
    d = density(Diagonal(values.expand(500, -1)), steps=30, probes=4)
    grid = torch.tensor([-2.0, 0.2, 1.1, 3.5, 15.0, 25.0, 60.0], dtype=torch.float64)
    cdf = d.cdf(grid)
    error = (cdf.mean(0) - share(values, grid)).abs()
    assert (error <= 5 * cdf.std(0) / 500**0.5 + 0.01).all()
    assert torch.equal(cdf[:, 0], torch.zeros(500, dtype=torch.float64))
    assert torch.allclose(cdf[:, -1], torch.ones(500, dtype=torch.float64))
    assert (cdf.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("reorthogonalize", [False, True])
def test_deep_runs_keep_their_weights(reorthogonalize):
    """Copies of converged outliers share the weight of one: the cdf is right at any depth, in float32."""
    values = spectrum_like("huge outliers", 300)
    generator = torch.Generator().manual_seed(0)
    d = density(Diagonal(values.float()), steps=150, probes=2, generator=generator, reorthogonalize=reorthogonalize)
    z = torch.randn(1, 2, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0]
    weights = z.square() / z.square().sum(-1, keepdim=True)
    grid = torch.tensor([50.0, 500.0, 3000.0, 7000.0, 9500.0], dtype=torch.float64)
    exact = torch.stack([(weights * (values <= t)).sum(-1).mean() for t in grid])
    assert torch.allclose(d.cdf(grid), exact, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_disguise_has_the_same_support(dtype):
    values = spectrum_like("multiple", 20)
    for kind, op in disguises(values, dtype=dtype).items():
        low, high = density(op, probes=2).support
        assert low == pytest.approx(-5, abs=1e-3), kind
        assert high == pytest.approx(10, abs=1e-3), kind


def test_scale_does_not_matter():
    A = rotated(spectrum_like("outliers", 80))
    one, small = (density(Dense(s * A), steps=20, probes=2) for s in (1.0, 2.0**-23))
    assert torch.allclose(small.nodes * 2.0**23, one.nodes)
    assert torch.allclose(small.pdf() / 2.0**23, one.pdf())
    decade = torch.logspace(-1, 2, 50, dtype=torch.float64)
    assert torch.allclose(small.pdf(decade * 2.0**-23, axis="log"), one.pdf(decade, axis="log"))


def test_densities_integrate_to_one():
    d = density(Diagonal(spectrum_like("outliers", 200)), steps=30)
    grid = torch.linspace(-10, 70, 4_000, dtype=torch.float64)
    assert float(torch.trapezoid(d.pdf(grid), grid)) == pytest.approx(1, abs=1e-6)
    positive = Diagonal(spectrum_like("power law", 200))
    decades = torch.linspace(-5, 2, 4_000, dtype=torch.float64)
    log = density(positive, steps=30).pdf(10**decades, axis="log")
    assert float(torch.trapezoid(log, decades)) == pytest.approx(1, abs=1e-3)


def test_blocks_share_their_passes():
    A = rotated(spectrum_like("outliers", 30))
    layout = Layout(("a", "b", "c"), ((10,), (4, 4), (4,)))
    whole = Counted(Dense(A, layout=layout))
    together = density(blocks(whole), steps=8, probes=2)
    assert set(together) == {"a", "b", "c"}
    assert whole.num_matvecs == 2 * (8 + 8 + 4)  # columns; every pass multiplies all blocks that still go on
    for name, part in zip("abc", (slice(0, 10), slice(10, 26), slice(26, 30))):
        B = A[part, part]
        first = (together[name].nodes * together[name].weights).sum(-1).mean()
        low, high = torch.linalg.eigvalsh(B)[[0, -1]]
        assert low - 1e-10 <= first <= high + 1e-10
        assert together[name].n == len(B)
        if len(B) == 4:  # full depth: the nodes are the eigenvalues
            assert torch.allclose(together[name].nodes.sort(-1).values[0], torch.linalg.eigvalsh(B), atol=1e-9)


def test_a_size_of_one_and_a_known_spectrum():
    d = density(Diagonal(torch.tensor([3.0])), probes=2)
    assert d.support == (3.0, 3.0)
    exact = Density.exact(torch.tensor([0.0, 2.0]), torch.tensor([3, 1]))
    assert exact.cdf(torch.tensor([1.0])).tolist() == [0.75]


@pytest.mark.parametrize("options", [{"steps": 0}, {"probes": 0}, {"steps": 2.5}])
def test_bad_requests_are_sentences(options):
    name, value = next(iter(options.items()))
    with pytest.raises(SolverError, match=f"{name} is {value}; expected a whole number of at least 1"):
        density(Diagonal(torch.ones(3)), **options)


def test_nan_is_an_error():
    with pytest.raises(SolverError, match="product number 2 is not finite"):
        density(as_operator(lambda v: v * float("nan"), n=5), probes=2)
