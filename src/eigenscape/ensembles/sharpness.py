"""Sharpness, trace and whole spectra of all members at once."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import CurvatureError, Spectrum
from ..solvers import dense, eigsh
from ..theory import two_layer_linear
from .ensemble import Ensemble, total
from .hessian import hessian


@dataclass(frozen=True, eq=False)
class Sharpness:
    """The k extreme Hessian eigenvalues of every member, with the norms of their residuals and how they were found."""

    values: Float[Tensor, "N k"]
    residual_norms: Float[Tensor, "N k"]
    status: str
    converged: bool


def sharpness(
    ensemble: Ensemble,
    X: Float[Tensor, "*N n D"],
    Y: Float[Tensor, "*N n K"],
    k: int = 1,
    which: str = "largest",
    *,
    loss: str = "half_mse",
    tol: float = 1e-6,
    generator: torch.Generator | None = None,
) -> Sharpness:
    """Return the k largest (or `"smallest"`, or `"both"`) Hessian eigenvalues of every member, in the order of `eigsh`.

    >>> one = torch.ones(1, 1, 1, dtype=torch.float64)
    >>> x = torch.ones(1, 1, dtype=torch.float64)
    >>> sharpness(Ensemble((2 * one, 3 * one)), x, 6 * x).values
    tensor([[13.]], dtype=torch.float64)
    """
    pairs = eigsh(hessian(ensemble, X, Y, loss), k, which, tol, generator=generator)
    return Sharpness(pairs.values, pairs.residual_norms, pairs.status, pairs.converged)


def spectra(ensemble: Ensemble, X: Float[Tensor, "*N n D"], Y: Float[Tensor, "*N n K"], *, loss: str = "half_mse") -> Spectrum:
    """Every Hessian eigenvalue of every member: by the exact reduction for two linear layers, else from the whole matrix.

    >>> one = torch.ones(2, 1, 1)
    >>> spectra(Ensemble((2 * one, 3 * one)), torch.ones(1, 1), 6 * torch.ones(1, 1)).expand()
    tensor([[ 0., 13.],
            [ 0., 13.]], dtype=torch.float64)
    """
    if ensemble.activation == "linear" and ensemble.depth == 2:
        V, W = ensemble.weights
        return two_layer_linear(W, V, total(ensemble.multipliers) * X, Y, loss=loss, vectors=False)
    return dense(hessian(ensemble, X, Y, loss))


def trace(
    ensemble: Ensemble, X: Float[Tensor, "*N n D"], Y: Float[Tensor, "*N n K"], *, loss: str = "half_mse"
) -> Float[Tensor, "N"]:
    r"""Trace of every member's Hessian, exactly, for linear and ReLU networks.

    A layer enters such a network linearly, so that its block of the Hessian is Gauss-Newton:
    `tr H = sum_l mean_i c_l^2 |h_{l-1,i}|^2 |df/dz_{l,i}|_F^2`, at the cost of one backward pass per output.

    >>> one = torch.ones(1, 1, 1)
    >>> trace(Ensemble((2 * one, 3 * one), "relu"), torch.ones(1, 1), torch.zeros(1, 1))
    tensor([13.])
    """
    ensemble.check_samples(X=X, Y=Y)
    if ensemble.activation == "tanh":
        raise CurvatureError("the activation is tanh; expected linear or relu: es.trace(ensembles.hessian(...)) estimates it.")
    run, scale = ensemble.run(X), ensemble.loss_scale(loss) / X.shape[-2]
    powers = [h.square().sum(-1) for h in run.inputs]
    traces = torch.zeros(len(ensemble), dtype=ensemble.dtype, device=ensemble.device)
    for k in range(ensemble.widths[-1]):
        unit = torch.zeros_like(run.outputs)
        unit[..., k] = 1
        for power, delta in zip(powers, run.backward(unit)):
            traces += scale * (power * delta.square().sum(-1)).sum(-1)
    return traces
