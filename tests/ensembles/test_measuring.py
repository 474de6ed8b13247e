"""What is measured of many networks at once is what the dense Hessian of each has, by autograd."""

import pytest
import torch
from torch.autograd.functional import hessian

from eigenscape import CurvatureError, ensembles
from eigenscape.ensembles import initialise, sharpness, spectra, trace

CASES = [
    ("sp", "linear", (3, 12, 2)),
    ("ntp", "linear", (1, 9, 1)),
    ("mup", "linear", (2, 5, 4)),
    ("sp", "linear", (3, 4, 5, 2)),
    ("ntp", "relu", (3, 6, 2)),
    ("sp", "relu", (2, 5, 4, 1)),
    ("orthogonal", "tanh", (3, 5, 2)),
]
ACTIVATIONS = {"linear": lambda z: z, "relu": torch.relu, "tanh": torch.tanh}


def population(scheme, activation, widths, own=False):
    g = torch.Generator().manual_seed(3)
    nets, _ = initialise(scheme, widths, 3, g, activation=activation, gain=1.3)
    lead = (3,) if own else ()
    X = torch.randn(*lead, 20, widths[0], generator=g, dtype=torch.float64)
    return nets, X, 3 * torch.randn(*lead, 20, widths[-1], generator=g, dtype=torch.float64)


def dense(nets, X, Y, loss):
    """Eigenvalues of each member's Hessian, reverse over reverse."""
    shapes = [W.shape[1:] for W in nets.weights]

    def value(t, x, y):
        h = x
        for l, part in enumerate(t.split([s.numel() for s in shapes])):
            h = nets.multipliers[l] * h @ part.view(shapes[l]).T
            h = ACTIVATIONS[nets.activation](h) if l < len(shapes) - 1 else h
        return (h - y).square().mean() if loss == "mse" else (h - y).square().sum() / (2 * len(x))

    samples = [tuple(A[i] if A.ndim == 3 else A for A in (X, Y)) for i in range(len(nets))]
    found = [hessian(lambda t, x=x, y=y: value(t, x, y), t) for t, (x, y) in zip(nets.flat(), samples)]
    return torch.linalg.eigvalsh(torch.stack(found))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("scheme", "activation", "widths"), CASES)
def test_both_ends_of_every_spectrum(scheme, activation, widths, own):
    nets, X, Y = population(scheme, activation, widths, own)
    exact = dense(nets, X, Y, "mse")
    scale = exact.abs().max()
    for k in (1, 3):
        top = sharpness(nets, X, Y, k, loss="mse", tol=1e-9)
        assert top.converged
        assert (top.values - exact.flip(-1)[:, :k]).abs().max() < 1e-9 * scale
        low = sharpness(nets, X, Y, k, "smallest", loss="mse", tol=1e-9)
        assert (low.values - exact[:, :k]).abs().max() < 1e-9 * scale
    both = sharpness(nets, X, Y, 1, "both", loss="mse", tol=1e-9)
    assert (both.values.sort().values - exact[:, [0, -1]]).abs().max() < 1e-9 * scale


@pytest.mark.parametrize(("scheme", "activation", "widths"), CASES)
def test_whole_spectra(scheme, activation, widths):
    nets, X, Y = population(scheme, activation, widths)
    exact = dense(nets, X, Y, "half_mse")
    torch.testing.assert_close(spectra(nets, X, Y).expand(), exact, rtol=0, atol=1e-12 * exact.abs().max().item())


@pytest.mark.parametrize(("scheme", "activation", "widths"), CASES[:-1])
def test_traces(scheme, activation, widths):
    nets, X, Y = population(scheme, activation, widths, own=True)
    torch.testing.assert_close(trace(nets, X, Y, loss="mse"), dense(nets, X, Y, "mse").sum(-1), rtol=1e-11, atol=1e-11)


def test_the_trace_of_tanh_is_refused():
    nets, X, Y = population("sp", "tanh", (3, 5, 2))
    with pytest.raises(CurvatureError, match="the activation is tanh; expected linear or relu"):
        trace(nets, X, Y)


def test_a_reduced_network_gives_back_the_bulk():
    # V = W = 0: all that is left is the bulk, plus and minus the singular values of mean y x^T, 6 times each.
    zero = torch.zeros(2, 6, 2, dtype=torch.float64)
    X, Y = torch.eye(2, dtype=torch.float64), torch.diag(torch.tensor([6.0, 2.0], dtype=torch.float64))
    nets = ensembles.Ensemble((zero, zero.mT.contiguous()))
    for which, sign in (("largest", 1), ("smallest", -1)):
        found = sharpness(nets, X, Y, 7, which)
        assert found.values[0].tolist() == pytest.approx([sign * 3.0] * 6 + [sign * 1.0])


def test_without_verification_it_is_the_same_number_for_less():
    nets, X, Y = population("sp", "linear", (9, 60, 9))
    sure, quick = (sharpness(nets, X, Y, tol=1e-8, verify=v, generator=torch.Generator().manual_seed(0)) for v in (True, False))
    torch.testing.assert_close(quick.values, sure.values, rtol=1e-12, atol=0)
    assert "to check" in sure.status
    assert "to check" not in quick.status
