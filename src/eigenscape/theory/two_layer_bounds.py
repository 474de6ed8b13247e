"""The two-layer linear network under squared errors: Gauss-Newton eigenvalues from K small problems, trace and bounds."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum, TheoryError
from .derivatives import derivatives_at
from .two_layer import TwoLayerInputs

CURVATURE = {"half_mse": lambda K: 1.0, "mse": lambda K: 2 / K}


def input_factor(X: Float[Tensor, "*batch n D"]) -> Float[Tensor, "*batch k D"]:
    """F of min(n, D) rows with `F^T F = X^T X / n`, without squaring the condition number.

    >>> F = input_factor(torch.tensor([[3.0], [1.0]]))
    >>> (F.mT @ F).round(decimals=5)
    tensor([[5.]])
    """
    n, D = X.shape[-2:]
    return (X if n <= D else torch.linalg.qr(X, mode="r").R) / n**0.5


def squared_curvature(loss: str, K: int) -> float:
    """Second derivative of a squared error with respect to each output."""
    if loss not in CURVATURE:
        raise TheoryError(f"loss is {loss!r}; expected half_mse or mse: for other losses use two_layer_linear.")
    return CURVATURE[loss](K)


class _Forms:
    """The forms `F (V^T V + tau I) F^T` (plus the output bias), one for each eigenvalue tau of W W^T."""

    def __init__(self, net: TwoLayerInputs):
        X, self.K = net.X, net.W.shape[-2]
        if net.c is not None:
            X = torch.cat([X, torch.ones_like(X[..., :1])], -1)
        F = input_factor(X)
        inner = F[..., : net.X.shape[-1]]
        hidden = inner @ net.V.mT
        self.fixed = hidden @ hidden.mT
        if net.c is not None:
            self.fixed = self.fixed + F[..., -1:] @ F[..., -1:].mT
        self.inputs = inner @ inner.mT
        self.tau = torch.linalg.eigvalsh(net.W @ net.W.mT)

    def at(self, tau: Tensor) -> Float[Tensor, "*batch k k"]:
        """The form of one tau."""
        return self.fixed + tau[..., None, None] * self.inputs


def squared_error_ggn(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    *,
    loss: str = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
) -> Spectrum:
    r"""Return the Gauss-Newton eigenvalues of the two-layer linear network under squared errors, at any point.

    They are those of `Sxx^{1/2} (V^T V + tau I) Sxx^{1/2}` for every eigenvalue tau of `W W^T`, and zeros: K problems of size
    D. The largest belongs to `tau = |W|_2^2`; for white inputs it is `s2 (|W|_2^2 + |V|_2^2)`, the sum of the squared
    spectral norms ([data] eq. 10), not the larger of the two ([cracking] App. D.3.3).

    >>> W, V = torch.tensor([[2.0]]), torch.tensor([[1.0]])
    >>> squared_error_ggn(W, V, X=torch.ones(3, 1)).expand().round(decimals=9).tolist()
    [0.0, 5.0]
    """
    net = TwoLayerInputs.of(W, V, X, hidden_bias, output_bias)
    h, forms, total = squared_curvature(loss, net.W.shape[-2]), _Forms(net), net.parameters.layout.size
    values = h * torch.cat([torch.linalg.eigvalsh(forms.at(tau)) for tau in forms.tau.unbind(-1)], -1)
    kept = min(values.shape[-1], total)  # more equations than parameters: the rest is exactly zero
    values = values.sort(-1, descending=True).values[..., :kept]
    counts, labels = [1] * kept, ["outlier"] * kept
    if total > kept:
        values = torch.cat([values, values.new_zeros(*values.shape[:-1], 1)], -1)
        counts, labels = [*counts, total - kept], [*labels, "zero"]
    return Spectrum(values, torch.tensor(counts, device=values.device), tuple(labels))


@dataclass(frozen=True, eq=False)
class TwoLayerBounds:
    """Bounds on the Hessian of a two-layer linear network under squared errors; all hold at any point, for any data.

    `|largest eigenvalue - ggn_max| <= residual` (Weyl), and `smallest >= -residual`, with equality once the width is at
    least K + D. The residual vanishes with the residual covariance Omega, not with the loss.
    """

    residual: Float[Tensor, "*batch"]
    """`|Omega|_2`, Omega the derivative of the loss with respect to W V: what the Hessian and Gauss-Newton differ by."""
    residual_bound: Float[Tensor, "*batch"]
    """`sqrt(2 loss lambda_max(Sxx))` (in the normalisation of half_mse), an upper bound on `residual` by the loss alone."""
    ggn_max: Float[Tensor, "*batch"]
    """Largest eigenvalue of the Gauss-Newton matrix."""
    layers: Float[Tensor, "*batch"]
    """`max(|W|_2^2 lambda_max(Sxx), |V Sxx^{1/2}|_2^2)`: the diagonal blocks alone, a lower bound on the largest eigenvalue
    up to a factor of two too small ([cracking] App. D.3.3 needs the factors of Sxx unless inputs are white)."""
    trace: Float[Tensor, "*batch"]
    """`|W|_F^2 tr Sxx + K |V Sxx^{1/2}|_F^2`, the trace of the Hessian itself at any loss ([cracking] App. D.4)."""

    @property
    def largest(self) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """Lower and upper bound on the largest eigenvalue."""
        return torch.maximum(self.layers, self.ggn_max - self.residual), self.ggn_max + self.residual

    @property
    def smallest(self) -> Float[Tensor, "*batch"]:
        """Lower bound on the smallest eigenvalue."""
        return -self.residual


def two_layer_linear_bounds(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    Y: Float[Tensor, "*batch n K"],
    *,
    loss: str = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
) -> TwoLayerBounds:
    """Bound the extreme eigenvalues and give the trace, from a few problems of size D.

    >>> one = torch.ones(1, 1)
    >>> bounds = two_layer_linear_bounds(2 * one, one, X=one, Y=one)
    >>> bounds.residual.item(), bounds.ggn_max.item(), bounds.trace.item()
    (1.0, 5.0, 5.0)
    """
    net = TwoLayerInputs.of(W, V, X, hidden_bias, output_bias)
    K, forms = net.W.shape[-2], _Forms(net)
    h = squared_curvature(loss, K)
    d1, _ = derivatives_at(loss, net.outputs(), Y)
    top = torch.linalg.eigvalsh(forms.inputs)[..., -1]
    hidden = torch.linalg.eigvalsh(forms.fixed)[..., -1]
    traces = [A.diagonal(dim1=-2, dim2=-1).sum(-1) for A in (forms.inputs, forms.fixed)]
    return TwoLayerBounds(
        residual=torch.linalg.matrix_norm(d1.mT @ net.X / net.X.shape[-2], 2),
        residual_bound=(d1.square().sum(-1).mean(-1) * top).sqrt(),
        ggn_max=h * torch.linalg.eigvalsh(forms.at(forms.tau[..., -1]))[..., -1],
        layers=h * torch.maximum(forms.tau[..., -1] * top, hidden),
        trace=h * (net.W.square().sum((-2, -1)) * traces[0] + K * traces[1]),
    )
