"""Forward, backward and tangent passes of stacked networks, written out: every product is one `bmm`."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from .activations import activate, bend


@dataclass(frozen=True, eq=False)
class Pass:
    """What a forward pass leaves behind: the input of every layer, the slopes of its activation, and the outputs.

    `z_l = c_l W_l h_{l-1}`, `h_l = a(z_l)`, with `h_0 = X` and outputs `z_L`. Samples are rows.
    """

    weights: Sequence[Float[Tensor, "N _ _"]]
    multipliers: Sequence[float]
    activation: str
    inputs: Sequence[Float[Tensor, "N n _"]]
    slopes: Sequence[Float[Tensor, "N n _"] | None]
    outputs: Float[Tensor, "N n K"]

    @classmethod
    def of(cls, weights: Sequence[Tensor], multipliers: Sequence[float], activation: str, X: Tensor) -> "Pass":
        """Feed X forward; one set of samples serves all members."""
        h = X.expand(len(weights[0]), *X.shape[-2:])
        inputs, slopes = [h], []
        for W, c in zip(weights[:-1], multipliers[:-1]):
            h, slope = activate(activation, _times(h @ W.mT, c))
            inputs.append(h)
            slopes.append(slope)
        return cls(weights, multipliers, activation, inputs, slopes, _times(h @ weights[-1].mT, multipliers[-1]))

    def gradients(self, delta: Float[Tensor, "N n K"]) -> list[Tensor]:
        """Gradient with respect to every weight, where `delta` is that with respect to the outputs."""
        return [c_delta.mT @ h for c_delta, h in zip(self.backward(delta), self.inputs)]

    def backward(self, delta: Float[Tensor, "N n K"]) -> list[Tensor]:
        """`c_l` times the gradient with respect to `z_l`, for every layer."""
        deltas = [_times(delta, self.multipliers[-1])]
        for W, slope, c in zip(self.weights[:0:-1], self.slopes[::-1], self.multipliers[-2::-1]):
            deltas.append(_times(_gate(deltas[-1] @ W, slope), c))
        return deltas[::-1]

    def gradient_tangent(
        self, deltas: Sequence[Tensor], curvature: float, direction: Sequence[Float[Tensor, "N _ _"]]
    ) -> list[Tensor]:
        """Derivative of the gradient along a change of the weights: a Hessian-vector product, forward over reverse.

        `deltas` is the result of `backward`; the derivative of the loss with respect to the outputs changes by `curvature`
        times the change of the outputs.
        """
        moved: list[Tensor | None] = [None]  # changes of the inputs of each layer
        shifts: list[Tensor] = []  # changes of z_l
        for l, (W, dW, c) in enumerate(zip(self.weights, direction, self.multipliers)):
            dz = self.inputs[l] @ dW.mT
            before = moved[l]
            if before is not None:
                dz = dz + before @ W.mT
            dz = _times(dz, c)
            shifts.append(dz)
            if l < len(self.slopes):
                moved.append(_gate(dz, self.slopes[l]))
        products: list[Tensor] = []
        d_delta = _times(shifts[-1], curvature * self.multipliers[-1])  # change of deltas[l]
        for l in reversed(range(len(self.weights))):
            product, before = d_delta.mT @ self.inputs[l], moved[l]
            if before is not None:
                product = product + deltas[l].mT @ before
            products.append(product)
            if l:
                c, slope = self.multipliers[l - 1], self.slopes[l - 1]
                change = _gate(d_delta @ self.weights[l] + deltas[l] @ direction[l], slope)
                second = bend(self.activation, self.inputs[l], slope)
                if second is not None:
                    change = change + (deltas[l] @ self.weights[l]) * second * shifts[l - 1]
                d_delta = _times(change, c)
        return products[::-1]


def _times(A: Tensor, c: float) -> Tensor:
    return A if c == 1 else A * c


def _gate(A: Tensor, slope: Tensor | None) -> Tensor:
    return A if slope is None else A * slope
