"""Eigenpairs are those of the dense decomposition, with their multiplicities, and their certificates hold."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenscape.core import SolverError
from eigenscape.linop import Counted, Dense, Diagonal, Stack, as_operator
from eigenscape.solvers import eigsh
from eigenscape.testing import SPECTRA, disguises, rotated, spectrum_like

WHICH = ("largest", "smallest", "both", "magnitude")
N, K = 120, 4


def chosen(values, which, k):
    """Oracle: pick from all eigenvalues."""
    values = values.sort().values
    if which == "largest":
        return values[-k:].flip(0)
    if which == "smallest":
        return values[:k]
    if which == "both":
        return torch.cat([values[:k], values[-k:]])
    return values[values.abs().argsort(descending=True)][:k]


def check(A, which, k, tol, seed=0, **options):
    """Every statement that a result makes, against the dense decomposition of the matrix itself."""
    true, size = torch.linalg.eigvalsh(A.double()), float(torch.linalg.matrix_norm(A.double(), 2))
    noise = 20 * torch.finfo(A.dtype).eps * size
    op = Counted(Dense(A))
    pairs = eigsh(op, k, which, tol, generator=torch.Generator().manual_seed(seed), **options)
    expected = chosen(true, which, k)
    slack = tol * torch.maximum(expected.abs(), torch.tensor(size / 100))
    got = pairs.values.abs() if which == "magnitude" else pairs.values  # equal magnitudes may come in either order
    assert ((got - (expected.abs() if which == "magnitude" else expected)).abs() <= slack + noise).all()
    X = pairs.vectors.double()
    assert torch.allclose(X.mT @ X, torch.eye(len(pairs), dtype=torch.float64), atol=1e3 * torch.finfo(A.dtype).eps)
    residuals = (A.double() @ X - X * pairs.values).norm(dim=0)
    assert (residuals <= pairs.residual_norms + noise).all()
    assert (pairs.residual_norms <= slack + noise).all()
    assert pairs.converged
    gaps = (true[:, None] - pairs.intervals.mean(-1)).abs().amin(0)
    assert (gaps <= pairs.intervals.diff(dim=-1)[:, 0] / 2 + noise).all()
    assert pairs.num_matvecs == op.num_matvecs
    for end, enclosure in ((true[-1], pairs.top), (true[0], pairs.bottom)):
        if enclosure is not None:
            assert enclosure.lower - noise <= end <= enclosure.upper + noise
    return pairs


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("name", SPECTRA)
def test_every_spectrum_in_float64(name, which):
    check(rotated(spectrum_like(name, N)), which, K, tol=1e-6)


@pytest.mark.parametrize("name", SPECTRA)
def test_every_spectrum_in_float32(name):
    check(rotated(spectrum_like(name, N), dtype=torch.float32), "both", K, tol=3e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", sorted(disguises(torch.ones(3))))
def test_every_disguise(kind, dtype):
    values = spectrum_like("multiple", 70)
    pairs = eigsh(disguises(values, dtype=dtype)[kind], 6, tol=1e-4)
    assert pairs.values.dtype == torch.float64
    assert pairs.vectors.dtype == dtype
    assert torch.allclose(pairs.values, values[:6], rtol=0, atol=2e-5)


@given(n=st.integers(1, 12), data=st.data(), which=st.sampled_from(WHICH), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_every_small_shape(n, data, which, seed):
    k = data.draw(st.integers(1, n if which != "both" else max(1, n // 2)))
    values = torch.tensor(data.draw(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0]), min_size=n, max_size=n)))
    pairs = check(rotated(values, seed), which, k, tol=1e-8)
    assert pairs.num_matvecs <= n


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (70, 70), (80, 40)])
def test_all_pairs_of_a_matrix(n, k):
    values = spectrum_like("indefinite", n)
    assert torch.allclose(eigsh(Diagonal(values), k, tol=1e-8).values, values[:k], atol=1e-12)


def test_no_ghosts_at_depth_in_float32():
    A = rotated(spectrum_like("huge outliers", 400), dtype=torch.float32)
    pairs = eigsh(Dense(A), 12, tol=1e-5)
    assert pairs.num_matvecs > 50
    true = torch.linalg.eigvalsh(A.double()).flip(0)[:12]
    assert torch.allclose(pairs.values, true, rtol=0, atol=20 * 1.2e-7 * 1e4)
    assert (pairs.values[5:] < 2).all()  # one copy of each outlier


@pytest.mark.parametrize("power", [-23, 23])
def test_a_scaled_matrix_has_exactly_scaled_eigenvalues(power):
    A = rotated(spectrum_like("outliers", N), dtype=torch.float32)
    one, other = eigsh(Dense(A)), eigsh(Dense(A * 2.0**power))
    assert torch.equal(one.values * 2.0**power, other.values)
    assert one.num_matvecs == other.num_matvecs


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_scale_does_not_matter(scale):
    check(rotated(scale * spectrum_like("multiple", N)), "both", K, tol=1e-5)


def test_a_stack_gives_what_its_members_give():
    matrices = [
        rotated(spectrum_like(name, N)) for name in ("outliers", "multiple", "zero", "indefinite", "low rank", "power law")
    ]
    stacked = eigsh(Dense(torch.stack(matrices).reshape(2, 3, N, N)), K, tol=1e-8)
    assert stacked.values.shape == (2, 3, K)
    assert stacked.vectors.shape == (2, 3, N, K)
    assert stacked.intervals.shape == (2, 3, K, 2)
    for row, A in zip(stacked.values.reshape(6, K), matrices):
        assert torch.allclose(row, torch.linalg.eigvalsh(A).flip(0)[:K], atol=1e-6)


def test_the_same_generator_gives_the_same_numbers():
    A = Dense(rotated(spectrum_like("outliers", N)))
    first, second, other = (eigsh(A, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first.vectors, second.vectors)
    assert not torch.equal(first.vectors, other.vectors)


def plain_lanczos(A, k, tol, seed):
    """Oracle of effort: products of Lanczos with full reorthogonalisation that stops at the earliest step."""
    v = torch.randn(len(A), generator=torch.Generator().manual_seed(seed), dtype=A.dtype)
    Q = (v / v.norm())[:, None]
    while True:
        W = A @ Q
        theta, Y = torch.linalg.eigh(Q.mT @ W)
        X, top = Q @ Y[:, -k:], theta[-k:]
        goal = tol * torch.maximum(top.abs(), theta.abs().max() / 100)
        if Q.shape[1] >= k and bool(((A @ X - X * top).norm(dim=0) <= goal).all()):
            return Q.shape[1]
        r = W[:, -1]
        for _ in range(2):
            r = r - Q @ (Q.mT @ r)
        Q = torch.cat([Q, (r / r.norm())[:, None]], 1)


@pytest.mark.parametrize("name", ["outliers", "indefinite", "power law", "huge outliers"])
@pytest.mark.parametrize("k", [1, 5])
def test_it_stops_as_early_as_plain_lanczos(name, k):
    A = rotated(spectrum_like(name, 300))
    ours = [
        eigsh(Dense(A), k, tol=1e-3, verify=False, generator=torch.Generator().manual_seed(s)).num_matvecs for s in range(5)
    ]
    plain = [plain_lanczos(A, k, 1e-3, s) for s in range(5)]
    assert sum(ours) <= sum(plain) + 10  # two steps each: other start vectors


@pytest.mark.parametrize("k", [1, 5])
def test_a_warm_start_that_still_holds_costs_k_products(k):
    A = rotated(spectrum_like("outliers", 200))
    moved = A + 1e-4 * rotated(spectrum_like("indefinite", 200), seed=3)
    pairs = eigsh(Dense(moved), k, tol=1e-3, v0=eigsh(Dense(A), k).vectors, verify=False)
    assert pairs.converged
    assert pairs.num_matvecs == k
    assert pairs.top is None  # nothing is claimed beyond the intervals
    assert torch.allclose(pairs.values, torch.linalg.eigvalsh(moved).flip(0)[:k], rtol=1e-5)


@pytest.mark.parametrize("name", ["outliers", "multiple", "clustered"])
def test_a_poor_warm_start_still_converges(name):
    A = rotated(spectrum_like(name, N))
    X = torch.randn(N, K, generator=torch.Generator().manual_seed(1), dtype=A.dtype)
    check(A, "largest", K, 1e-6, v0=X)
    check(A, "largest", K, 1e-6, v0=X[:, :2])
    check(A, "largest", 1, 1e-6, v0=X[:, 0])


def test_a_wrong_warm_start_is_found_out():
    values = spectrum_like("outliers", 200)
    third = torch.zeros(200, 1, dtype=torch.float64)
    third[2] = 1.0
    blind = eigsh(Diagonal(values), 1, v0=third, verify=False)
    assert float(blind.values) == 30.0  # an eigenvalue, as the interval says, and no more is claimed
    assert torch.allclose(eigsh(Diagonal(values), 1, v0=third).values, values[:1], rtol=1e-6)


@pytest.mark.parametrize("block", [2, 4])
def test_blocks_and_short_bases_find_the_same(block):
    A = rotated(spectrum_like("multiple", 200))
    check(A, "both", K, 1e-6, block=block)
    check(A, "largest", K, 1e-6, basis=14)


def test_enclosures_hold_with_the_stated_probability():
    # 2000 starts, a failure rate of at most 2 %: 40 expected at worst; 66 or more has probability 1e-4.
    values = spectrum_like("outliers", 100)[4:]  # one outlier barely outside the bulk: hard to see from a few steps
    values = torch.cat([values[:1] * 0 + 3.2, values[1:]])
    pairs = eigsh(Diagonal(values.expand(2000, -1)), 1, tol=0.3, verify=False, probability=0.98)
    top = pairs.top
    assert top is not None
    inside = (top.lower <= values.max() + 1e-12) & (values.max() <= top.upper + 1e-12)
    assert int((~inside).sum()) < 66
    assert top.probability == pytest.approx(0.98)
    assert float((top.upper - top.lower).median()) < 20.0


def test_enclosures_after_verification_hold_and_are_narrow():
    # 600 starts at 99.9 %: 0.6 failures expected at worst; 7 or more has probability 1e-5.
    values = spectrum_like("multiple", 100)
    pairs = eigsh(Diagonal(values.expand(600, -1)), 2, tol=1e-3)
    top = pairs.top
    assert top is not None
    assert int(((top.lower > 10 + 1e-12) | (top.upper < 10 - 1e-12)).sum()) < 7
    assert float((top.upper - top.lower).max()) < 0.1


def test_noise_beyond_rounding_is_measured_and_refused():
    A = rotated(spectrum_like("outliers", 300), dtype=torch.float32)
    rough = as_operator(lambda v: A @ v.bfloat16().float(), n=300, dtype=torch.float32)
    pairs = eigsh(rough, 3, tol=1e-5)
    assert not pairs.converged
    assert "stopped at the noise of these float32 products" in pairs.status
    assert float(pairs.residual_norms.max()) > 1e-4 * 50
    assert eigsh(Dense(A), 3, tol=1e-5).converged


def test_a_tolerance_below_rounding_is_not_claimed():
    pairs = eigsh(Dense(rotated(spectrum_like("outliers", N), dtype=torch.float32)), 3, tol=1e-9)
    assert not pairs.converged
    assert "noise" in pairs.status
    assert (pairs.residual_norms > 1e-7).all()


def test_a_budget_is_kept_and_told():
    op = Counted(Dense(rotated(torch.linspace(0, 1, 300))))
    pairs = eigsh(op, 5, tol=1e-8, max_matvecs=20)
    assert op.num_matvecs == pairs.num_matvecs <= 20
    assert not pairs.converged
    assert "stopped at max_matvecs=20" in pairs.status


def test_nan_names_the_product():
    seen = []

    def matvec(v):
        seen.append(v)
        return v * (float("nan") if len(seen) == 3 else 1.0 + torch.arange(100.0))

    with pytest.raises(SolverError, match=r"product number 3 is not finite \(NaN or inf\)"):
        eigsh(as_operator(matvec, n=100), 2)


def test_an_asymmetric_operator_is_refused():
    A = torch.triu(torch.ones(5, 5))
    with pytest.raises(SolverError, match="the operator is not symmetric"):
        eigsh(as_operator(lambda v: A @ v, n=5), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 6}, "k is 6 for a matrix of size 5; expected a whole number from 1 to 5"),
        ({"k": 0}, "k is 0"),
        ({"k": 2.5}, "k is 2.5"),
        ({"which": "top"}, "which is 'top'; expected one of 'largest'"),
        ({"tol": -1.0}, "tol is -1.0; expected a relative residual"),
        ({"probability": 1.0}, "probability is 1.0"),
        ({"block": 9}, "block is 9 for a matrix of size 5"),
        ({"max_matvecs": 1}, "max_matvecs=1 cannot give 2 eigenpairs"),
        ({"basis": 3}, "basis=3 is too small for 2 eigenpairs"),
    ],
)
def test_bad_requests_are_sentences(options, message):
    with pytest.raises(SolverError, match=message):
        eigsh(Diagonal(torch.ones(5)), **{"k": 2, **options})


@pytest.mark.parametrize(
    ("v0", "message"),
    [
        (torch.ones(4), r"v0 has shape \(4,\); expected a tensor of shape \(100,\)"),
        ([1.0], "v0 is a list"),
        (torch.zeros(100), "v0 has a column that is zero"),
    ],
)
def test_bad_warm_starts_are_sentences(v0, message):
    with pytest.raises(SolverError, match=message):
        eigsh(Diagonal(torch.arange(100.0)), 2, v0=v0)


def test_half_precision_is_refused():
    with pytest.raises(SolverError, match="expected float32 or float64"):
        eigsh(Diagonal(torch.ones(5, dtype=torch.bfloat16)), 1)


def test_a_stack_of_operators_is_a_stack():
    values = [spectrum_like(name, 90) for name in ("outliers", "multiple")]
    pairs = eigsh(Stack([Diagonal(v) for v in values]), 3)
    assert torch.allclose(pairs.values, torch.stack([v[:3] for v in values]), rtol=1e-4)
