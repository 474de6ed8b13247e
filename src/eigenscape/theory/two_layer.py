"""The two-layer linear network `f(x) = W (V x + b) + c`: the exact Hessian spectrum for any sizes, data, loss and point."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum
from .derivatives import Derivatives, derivatives_at
from .factors import FactorLayout, Neurons
from .members import member
from .moments import check_overflow, conform
from .product_bulk import ProductFrame
from .reduction import Reduction


@dataclass(frozen=True, eq=False)
class TwoLayerInputs:
    """Checked inputs of a two-layer network; a hidden bias has become the last column of V and a column of ones of X."""

    W: Float[Tensor, "*batch K m"]
    V: Float[Tensor, "*batch m D"]
    X: Float[Tensor, "*data n D"]
    c: Float[Tensor, "*batch K"] | None
    parameters: FactorLayout

    @classmethod
    def of(cls, W: Tensor, V: Tensor, X: Tensor, hidden_bias: Tensor | None, output_bias: Tensor | None) -> "TwoLayerInputs":
        """Check the shapes and let the weights share one batch."""
        given = {"W": W, "V": V, "X": X}
        given |= {} if hidden_bias is None else {"hidden_bias": hidden_bias}
        given |= {} if output_bias is None else {"output_bias": output_bias}
        axes = {"W": "K m", "V": "m D", "X": "n D", "hidden_bias": "m", "output_bias": "K"}
        found = dict(zip(given, conform(axes, **given)))
        W, V, X = found["W"], found["V"], found["X"]
        batch = torch.broadcast_shapes(*(A.shape[: A.ndim - len(axes[name].split())] for name, A in found.items()))
        parameters = FactorLayout(W.shape[-2], W.shape[-1], V.shape[-1], hidden_bias is not None, output_bias is not None)
        V = V.expand(*batch, *V.shape[-2:])
        if hidden_bias is not None:
            V = torch.cat([V, found["hidden_bias"].expand(*batch, V.shape[-2]).unsqueeze(-1)], -1)
            X = torch.cat([X, torch.ones_like(X[..., :1])], -1)
        return cls(W.expand(*batch, *W.shape[-2:]), V, X, found.get("output_bias"), parameters)

    def member(self, batch: torch.Size, i: int) -> "TwoLayerInputs":
        """The i-th network of a batch, in row-major order."""
        W, V, X = (member(A, 2, batch, i) for A in (self.W, self.V, self.X))
        return TwoLayerInputs(W, V, X, None if self.c is None else member(self.c, 1, batch, i), self.parameters)

    def outputs(self, gates: Tensor | None = None) -> Float[Tensor, "*batch n K"]:
        """Outputs of the network; `gates` (*batch, n, m) multiply the hidden units."""
        hidden = self.X @ self.V.mT
        f = (hidden if gates is None else hidden * gates) @ self.W.mT
        return f if self.c is None else f + self.c.unsqueeze(-2)


def two_layer_linear(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    Y: Tensor,
    *,
    loss: str | Derivatives = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
    vectors: bool = True,
) -> Spectrum:
    r"""Return the exact Hessian spectrum of `mean_i loss(W (V x_i + b) + c, y_i)`, at any point, for any data and sizes.

    With `Omega = mean_i l'_i x_i^T` (for squared errors: the residual covariance) of singular values sigma_i:
    `+-sigma_i`, m - r times each, zeros, and the eigenvalues of one small matrix, where r <= K + D is the dimension spanned
    by the rows of W and the columns of V. The small matrix has a size of at most `min(K, D)^2 + 3 K D` (+ K with an output
    bias), whatever the width m and the number of samples: for one output, 3 D + 1. This contains Theorems 3.1 to 3.3 and
    B.1 of [cracking] and needs none of their assumptions.

    Rows of X are samples. `loss` is `"half_mse"` (`1/(2n) sum |f - y|^2`), `"mse"` (torch's), `"cross_entropy"` (Y holds
    classes or probabilities), or a function `(outputs, Y) -> (d1, d2)` with the derivatives of each sample's loss.
    Vectors are flat in the order V, b, W, c, each row-major: that of `Sequential(Linear(D, m), Linear(m, K))`. They are
    computed when first asked for; `vectors=False` gives back the memory they need. Eigenvalues can be differentiated once.

    >>> W, V = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[1.0], [0.0], [0.0]])
    >>> s = two_layer_linear(W, V, X=torch.ones(1, 1), Y=torch.ones(1, 1))
    >>> s.values.round(decimals=6).tolist(), s.multiplicities.tolist()
    ([-0.854102, 5.854102, 1.0, -1.0], [1, 1, 2, 2])
    """
    return _spectrum(TwoLayerInputs.of(W, V, X, hidden_bias, output_bias), Y, loss, vectors=vectors, functional=True)


def two_layer_linear_ggn(
    W: Float[Tensor, "*batch K m"],
    V: Float[Tensor, "*batch m D"],
    X: Float[Tensor, "*batch n D"],
    Y: Tensor,
    *,
    loss: str | Derivatives = "half_mse",
    hidden_bias: Float[Tensor, "*batch m"] | None = None,
    output_bias: Float[Tensor, "*batch K"] | None = None,
    vectors: bool = True,
) -> Spectrum:
    r"""Return the exact Gauss-Newton spectrum of the network of `two_layer_linear`, with the same arguments and order.

    It is the small matrix without its residual covariance, of size `2 min(K, m) D` at most for K <= D. For squared errors,
    `squared_error_ggn` gets the same eigenvalues from K problems of size D.

    >>> one = torch.ones(1, 1)
    >>> two_layer_linear_ggn(2 * one, one, X=one, Y=one).expand().tolist()       # |grad f|^2 = 1 + 4
    [0.0, 5.0]
    """
    return _spectrum(TwoLayerInputs.of(W, V, X, hidden_bias, output_bias), Y, loss, vectors=vectors, functional=False)


def _spectrum(net: TwoLayerInputs, Y: Tensor, loss: str | Derivatives, *, vectors: bool, functional: bool) -> Spectrum:
    """Reduce the Hessian, or the Gauss-Newton matrix alone, to the small matrix."""
    f = net.outputs()
    d1, d2 = derivatives_at(loss, f, Y)
    gradient = d1.mT @ net.X / net.X.shape[-2] * functional
    check_overflow(gradient)
    W, V = (A.expand(*gradient.shape[:-2], *A.shape[-2:]) for A in (net.W, net.V))
    deviation = net.X.square().mean(-2, keepdim=True).sqrt()
    frame = ProductFrame.of(W, V * deviation, gradient, noise_scale(f, d1, net.X))
    matrix = pad(frame.coupling(gradient), net.parameters) + _gauss_newton(frame.jacobian(W, V), net, d2)
    reduction = Reduction(net.parameters, [(frame, Neurons(net.parameters))], matrix)
    return reduction.spectrum([gradient], vectors=vectors)


def noise_scale(f: Tensor, d1: Tensor, X: Tensor) -> Float[Tensor, "*batch"]:
    """Size of the terms whose sum is the residual covariance: what is below it by a machine epsilon is rounding."""
    return (f.norm(dim=(-2, -1)) + d1.norm(dim=(-2, -1))) * X.norm(dim=(-2, -1)) / X.shape[-2]


def pad(matrix: Float[Tensor, "*batch N N"], parameters: FactorLayout) -> Float[Tensor, "*batch M M"]:
    """Make room for the output bias, if there is one."""
    extra = parameters.outputs if parameters.output_bias else 0
    return torch.nn.functional.pad(matrix, (0, extra, 0, extra))


def _gauss_newton(J: Float[Tensor, "*batch K D N"], net: TwoLayerInputs, d2: Tensor) -> Float[Tensor, "*batch M M"]:
    """Gauss-Newton part `mean_i J_i^T l''_i J_i`, where `J_i = J x_i` changes the outputs of sample i."""
    X = net.X
    if net.c is not None:
        K, N = J.shape[-3], J.shape[-1]
        X, J = torch.cat([X, torch.ones_like(X[..., :1])], -1), torch.nn.functional.pad(J, (0, K, 0, 1))
        J[..., range(K), -1, range(N, N + K)] = 1.0  # the output bias sees the constant 1
    n, K = X.shape[-2], J.shape[-3]
    flat = J.flatten(-3, -2)
    if d2.ndim == 0:
        return d2 * flat.mT @ ((X.mT @ X / n).unsqueeze(-3) @ J).flatten(-3, -2)
    blocks = [[(X * d2[..., k, l, None]).mT @ X / n for l in range(K)] for k in range(K)]
    C = torch.cat([torch.cat(row, -1) for row in blocks], -2)  # C[(k, d), (l, e)] = mean l''[k, l] x_d x_e
    return flat.mT @ C @ flat
