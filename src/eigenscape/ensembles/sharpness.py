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
from .narrow import Narrow


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
    verify: bool = True,
    generator: torch.Generator | None = None,
) -> Sharpness:
    """Return the k largest (or `"smallest"`, or `"both"`) Hessian eigenvalues of every member, in the order of `eigsh`.

    Two linear layers wider than D + K are reduced to that width first, exactly. `verify=False` leaves out the search for
    eigenvalues that a random start could have missed.

    >>> one = torch.ones(1, 1, 1, dtype=torch.float64)
    >>> x = torch.ones(1, 1, dtype=torch.float64)
    >>> sharpness(Ensemble((2 * one, 3 * one)), x, 6 * x).values
    tensor([[13.]], dtype=torch.float64)
    """
    found, bulk = _reduced(ensemble, X, Y, k, which, loss)
    pairs = eigsh(hessian(found, X, Y, loss), k, which, tol, verify=verify, generator=generator)
    if bulk is None:
        return Sharpness(pairs.values, pairs.residual_norms, pairs.status, pairs.converged)
    sign, rounding = 1 if which == "largest" else -1, torch.finfo(bulk.dtype).eps
    bulk = bulk.to(pairs.values)
    values = torch.cat([pairs.values, sign * bulk], -1)
    residuals = torch.cat([pairs.residual_norms, rounding * bulk], -1)
    order = (sign * values).argsort(dim=-1, descending=True, stable=True)[:, :k]
    return Sharpness(values.gather(-1, order), residuals.gather(-1, order), pairs.status, pairs.converged)


def _reduced(ensemble: Ensemble, X: Tensor, Y: Tensor, k: int, which: str, loss: str) -> tuple[Ensemble, Tensor | None]:
    """A narrower network with the same outliers (see `Narrow`), and the k largest of the bulk that it has lost."""
    narrow = Narrow.of(ensemble.weights) if ensemble.activation == "linear" and which in ("largest", "smallest") else None
    if narrow is None:
        return ensemble, None
    small = ensemble.replace(narrow[1])
    copies = ensemble.widths[1] - small.widths[1]
    ensemble.check_samples(X=X, Y=Y)
    gain = total(ensemble.multipliers)
    rest = small.outputs(X) - Y
    sigma = torch.linalg.svdvals(rest.mT @ X * (gain * ensemble.loss_scale(loss) / X.shape[-2]))
    if k > min(small.layout.size, copies * sigma.shape[-1]):
        return ensemble, None
    return small, sigma.repeat_interleave(copies, -1)[:, :k]


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
