"""The two-layer ReLU network in parts: functional Hessian, Gauss-Newton matrix, and the bounds that hold between them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum
from .derivatives import Derivatives, derivatives_at
from .moments import check_overflow
from .product_bulk import kron
from .two_layer import TwoLayerInputs
from .two_layer_bounds import squared_curvature
from .two_layer_relu import gates_of


def two_layer_relu_functional(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    Y: Tensor,
    *,
    loss: str | Derivatives = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
    negative_slope: float = 0.0,
) -> Spectrum:
    r"""Return the spectrum of the functional Hessian, which is the Hessian minus its Gauss-Newton part.

    It has one block `[[0, Omega_j^T], [Omega_j, 0]]` for each neuron j, with `Omega_j = mean_i 1_j(i) l'_i x_i^T`: the
    singular values of every Omega_j with both signs, neuron by neuron, and zeros.

    >>> W, V = torch.tensor([[2.0, 5.0]]), torch.tensor([[1.0], [-1.0]])
    >>> two_layer_relu_functional(W, V, X=torch.ones(1, 1), Y=torch.ones(1, 1)).values.abs().tolist()
    [1.0, 0.0, 1.0, 0.0, 0.0]
    """
    net = TwoLayerInputs.of(W, V, X, hidden_bias, output_bias)
    Omega = _neuron_gradients(net, Y, loss, negative_slope)
    sigma = torch.linalg.svdvals(Omega).flatten(-2)
    rest = net.parameters.layout.size - 2 * sigma.shape[-1]
    values = torch.cat([sigma, -sigma, sigma.new_zeros(*sigma.shape[:-1], 1)], -1)
    counts = torch.tensor([1] * (2 * sigma.shape[-1]) + [rest], device=values.device)
    return Spectrum(values, counts, ("bulk",) * (2 * sigma.shape[-1]) + ("zero",))


def _neuron_gradients(
    net: TwoLayerInputs, Y: Tensor, loss: str | Derivatives, negative_slope: float
) -> Float[Tensor, "*batch m K D"]:
    """`Omega_j = mean_i gate_ij l'_i x_i^T` for each neuron j."""
    gates = gates_of(net, negative_slope)
    d1, _ = derivatives_at(loss, net.outputs(gates), Y)
    gated = gates.mT.unsqueeze(-1) * net.X.unsqueeze(-3)  # (*batch, m, n, D)
    Omega = d1.mT.unsqueeze(-3) @ gated / net.X.shape[-2]
    check_overflow(Omega)
    return Omega


def two_layer_relu_ggn(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    *,
    loss: str = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
    negative_slope: float = 0.0,
) -> Spectrum:
    r"""Return the Gauss-Newton eigenvalues of the two-layer ReLU network under squared errors: n K of them, and zeros.

    They are those of the kernel matrix
    `(1/n) (delta_kl (h_i . h_j + [c]) + (x_i . x_j) sum_m W_km W_lm 1_m(i) 1_m(j))` with hidden units h, of size n K.

    >>> W, V = torch.tensor([[2.0, 5.0]]), torch.tensor([[1.0], [-1.0]])
    >>> two_layer_relu_ggn(W, V, X=torch.ones(1, 1)).expand().tolist()
    [0.0, 0.0, 0.0, 5.0]
    """
    net = TwoLayerInputs.of(W, V, X, hidden_bias, output_bias)
    h = squared_curvature(loss, net.W.shape[-2])
    gates = gates_of(net, negative_slope)
    values = h * torch.linalg.eigvalsh(_kernel(net, gates)).flip(-1)
    total = net.parameters.layout.size
    kept = min(values.shape[-1], total)  # more equations than parameters: the rest is exactly zero
    values, counts, labels = values[..., :kept], [1] * kept, ["outlier"] * kept
    if total > kept:
        values = torch.cat([values, values.new_zeros(*values.shape[:-1], 1)], -1)
        counts, labels = [*counts, total - kept], [*labels, "zero"]
    return Spectrum(values, torch.tensor(counts, device=values.device), tuple(labels))


def _kernel(net: TwoLayerInputs, gates: Tensor) -> Float[Tensor, "*batch nK nK"]:
    """Gram matrix of the rows of the Jacobian of all outputs, over n; rows are sample by sample."""
    n, K = net.X.shape[-2], net.W.shape[-2]
    hidden = (net.X @ net.V.mT) * gates
    weighted = (gates.unsqueeze(-2) * net.W.unsqueeze(-3)).flatten(-3, -2)  # (*batch, n K, m): d f_ik / d h_im
    ones = torch.ones(K, K, dtype=hidden.dtype, device=hidden.device)
    eye = torch.eye(K, dtype=hidden.dtype, device=hidden.device)
    bias = 0.0 if net.c is None else 1.0
    inputs, outputs = net.X @ net.X.mT, hidden @ hidden.mT + bias
    return (kron(inputs, ones) * (weighted @ weighted.mT) + kron(outputs, eye)) / n


@dataclass(frozen=True, eq=False)
class ReluBounds:
    """Certified bounds for a two-layer ReLU network, away from the kinks."""

    gap: Float[Tensor, "*batch"]
    """`max_j |Omega_j|_2`: `|lambda_max(H) - lambda_max(GGN)| <= gap` and `lambda_min(H) >= -gap` for convex losses."""
    ggn_rank: int
    """`min(n K, parameters)`, which the rank of the Gauss-Newton matrix does not exceed."""
    trace: Float[Tensor, "*batch"]
    """Trace of the Hessian, which is that of the Gauss-Newton matrix: the functional part has a zero diagonal."""


def two_layer_relu_bounds(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    Y: Tensor,
    *,
    loss: str | Derivatives = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
    negative_slope: float = 0.0,
) -> ReluBounds:
    r"""Bound what the Hessian of a two-layer ReLU network can differ from its Gauss-Newton part by, and give the trace.

    For squared errors the trace is `sum_j |w_j|^2 tr S_jj + K v_j^T S_jj v_j` with `S_jj = mean 1_j x x^T`.

    >>> W, V = torch.tensor([[2.0, 5.0]]), torch.tensor([[1.0], [-1.0]])
    >>> bounds = two_layer_relu_bounds(W, V, X=torch.ones(1, 1), Y=torch.ones(1, 1))
    >>> bounds.gap.item(), bounds.ggn_rank, bounds.trace.item()
    (1.0, 1, 5.0)
    """
    net = TwoLayerInputs.of(W, V, X, hidden_bias, output_bias)
    gates = gates_of(net, negative_slope)
    _, d2 = derivatives_at(loss, net.outputs(gates), Y)
    n, K = net.X.shape[-2], net.W.shape[-2]
    if d2.ndim == 0:
        d2 = d2 * torch.eye(K, dtype=net.W.dtype, device=net.W.device)
    weighted = gates.unsqueeze(-2) * net.W.unsqueeze(-3)  # (*batch, n, K, m)
    curvature = (weighted * (d2 @ weighted)).sum((-2, -1)) * net.X.square().sum(-1)
    hidden = ((net.X @ net.V.mT) * gates).square().sum(-1) + (0.0 if net.c is None else 1.0)
    return ReluBounds(
        gap=torch.linalg.matrix_norm(_neuron_gradients(net, Y, loss, negative_slope), 2).amax(-1),
        ggn_rank=min(n * K, net.parameters.layout.size),
        trace=(curvature + hidden * d2.diagonal(dim1=-2, dim2=-1).sum(-1)).mean(-1),
    )
