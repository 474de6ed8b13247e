"""Which closed form belongs to a chain of layers, and the conditions under which it is the Hessian."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .. import theory
from ..core import NotRecognised, Spectrum, TheoryError
from ..curvature import Objective
from .recognise_layers import Layers
from .recognise_samples import Samples, read_samples

RESIDUAL_TOL = 1e-9
"""Share of the sharpness that the neglected part of a Hessian may have; it is bounded, and the bound is reported."""
ALIGNED_TOL = 1e-11


@dataclass(frozen=True, eq=False)
class Answer:
    """A spectrum, its theorem, what was checked, and where each entry (weight, bias, weight, ...) lies in its order."""

    spectrum: Spectrum
    theorem: str
    assumptions: tuple[str, ...]
    order: Int[Tensor, "n"] | None = None


def chain_answer(obj: Objective, layers: Layers, limit: int) -> Answer:
    """Choose by depth and rectifiers; the most special closed form comes first."""
    if layers.depth > 2 and not layers.is_linear:
        raise NotRecognised(
            f"a ReLU network of {layers.depth} Linear layers has no closed form here; expected two layers, or no rectifiers: "
            "es.eigsh(es.hessian(obj)) measures it."
        )
    _check_size(_planned_size(layers), limit)
    samples = read_samples(obj, lambda X: layers.activations(X)[-1], flat=layers.flat)
    if layers.depth == 1:
        answer = _one_layer(layers, samples)
    elif layers.depth > 2:
        answer = _deep(layers, samples)
    elif layers.is_linear:
        answer = _two_linear(layers, samples)
    else:
        answer = _two_relu(layers, samples, limit)
    return replace(answer, assumptions=(f"layers {_shape(layers)} reproduce the model's outputs", *answer.assumptions))


def _shape(layers: Layers) -> str:
    first = layers.linears[0].in_features
    return " -> ".join(str(d) for d in (first, *(layer.out_features for layer in layers.linears)))


def _planned_size(layers: Layers) -> int:
    """Size of the eigenproblem as far as shapes tell; rectifiers need the data."""
    if layers.depth == 2 and not layers.is_linear:
        return 0
    first, last = layers.linears[0], layers.linears[-1]
    D, K = first.in_features, last.out_features
    if layers.depth == 2:
        return _reduced_size(K, first.out_features, D, first.bias is not None, last.bias is not None)
    D += any(layer.bias is not None for layer in layers.linears)
    return D if layers.depth == 1 else D * min(K, last.in_features)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise NotRecognised(
            f"the closed form needs the eigenvalues of a matrix of size {size}, and limit is {limit}; expected a smaller "
            f"network, or es.spectrum(obj, limit={size}), or es.eigsh(es.hessian(obj)) for the largest alone."
        )


def _scaled(spectrum: Spectrum, h: Tensor) -> Spectrum:
    """Spectrum of `h` times the matrix."""
    return replace(spectrum, values=h * spectrum.values)


def _scale_sentence(samples: Samples) -> str:
    return f"squared errors, {float(samples.d2):.6g} times half the mean of |f - y|^2"


def _one_layer(layers: Layers, samples: Samples) -> Answer:
    """Where each sample has the curvature h_i I, the Hessian is `I (x) mean h_i x_i x_i^T`."""
    d2, K = samples.d2, samples.outputs.shape[-1]
    if not samples.quadratic:
        h = d2.diagonal(dim1=-2, dim2=-1).mean(-1)
        gap = (d2 - h[:, None, None] * torch.eye(K, dtype=d2.dtype, device=d2.device)).abs().max()
        if float(gap) > 1e-14 * float(d2.abs().max()):
            raise NotRecognised(
                "a single Linear layer under a loss that couples its outputs has no closed form here; expected squared errors, "
                "one output, or two layers."
            )
        d2 = h.unsqueeze(-1)
    X = samples.X if layers.biases[0] is None else theory.with_ones(samples.X)
    D = X.shape[-1]
    W = samples.X.new_zeros(K, D)  # its values do not matter
    found = theory.deep_linear_ggn([W], X * d2.sqrt())
    order = torch.arange(K * D).reshape(K, D)
    if layers.biases[0] is not None:
        order = torch.cat([order[:, :-1].flatten(), order[:, -1]])
    return Answer(found, "deep_linear_ggn", ("one layer: the Hessian is its Gauss-Newton matrix",), order.flatten())


def _two_linear(layers: Layers, samples: Samples) -> Answer:
    (V, W), (b, c) = layers.weights, layers.biases
    if samples.quadratic and V.shape[1] == W.shape[0] == 1 and c is None:
        w, v, x, y = W[0], V[:, 0], samples.X[:, 0], samples.Y[:, 0]
        if b is None:
            found = theory.scalar_linear(w, v, x, y)
            return Answer(_scaled(found, samples.d2), "scalar_linear", (_scale_sentence(samples),))
        m = len(v)
        order = torch.cat([torch.arange(m, 3 * m), torch.arange(m)])  # (w; v; b) there, v, b, w here
        found = theory.scalar_linear_bias(w, v, b, x, y)
        return Answer(_scaled(found, samples.d2), "scalar_linear_bias", (_scale_sentence(samples),), order)
    found = theory.two_layer_linear(W, V, samples.X, samples.outputs, loss=samples.derivatives, hidden_bias=b, output_bias=c)
    return Answer(found, "two_layer_linear", (_loss_sentence(samples),))


def _loss_sentence(samples: Samples) -> str:
    return _scale_sentence(samples) if samples.quadratic else "a loss of each sample by itself, by its two derivatives"


def _reduced_size(K: int, m: int, D: int, hidden: bool, output: bool) -> int:
    """Bound on the size of the small matrix: `2 mu r + (D - mu) rank W + (K - mu) rank V`, mu = min(K, D)."""
    D += hidden
    mu, r = min(K, D), min(m, K + D)
    return 2 * mu * r + (D - mu) * min(K, m) + (K - mu) * min(D, m) + K * output


def _two_relu(layers: Layers, samples: Samples, limit: int) -> Answer:
    (V, W), (b, c), slope = layers.weights, layers.biases, layers.slopes[0]
    kinks = layers.preactivation_at_kink(samples.X)
    kink = "no pre-activation is 0" if not kinks else f"at {kinks} pre-activations of 0 autograd's slope is taken"
    if samples.quadratic and V.shape[1] == W.shape[0] == 1 and b is None and c is None and slope == 0:
        found = theory.scalar_relu(W[0], V[:, 0], samples.X[:, 0], samples.Y[:, 0])
        return Answer(_scaled(found, samples.d2), "scalar_relu", (_scale_sentence(samples), kink))
    gates = samples.X @ V.mT + (0 if b is None else b) > 0
    _, sizes = torch.unique(gates, dim=-1, return_counts=True)
    K, D = W.shape[0], V.shape[1]
    size = sum(_reduced_size(K, int(m), D, b is not None, False) for m in sizes) + K * (c is not None)
    _check_size(size, limit)
    found = theory.two_layer_relu(
        W, V, samples.X, samples.outputs, loss=samples.derivatives, hidden_bias=b, output_bias=c, negative_slope=slope
    )
    shared = f"{len(sizes)} activation patterns for {len(V)} neurons"
    return Answer(found, "two_layer_relu", (_loss_sentence(samples), shared, kink))


def _deep(layers: Layers, samples: Samples) -> Answer:
    """Where residuals are uncorrelated with the inputs, the Hessian of any depth is its Gauss-Newton matrix."""
    if not samples.quadratic:
        raise NotRecognised(
            f"{layers.depth} linear layers have a closed form under squared errors of equal weight only; expected MSELoss or "
            "half_mse, or two layers."
        )
    weights, biases = layers.weights, layers.biases
    bound = residual_bound(layers, samples)
    low, _ = theory.deep_linear_bounds(weights, samples.X, biases=biases)
    if bound > RESIDUAL_TOL * float(samples.d2 * low):
        found = _aligned(layers, samples)
        if found is not None:
            return found
        raise NotRecognised(
            f"{layers.depth} linear layers have a closed form where they are aligned with the data, or residuals are "
            f"uncorrelated with the inputs, as at a minimum; here the rest of the Hessian may be {bound:.2g} beside a "
            f"Gauss-Newton part of {float(samples.d2 * low):.2g}: theory.deep_linear_ggn has that part, "
            "es.eigsh(es.hessian(obj)) measures the whole."
        )
    found = theory.deep_linear_ggn(weights, samples.X, biases=biases)
    near = f"residuals are uncorrelated with the inputs: H differs from its Gauss-Newton part by {bound:.1g} at most"
    return Answer(_scaled(found, samples.d2), "deep_linear_ggn", (_scale_sentence(samples), near))


def _aligned(layers: Layers, samples: Samples) -> Answer | None:
    """Blocks of the full Hessian, where frames are found in which layers and data are diagonal."""
    if any(b is not None for b in layers.biases):
        return None
    try:
        frames = theory.aligned_frames(layers.weights, samples.X, samples.Y)
        found = theory.aligned_deep_linear(layers.weights, samples.X, samples.Y, frames, tol=ALIGNED_TOL)
    except TheoryError:
        return None
    near = f"layers and data are diagonal in common frames, up to {ALIGNED_TOL:g} of their size"
    return Answer(_scaled(found, samples.d2), "aligned_deep_linear", (_scale_sentence(samples), near))


def residual_bound(layers: Layers, samples: Samples) -> float:
    r"""Bound the spectral norm of `H - GGN` of a linear network.

    Its block of layers k < l is `dW_k -> S_l^T E_k dW_k^T (W_{l-1} ... W_{k+1})^T` with `E_k = mean d1 (h_{k-1}; 1)^T`, so the
    norms of the factors bound it, and the norm of the matrix of these bounds the whole.
    """
    weights, hidden, n = layers.weights, layers.activations(samples.X), len(samples.X)
    after = [torch.eye(len(weights[-1]), dtype=samples.X.dtype, device=samples.X.device)]
    for W in reversed(weights[1:]):
        after.insert(0, after[0] @ W)
    L = layers.depth
    bounds = samples.X.new_zeros(L, L)
    for k in range(L):
        E = samples.d1.mT @ (hidden[k] if layers.biases[k] is None else theory.with_ones(hidden[k])) / n
        between = torch.eye(len(weights[k]), dtype=E.dtype, device=E.device)
        for l in range(k + 1, L):
            bounds[k, l] = bounds[l, k] = _norm(after[l].mT @ E) * _norm(between)
            between = weights[l] @ between
    return float(torch.linalg.eigvalsh(bounds)[-1])


def _norm(A: Float[Tensor, "a b"]) -> Tensor:
    return torch.linalg.matrix_norm(A, 2)
