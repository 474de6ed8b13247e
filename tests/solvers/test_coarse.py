"""A coarse operator changes what a search costs, never what it finds; noise is measured, and a goal below it is not sought."""

import pytest
import torch
from torch import nn

from eigenscape import Objective
from eigenscape.core import DataError, SolverError
from eigenscape.curvature import hessian
from eigenscape.linop import Counted, Dense, Diagonal, as_operator
from eigenscape.solvers import eigsh
from eigenscape.testing import rotated, spectrum_like

N = 300


def perturbed(A, size, seed=5):
    """The same matrix, off by so much of its norm."""
    E = torch.randn(len(A), len(A), generator=torch.Generator().manual_seed(seed), dtype=A.dtype)
    E = E + E.mT
    return A + size * float(torch.linalg.matrix_norm(A, 2)) * E / torch.linalg.matrix_norm(E, 2)


@pytest.mark.parametrize("which", ["largest", "smallest", "both", "magnitude"])
@pytest.mark.parametrize("size", [0.0, 1e-4, 0.03, 1.0])
@pytest.mark.parametrize("name", ["outliers", "multiple"])
def test_pairs_are_those_of_the_operator_however_coarse_the_other_one(name, size, which):
    A = rotated(spectrum_like(name, N))
    op, coarse = Counted(Dense(A)), Counted(Dense(perturbed(A, size)))
    pairs = eigsh(op, 3, which, 1e-6, coarse=coarse, generator=torch.Generator().manual_seed(0))
    true = torch.linalg.eigvalsh(A)
    top, bottom = true.flip(0)[:3], true[:3]
    expected = {"largest": top, "smallest": bottom, "both": torch.cat([bottom, top.flip(0)])}
    expected["magnitude"] = true[true.abs().argsort(descending=True)][:3].abs()
    got = pairs.values.abs() if which == "magnitude" else pairs.values
    assert pairs.converged
    assert torch.allclose(got, expected[which], rtol=0, atol=1e-6 * float(true.abs().max()))
    assert op.num_matvecs == pairs.num_matvecs
    assert f"after {pairs.num_matvecs} products and {coarse.num_matvecs} coarse ones" in pairs.status


@pytest.mark.parametrize("k", [1, 5])
def test_a_nearly_equal_operator_saves_most_products(k):
    A = rotated(spectrum_like("power law", N))
    plain = eigsh(Dense(A), k, tol=1e-4, verify=False)
    helped = eigsh(Dense(A), k, tol=1e-4, verify=False, coarse=Dense(perturbed(A, 2e-5)))
    assert helped.converged
    assert helped.num_matvecs <= k + 1 < plain.num_matvecs / 2


def test_rounded_products_are_refined_to_float32():
    A = rotated(spectrum_like("outliers", N), dtype=torch.float32)
    rough = as_operator(lambda v: A @ v.bfloat16().float(), n=N, dtype=torch.float32)
    assert not eigsh(rough, 3, tol=1e-4).converged
    pairs = eigsh(Dense(A), 3, tol=1e-4, coarse=rough)
    assert pairs.converged
    X = pairs.vectors.double()
    assert bool(((A.double() @ X - X * pairs.values).norm(dim=0) <= 1.1e-4 * pairs.values).all())


def test_a_stack_has_a_coarse_stack():
    A = torch.stack([rotated(spectrum_like(name, 100)) for name in ("outliers", "power law")])
    B = torch.stack([perturbed(a, 1e-3) for a in A])
    pairs = eigsh(Dense(A), 2, tol=1e-6, coarse=Dense(B))
    assert torch.allclose(pairs.values, torch.linalg.eigvalsh(A).flip(-1)[:, :2], rtol=1e-6)


@pytest.mark.parametrize(
    ("coarse", "message"),
    [
        (torch.eye(100), "coarse is a Tensor; expected a cheaper operator of the same size"),
        (Diagonal(torch.ones(99)), "expected equal shape, dtype and device"),
        (Diagonal(torch.ones(100, dtype=torch.float64)), "expected equal shape, dtype and device"),
    ],
)
def test_other_things_are_no_coarse_operator(coarse, message):
    with pytest.raises(SolverError, match=message):
        eigsh(Diagonal(torch.arange(100.0)), 2, coarse=coarse)


def network(batches):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    x, y = torch.randn(200, 8, dtype=torch.float64), torch.arange(200) % 3
    return Objective(model, nn.CrossEntropyLoss(), list(zip(x.split(batches), y.split(batches))))


def test_coarse_to_fine_counts_in_units_of_all_data():
    obj = network(200)
    dense = hessian(obj) @ torch.eye(obj.layout.size, dtype=torch.float64)
    H, coarse = hessian(obj), Counted(hessian(obj.subsample(0.1, torch.Generator().manual_seed(0))))
    pairs = eigsh(H, 3, tol=1e-6, coarse=coarse)
    assert torch.allclose(pairs.values, torch.linalg.eigvalsh(dense).flip(0)[:3], rtol=1e-6)
    total = pairs.num_matvecs + 0.1 * coarse.num_matvecs
    assert f"and {coarse.num_matvecs} coarse ones ({total:.3g} full ones in all)" in pairs.status


@pytest.mark.parametrize(("samples", "rows"), [(20, 20), (0.1, 20), (1, 4), (0.35, 72), (500, 200), (1.0, 200)])
def test_a_subsample_is_a_mean_over_some_of_the_rows(samples, rows):
    obj = network(50)
    part = obj.subsample(samples, torch.Generator().manual_seed(3))
    again = obj.subsample(samples, torch.Generator().manual_seed(3))
    every = torch.cat([x for x, _ in obj.batches()])
    found, labels = (torch.cat(list(t)) for t in zip(*part.batches()))
    assert part.num_samples == len(found) == rows
    assert ((found[:, None] == every).all(-1).sum(1) == 1).all()  # each is a row
    assert len(found.unique(dim=0)) == rows  # and none came twice
    with torch.no_grad():
        assert torch.allclose(part.loss(), nn.functional.cross_entropy(obj.model(found), labels))
    assert torch.equal(part.loss(), again.loss())
    assert obj.num_samples == 200


@pytest.mark.parametrize("samples", [0, -1, 0.0, 1.5, True, "all"])
def test_a_subsample_of_nothing_is_a_sentence(samples):
    with pytest.raises(DataError, match=r"expected a number of rows, such as 500, or a share of them, such as 0\.1"):
        network(50).subsample(samples)


def noisy(A, level, seed=0):
    """Products with noise of this share of |A| in every direction."""
    generator, size = torch.Generator().manual_seed(seed), float(torch.linalg.matrix_norm(A, 2)) / len(A) ** 0.5
    return as_operator(lambda v: A @ v + level * size * v.norm() * torch.randn(len(A), generator=generator), n=len(A))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("level", [1e-4, 1e-3, 1e-2])
def test_a_tolerance_below_the_noise_is_refused_before_products_are_burnt_on_it(level, k):
    A = rotated(spectrum_like("outliers", N), dtype=torch.float32)
    within = eigsh(noisy(A, level), k, tol=10 * level, generator=torch.Generator().manual_seed(0))
    assert within.converged
    for tol in (level / 100, 1e-9):
        below = eigsh(noisy(A, level), k, tol=tol, generator=torch.Generator().manual_seed(0))
        assert not below.converged
        assert below.num_matvecs <= within.num_matvecs
        assert "the others stopped at the noise of these float32 products" in below.status
        assert torch.allclose(below.values, torch.linalg.eigvalsh(A.double()).flip(0)[:k], rtol=0, atol=4 * level * 50)
        typed = float(below.status.split("type tol=")[1].split(",")[0])
        assert level < typed < 50 * level
        assert eigsh(noisy(A, level, seed=1), k, tol=typed, generator=torch.Generator().manual_seed(1)).converged
