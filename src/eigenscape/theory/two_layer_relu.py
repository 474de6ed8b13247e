"""The two-layer ReLU network `f(x) = W relu(V x + b) + c`: exact spectra by activation pattern, away from the kinks."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum, TheoryError
from .derivatives import Derivatives, derivatives_at
from .factors import Neurons
from .members import collate, member
from .moments import check_overflow
from .product_bulk import ProductFrame
from .reduction import Reduction
from .two_layer import TwoLayerInputs, noise_scale, pad


def gates_of(net: TwoLayerInputs, negative_slope: float) -> Float[Tensor, "*batch n m"]:
    """Slope of each hidden unit at each sample; strict at the kink, where autograd also takes the left derivative."""
    if not math.isfinite(negative_slope):
        raise TheoryError(f"negative_slope is {negative_slope}; expected a finite number, such as 0 for a ReLU.")
    active = (net.X @ net.V.mT).detach() > 0
    return torch.where(active, net.W.new_ones(()), net.W.new_full((), negative_slope))


def two_layer_relu(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    Y: Tensor,
    *,
    loss: str | Derivatives = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
    negative_slope: float = 0.0,
    vectors: bool = True,
) -> Spectrum:
    r"""Return the exact Hessian spectrum of `mean_i loss(W relu(V x_i + b) + c, y_i)` for any sizes, data and loss.

    Neurons that fire on the same samples form a linear network of their own, whose product has the gradient
    `Omega_g = mean_i 1_g(i) l'_i x_i^T`: each group of m_g neurons contributes `+-sigma(Omega_g)`, m_g - r_g times each, and
    zeros; a dead neuron contributes D + K zeros. What is left is one small matrix, since groups meet in the Gauss-Newton
    part only. With one input there are two groups, and this is Theorem 3.4 of [cracking] without its excluded cases. The
    small matrix is small when many neurons share patterns; with none shared it is the Hessian itself.

    Valid where no pre-activation is 0; there it agrees with autograd, which takes the left derivative. Arguments and the
    order of parameters are those of `two_layer_linear`; a `negative_slope` makes it a leaky ReLU (1 is the linear network).
    The members of a batch are computed one by one and carry no eigenvectors.

    >>> W, V = torch.tensor([[2.0, 0.0, 5.0]]), torch.tensor([[1.0], [1.0], [-1.0]])
    >>> s = two_layer_relu(W, V, X=torch.ones(1, 1), Y=torch.ones(1, 1))         # the third neuron is dead
    >>> s.expand().round(decimals=6).tolist()
    [-1.0, -0.741657, 0.0, 0.0, 1.0, 6.741657]
    """
    net = TwoLayerInputs.of(W, V, X, hidden_bias, output_bias)
    gates = gates_of(net, negative_slope)
    f = net.outputs(gates)
    d1, d2 = derivatives_at(loss, f, Y)
    batch = d1.shape[:-2]
    if not batch:
        return _spectrum(net, gates, f, d1, d2, vectors=vectors)
    members = []
    for i in range(batch.numel()):
        gates_i, f_i, d1_i = (member(A, 2, batch, i) for A in (gates, f, d1))
        d2_i = d2 if d2.ndim == 0 else member(d2, 3, batch, i)
        members.append(_spectrum(net.member(batch, i), gates_i, f_i, d1_i, d2_i, vectors=False))
    return collate(members, batch)


def _spectrum(net: TwoLayerInputs, gates: Tensor, f: Tensor, d1: Tensor, d2: Tensor, *, vectors: bool) -> Spectrum:
    """One network: a frame for each activation pattern, and one small matrix for all."""
    n = net.X.shape[-2]
    patterns, of_neuron = torch.unique(gates, dim=-1, return_inverse=True)
    groups, gradients, jacobians = [], [], []
    for g, pattern in enumerate(patterns.mT):
        index = (of_neuron == g).nonzero()[:, 0]
        X = pattern.unsqueeze(-1) * net.X
        alive = bool((pattern != 0).any())
        W, V, gradient = net.W[:, index] * alive, net.V[index], d1.mT @ X / n
        check_overflow(gradient)
        frame = ProductFrame.of(W, V * X.square().mean(-2).sqrt(), gradient, noise_scale(f, d1, X))
        groups.append((frame, Neurons(net.parameters, index)))
        gradients.append(gradient)
        jacobians.append(torch.einsum("kdj,nd->nkj", frame.jacobian(W, V), X))
    J = torch.cat(jacobians, -1)
    if net.c is not None:
        J = torch.cat([J, torch.eye(J.shape[-2], dtype=J.dtype, device=J.device).expand(n, -1, -1)], -1)
    curved = d2 * J if d2.ndim == 0 else d2 @ J
    couplings = [frame.coupling(gradient) for (frame, _), gradient in zip(groups, gradients)]
    matrix = pad(torch.block_diag(*couplings), net.parameters) + J.flatten(0, 1).mT @ curved.flatten(0, 1) / n
    return Reduction(net.parameters, groups, matrix).spectrum(gradients, vectors=vectors)
