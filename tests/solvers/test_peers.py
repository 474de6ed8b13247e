"""The same matrices through SciPy's ARPACK, curvlinops and hessian-eigenthings."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh as arpack
from torch import nn

from eigenscape.curvature import Objective, hessian
from eigenscape.linop import Dense, as_operator
from eigenscape.solvers import eigsh, trace
from eigenscape.testing import rotated, spectrum_like

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # the other libraries' own
REASON = "needs the extra `bench`: pip install eigenscape[bench]"


def problem():
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 3)).double()
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    X = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (60,), generator=generator)
    return model, nn.CrossEntropyLoss(), [(X[:30], y[:30]), (X[30:], y[30:])]


@pytest.mark.parametrize("which", ["largest", "smallest", "both", "magnitude"])
@pytest.mark.parametrize("name", ["outliers", "indefinite", "clustered", "power law"])
def test_arpack_finds_the_same_pairs(name, which):
    A = Dense(rotated(spectrum_like(name, 400)))
    name_there = {"largest": "LA", "smallest": "SA", "both": "BE", "magnitude": "LM"}[which]
    theirs = np.sort(arpack(A.to_scipy(), 8 if which == "both" else 4, which=name_there, ncv=80, tol=1e-12)[0])
    ours = eigsh(A, 4, which, tol=1e-9).values.sort().values.numpy()
    assert np.allclose(ours, theirs, atol=1e-8)


def test_curvlinops_has_the_same_hessian():
    curvlinops = pytest.importorskip("curvlinops", reason=REASON)
    model, criterion, data = problem()
    theirs = curvlinops.HessianLinearOperator(model, criterion, list(model.parameters()), data)
    H = hessian(Objective(model, criterion, data))
    one, other = eigsh(as_operator(theirs, dtype=torch.float64), 5, "both", tol=1e-9), eigsh(H, 5, "both", tol=1e-9)
    assert torch.allclose(one.values, other.values, atol=1e-10)
    assert torch.allclose(
        trace(as_operator(theirs, dtype=torch.float64), max_matvecs=500).value, trace(H, max_matvecs=500).value
    )


def test_hessian_eigenthings_finds_the_same_top_pairs():
    eigenthings = pytest.importorskip("hessian_eigenthings", reason=REASON)
    model, criterion, data = problem()
    operator = eigenthings.HessianOperator(model, data, eigenthings.loss_fns.supervised_loss(criterion))
    theirs = eigenthings.lanczos(operator, k=3, max_iter=60, reorthogonalize=True)  # else ghosts
    ours = eigsh(hessian(Objective(model, criterion, data)), 3, "magnitude", tol=1e-8)
    assert torch.allclose(theirs.eigenvalues.double().abs().sort().values, ours.values.abs().sort().values, rtol=1e-4)
