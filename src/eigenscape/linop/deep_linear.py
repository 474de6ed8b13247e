"""The Hessian of a deep linear network as an operator that has forgotten the samples: only their second moments remain."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Layout, OperatorError
from .operator import Operator

KINDS = ("hessian", "ggn")


class DeepLinear(Operator):
    r"""Curvature of `1/(2n) sum_i |W_L ... W_1 x_i - y_i|^2` from `Sxx = mean x x^T` and `Syx = mean y x^T` (uncentred).

    With `S_l = W_L ... W_{l+1}`, `E = W_L ... W_1 Sxx - Syx` and `B_1 = E`, `B_{l+1} = B_l W_l^T`, the gradient is
    `S_l^T B_l`, and a product differentiates it: `(H dW)_l = S_l^T dB_l + dS_l^T B_l`. The Gauss-Newton matrix keeps of `dB_l`
    what passes through `dE`, and drops the second term. The cost of a product,
    `O(sum_l d_l d_{l-1} d_L + d_0^2 d_L)`, does not depend on the number of samples; columns are multiplied together.

    Vectors are `W_1, ..., W_L`, each row-major, as in `nn.Sequential` of `nn.Linear(bias=False)`. With `biases` (`None` for a
    layer without one) each layer is followed by its bias, and the moments are those of `(x; 1)`. Leading axes of the weights,
    and optionally of the moments, make a stack of networks.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> H = DeepLinear([2 * one, 3 * one], Sxx=one, Syx=6 * one)      # (w v x - 6)^2 / 2 at its minimum: H = g g^T
    >>> H @ torch.eye(2, dtype=torch.float64)
    tensor([[9., 6.],
            [6., 4.]], dtype=torch.float64)
    """

    def __init__(
        self,
        weights: Sequence[Float[Tensor, "*batch _ _"]],
        Sxx: Float[Tensor, "*#batch d0 d0"],
        Syx: Float[Tensor, "*#batch dL d0"],
        *,
        biases: Sequence[Float[Tensor, "*batch _"] | None] | None = None,
        kind: str = "hessian",
    ):
        weights, biases = _checked(weights, biases)
        if kind not in KINDS:
            raise OperatorError(f'kind is {kind!r}; expected "hessian" or "ggn".')
        layout = _layout(weights, biases)
        first = weights[0]
        super().__init__(layout.size, dtype=first.dtype, device=first.device, batch=first.shape[:-2], layout=layout)
        self.kind, self.affine = kind, any(b is not None for b in biases)
        self._check_moments(Sxx, Syx, weights[-1].shape[-2], first.shape[-1] + self.affine)
        self._shapes = [(W.shape[-2], W.shape[-1], b is not None) for W, b in zip(weights, biases)]
        if self.affine:
            last = len(weights) - 1
            weights = [_homogeneous(W, b, last=l == last) for l, (W, b) in enumerate(zip(weights, biases))]
        # The axis of the k columns comes right after the batch; without a batch the factors stay matrices.
        self._W, self._Sxx, self._Syx = [self._spread(W) for W in weights], self._spread(Sxx), self._spread(Syx)
        self._S = _suffix_products(self._W)
        self._product = self._W[0] if self._S[0] is None else self._S[0] @ self._W[0]
        self._B = [self._product @ self._Sxx - self._Syx]
        for W in self._W[:-1]:
            self._B.append(self._B[-1] @ W.mT)

    @classmethod
    def from_data(
        cls,
        weights: Sequence[Float[Tensor, "*batch _ _"]],
        X: Float[Tensor, "n d0"],
        Y: Float[Tensor, "n dL"],
        *,
        biases: Sequence[Float[Tensor, "*batch _"] | None] | None = None,
        kind: str = "hessian",
    ) -> "DeepLinear":
        """Take the moments of samples (rows of X and Y), appending ones to the inputs where there are biases.

        >>> X, Y = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [1.0]])
        >>> DeepLinear.from_data([torch.tensor([[1.0]])], X, Y).gradient()         # mean of x (x - y)
        tensor([1.5000])
        """
        if X.ndim < 2 or Y.ndim < 2 or X.shape[:-1] != Y.shape[:-1] or X.shape[-2] == 0:
            raise OperatorError(
                f"X and Y have shapes {tuple(X.shape)} and {tuple(Y.shape)}; expected (n, d0) and (n, dL), one sample per row."
            )
        if biases is not None and any(b is not None for b in biases):
            X = torch.cat([X, torch.ones_like(X[..., :1])], -1)
        n = X.shape[-2]
        return cls(weights, X.mT @ X / n, Y.mT @ X / n, biases=biases, kind=kind)

    def matmat(self, V):
        """Differentiate the gradient along every column."""
        dW = self._cut(V)
        exact = self.kind == "hessian"
        dS: list[Tensor | None] = [None] * len(dW)  # dS_L = 0,  dS_l = S_{l+1} dW_{l+1} + dS_{l+1} W_{l+1}
        for l in reversed(range(len(dW) - 1)):
            dS[l] = _apply(self._S[l + 1], dW[l + 1]) + _along(dS[l + 1], self._W[l + 1])
        dB = (_apply(self._S[0], dW[0]) + _along(dS[0], self._W[0])) @ self._Sxx
        out = []
        for l, (W, S, B) in enumerate(zip(self._W, self._S, self._B)):
            change = dB if S is None else S.mT @ dB
            step = dS[l]
            out.append(change + step.mT @ B if exact and step is not None else change)
            if S is not None:  # dB_{l+1} = dB_l W_l^T + B_l dW_l^T
                dB = dB @ W.mT + B @ dW[l].mT if exact else dB @ W.mT
        return self._join(out)

    def gradient(self) -> Float[Tensor, "*batch n"]:
        """Gradient of the loss, `S_l^T B_l` for each layer."""
        parts = [B if S is None else S.mT @ B for S, B in zip(self._S, self._B)]
        return self._join([p if self.batch else p.unsqueeze(0) for p in parts]).squeeze(-1)

    def loss(self, label_power: Float[Tensor, "*#batch"] | float) -> Float[Tensor, "*batch"]:
        """Loss `1/(2n) sum_i |f(x_i) - y_i|^2`, given the one moment the Hessian does not need, `mean |y|^2`."""
        quadratic = ((self._B[0] - self._Syx) * self._product).sum((-2, -1))
        return (quadratic.squeeze(-1) if self.batch else quadratic).add(label_power) / 2

    @property
    def engine(self) -> str:
        """Which matrix, and that it comes from moments."""
        return f"deep linear {self.kind} from moments"

    def _spread(self, A: Tensor) -> Tensor:
        return A.unsqueeze(-3) if self.batch else A

    def _check_moments(self, Sxx: Tensor, Syx: Tensor, outputs: int, inputs: int) -> None:
        for name, moment, shape in (("Sxx", Sxx, (inputs, inputs)), ("Syx", Syx, (outputs, inputs))):
            if tuple(moment.shape[-2:]) != shape or tuple(moment.shape[:-2]) not in ((), self.batch):
                ones = ", the moments of (x; 1)" if self.affine else ""
                raise OperatorError(f"{name} has shape {tuple(moment.shape)}; expected {shape}{ones}.")
            if moment.dtype != self.dtype or moment.device != self.device:
                raise OperatorError(
                    f"{name} is {moment.dtype} on {moment.device}, the weights {self.dtype} on {self.device}; "
                    f"expected the same: {name}.to(weight)."
                )

    def _cut(self, V: Tensor) -> list[Tensor]:
        """Columns of `(*batch, n, k)` as matrices `(*batch, k, d_l, d_{l-1})`, with bias column and zero last row if affine."""
        rows, parts, at = V.mT, [], 0
        for l, (out, inp, biased) in enumerate(self._shapes):
            part = rows[..., at : at + out * inp].reshape(*rows.shape[:-1], out, inp)
            at += out * inp
            if self.affine:
                bias = rows[..., at : at + out] if biased else rows.new_zeros(*rows.shape[:-1], out)
                at += out * biased
                part = torch.cat([part, bias.unsqueeze(-1)], -1)
                if l < len(self._shapes) - 1:
                    part = torch.cat([part, torch.zeros_like(part[..., :1, :])], -2)
            parts.append(part)
        return parts

    def _join(self, parts: Sequence[Tensor]) -> Tensor:
        """Undo `_cut`: keep the rows and columns that are parameters."""
        rows = []
        for part, (out, inp, biased) in zip(parts, self._shapes):
            rows.append(part[..., :out, :inp].flatten(-2))
            if biased:
                rows.append(part[..., :out, inp])
        return torch.cat(rows, -1).mT


def _apply(S: Tensor | None, A: Tensor) -> Tensor:
    """`S A`, where None is the identity."""
    return A if S is None else S @ A


def _along(dS: Tensor | None, W: Tensor) -> Tensor | float:
    """`dS W`, where None is zero."""
    return 0.0 if dS is None else dS @ W


def _suffix_products(weights: Sequence[Tensor]) -> list[Tensor | None]:
    """`S_l = W_L ... W_{l+1}` for l = 1..L; the last one, the identity, is None."""
    suffixes: list[Tensor | None] = [None]
    for W in reversed(weights[1:]):
        last = suffixes[-1]
        suffixes.append(W if last is None else last @ W)
    return suffixes[::-1]


def _homogeneous(W: Tensor, b: Tensor | None, last: bool) -> Tensor:
    """`[[W, b], [0, 1]]`, which maps `(x; 1)` to `(W x + b; 1)`; the last layer drops the row of the one."""
    bias = torch.zeros_like(W[..., :1]) if b is None else b.unsqueeze(-1)
    full = torch.cat([W, bias], -1)
    if last:
        return full
    unit = torch.zeros_like(full[..., :1, :])
    unit[..., -1] = 1
    return torch.cat([full, unit], -2)


def _layout(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Layout:
    tensors: dict[str, tuple[int, ...]] = {}
    for l, (W, b) in enumerate(zip(weights, biases)):
        tensors[f"{l}.weight"] = tuple(W.shape[-2:])
        if b is not None:
            tensors[f"{l}.bias"] = (W.shape[-2],)
    return Layout(tuple(tensors), tuple(tensors.values()))


def _checked(weights: Sequence[Tensor], biases: Sequence[Tensor | None] | None) -> tuple[list[Tensor], list[Tensor | None]]:
    """Refuse chains that do not fit."""
    weights = list(weights)
    if not weights:
        raise OperatorError("the list of weights is empty; expected at least one matrix: [W_1, ..., W_L].")
    first = weights[0]
    for l, W in enumerate(weights):
        if W.ndim < 2 or W.shape[:-2] != first.shape[:-2] or (l and W.shape[-1] != weights[l - 1].shape[-2]):
            expected = "(*batch, d_1, d_0)" if l == 0 else f"{(*first.shape[:-2], 'd', weights[l - 1].shape[-2])}"
            raise OperatorError(f"weight {l + 1} has shape {tuple(W.shape)}; expected {expected}: [W_1, ..., W_L].")
        if W.dtype != first.dtype or W.device != first.device:
            raise OperatorError(
                f"weight {l + 1} is {W.dtype} on {W.device}; expected {first.dtype} on {first.device} as the first."
            )
    given: list[Tensor | None] = [None] * len(weights) if biases is None else list(biases)
    if len(given) != len(weights):
        raise OperatorError(
            f"{len(given)} biases came with {len(weights)} weights; expected one each, None where there is none."
        )
    for l, (W, b) in enumerate(zip(weights, given)):
        if b is not None and b.shape != W.shape[:-1]:
            raise OperatorError(f"bias {l + 1} has shape {tuple(b.shape)}; expected {tuple(W.shape[:-1])}.")
    return weights, given
