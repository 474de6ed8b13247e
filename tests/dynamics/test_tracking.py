"""A tracker agrees with dense eigenvalues at every look, cheaply, also when eigenvalues cross."""

import pytest
import torch

from eigenscape.core import SolverError
from eigenscape.dynamics.tracking import SMALL, Tracker
from eigenscape.linop import Dense, as_operator

N = 100


def family(seed, dtype=torch.float64):
    """Symmetric matrices with outliers that drift and turn slowly: t -> A(t)."""
    g = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(N, N, generator=g, dtype=torch.float64)).Q
    K = torch.randn(N, N, generator=g, dtype=torch.float64) / N**0.5
    bulk = torch.randn(N, generator=g, dtype=torch.float64)

    def at(t):
        values = bulk.clone()
        values[:4] = torch.tensor([20.0 + 0.1 * t, 12.0, 9.0, 6.0])
        turn = torch.linalg.matrix_exp(0.002 * t * (K - K.T))
        return (turn @ Q @ torch.diag(values) @ Q.T @ turn.T).to(dtype)

    return at


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_look_encloses_the_truth(k, dtype):
    tracker, at = Tracker(k, tol=0.02), family(1, dtype)
    costs = []
    for t in range(20):
        A = at(t)
        seen = tracker.look(Dense(A))
        exact = torch.linalg.eigvalsh(A.double()).flip(0)[:k]
        assert ((seen.values - exact).abs() <= seen.residual_norms).all()
        assert seen.low <= exact[0] + 1e-6 * exact[0]
        assert seen.high >= exact[0] - 1e-6 * exact[0]
        assert seen.converged
        assert (seen.residual_norms <= 0.021 * exact[0]).all()
        residual = A @ seen.vectors - seen.vectors * seen.values.to(dtype)
        assert (residual.double().norm(dim=0) <= seen.residual_norms).all()
        costs.append(seen.num_matvecs)
    assert sorted(costs)[len(costs) // 2] <= k + 2
    assert tracker.look(Dense(at(19))).num_matvecs == k + 2


def test_an_eigenvalue_that_overtakes_is_followed():
    g = torch.Generator().manual_seed(3)
    Q = torch.linalg.qr(torch.randn(N, N, generator=g, dtype=torch.float64)).Q
    tracker = Tracker(1, recheck=10**6)
    for t in range(60):
        values = torch.linspace(-1, 1, N, dtype=torch.float64)
        values[0], values[1] = 10.0, 4.0 + 0.2 * t  # they cross at t = 30
        seen = tracker.look(Dense(Q @ torch.diag(values) @ Q.T))
        assert seen.low - 1e-9 <= max(10.0, 4.0 + 0.2 * t) <= seen.high + 1e-9


def test_a_new_direction_is_found_by_the_guard_before_any_search():
    """The rising direction is orthogonal to everything the tracker holds when it starts to rise."""
    tracker = Tracker(1, recheck=10**6)
    values = torch.cat([torch.tensor([10.0, 5.0]), torch.linspace(-1, 1, N - 2)]).double()
    for t in range(80):
        values[7] = 0.5 * t / 2
        seen = tracker.look(Dense(torch.diag(values)))
        assert seen.high >= float(values.max()) - 1e-9, t


def test_small_matrices_are_certain():
    A = torch.diag(torch.arange(1.0, 11.0, dtype=torch.float64))
    tracker = Tracker(2)
    for scale in (1.0, -1.0, 3.0):
        seen = tracker.look(Dense(scale * A))
        top = torch.linalg.eigvalsh(scale * A).flip(0)[:2]
        torch.testing.assert_close(seen.values, top, rtol=1e-12, atol=1e-12)
        assert seen.num_matvecs == 10 <= SMALL
        assert seen.searched == 0


def test_a_search_is_repeated_on_schedule():
    tracker, A = Tracker(1, recheck=4), Dense(family(2)(0))
    assert [tracker.look(A).searched for _ in range(6)] == [0, 1, 2, 3, 0, 1]


def test_state_makes_a_new_tracker_go_on_alike():
    at = family(4)
    one, other = Tracker(1), Tracker(1)
    for t in range(5):
        one.look(Dense(at(t)))
    other.load_state_dict(one.state_dict())
    a, b = one.look(Dense(at(5))), other.look(Dense(at(5)))
    assert torch.equal(a.values, b.values)
    assert torch.equal(a.vectors, b.vectors)


def test_products_that_are_not_finite_are_an_error():
    tracker = Tracker(1)
    tracker.look(Dense(family(1)(0)))
    with pytest.raises(SolverError, match="not finite"):
        tracker.look(as_operator(lambda v: v * float("nan"), n=N, dtype=torch.float64))
