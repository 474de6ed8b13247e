"""What a closed form needs of its inputs: tensors that fit together, in float64, and the second moments of the data."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import TheoryError


def check_finite(**inputs: Tensor) -> None:
    """Refuse NaN and infinity, naming the first tensor that holds one.

    >>> check_finite(w=torch.tensor([1.0, float("nan")]))
    Traceback (most recent call last):
        ...
    eigenscape.core.errors.TheoryError: w holds NaN or infinity; expected finite numbers: torch.isfinite(w) finds them.
    """
    for name, tensor in inputs.items():
        if not bool(torch.isfinite(tensor).all()):
            raise TheoryError(f"{name} holds NaN or infinity; expected finite numbers: torch.isfinite({name}) finds them.")


def as_float64(**inputs: Tensor) -> tuple[Tensor, ...]:
    """Promote named real tensors on one device to float64, in the order given; gradients flow through.

    >>> as_float64(w=torch.tensor([1, 2]), v=torch.tensor([3.0]))
    (tensor([1., 2.], dtype=torch.float64), tensor([3.], dtype=torch.float64))
    """
    first = next(iter(inputs))
    for name, tensor in inputs.items():
        if not isinstance(tensor, Tensor):
            raise TheoryError(f"{name} is a {type(tensor).__name__}; expected a tensor: torch.as_tensor({name}).")
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise TheoryError(f"{name} has dtype {tensor.dtype}; expected real numbers: {name}.to(torch.float64).")
        if tensor.device != inputs[first].device:
            raise TheoryError(
                f"{name} is on {tensor.device} and {first} on {inputs[first].device}; "
                f"expected one device: {name}.to({first}.device)."
            )
    return tuple(tensor.to(torch.float64) for tensor in inputs.values())


def conform(shapes: dict[str, str], **inputs: Tensor) -> tuple[Tensor, ...]:
    """Check and promote the inputs of a closed form, in the order given.

    `shapes` names the last axes of each input, as in `{"W": "K m", "V": "m D"}`: equal names must have equal sizes, no
    axis may be empty, and what comes before (the batch) must broadcast. The result is finite, float64, on one device.

    >>> W, V = conform({"W": "K m", "V": "m D"}, W=torch.ones(1, 3), V=torch.ones(2, 2))
    Traceback (most recent call last):
        ...
    eigenscape.core.errors.TheoryError: V has shape (2, 2); expected (..., m, D) with m = 3 as in W.
    """
    tensors = dict(zip(inputs, as_float64(**inputs)))
    sizes: dict[str, tuple[int, str]] = {}
    for name, tensor in tensors.items():
        _fit(name, tensor, shapes[name].split(), sizes)
    check_finite(**tensors)
    _check_batch({name: tensor.shape[: tensor.ndim - len(shapes[name].split())] for name, tensor in tensors.items()})
    return tuple(tensors.values())


def _fit(name: str, tensor: Tensor, axes: list[str], sizes: dict[str, tuple[int, str]]) -> None:
    """Match the last axes of one tensor with the sizes seen so far."""
    known = [f"{axis} = {sizes[axis][0]} as in {sizes[axis][1]}" for axis in axes if axis in sizes]
    expected = f"expected (..., {', '.join(axes)})" + (f" with {' and '.join(known)}" if known else "")
    got = f"{name} has shape {tuple(tensor.shape)}"
    if tensor.ndim < len(axes):
        raise TheoryError(f"{got}; {expected}.")
    for axis, size in zip(axes, tensor.shape[tensor.ndim - len(axes) :]):
        if size == 0:
            raise TheoryError(f"{got}, which is empty along {axis}; expected at least one.")
        if sizes.setdefault(axis, (size, name))[0] != size:
            raise TheoryError(f"{got}; {expected}.")


def _check_batch(batches: dict[str, torch.Size]) -> None:
    """Refuse leading axes that do not broadcast."""
    try:
        torch.broadcast_shapes(*batches.values())
    except RuntimeError:
        listed = ", ".join(f"{tuple(batch)} of {name}" for name, batch in batches.items() if batch)
        raise TheoryError(f"the leading axes {listed} do not broadcast; expected one batch shape for all.") from None


@dataclass(frozen=True)
class Moments:
    """Uncentred second moments of n samples: `Sxx = mean x x^T`, `Syx = mean y x^T`, `Syy = mean y y^T`.

    Rows of X and Y are samples; the papers put samples in columns.

    >>> m = Moments.of(torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [1.0]]))
    >>> m.Sxx.item(), m.Syx.item(), m.Syy.item(), m.n
    (5.0, 2.0, 1.0, 2)
    """

    Sxx: Float[Tensor, "*batch D D"]
    Syx: Float[Tensor, "*batch K D"]
    Syy: Float[Tensor, "*batch K K"]
    n: int

    @classmethod
    def of(cls, X: Float[Tensor, "*batch n D"], Y: Float[Tensor, "*batch n K"]) -> "Moments":
        """Check and average the samples."""
        X, Y = conform({"X": "n D", "Y": "n K"}, X=X, Y=Y)
        n = X.shape[-2]
        moments = cls(X.mT @ X / n, Y.mT @ X / n, Y.mT @ Y / n, n)
        check_overflow(moments.Sxx, moments.Syx, moments.Syy)
        return moments


@dataclass(frozen=True)
class ScalarMoments:
    """Uncentred moments of scalar data: `s2 = mean x^2`, `yx = mean y x`, the means, and the least loss `floor`.

    `floor` is `1/(2n) sum (y - theta x)^2` at the regression coefficient `theta = yx / s2`.

    >>> m = ScalarMoments.of(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 6.0]))
    >>> m.s2.item(), m.yx.item(), m.target.item(), m.floor.item()
    (5.0, 10.0, 2.0, 0.0)
    """

    s2: Float[Tensor, "*batch"]
    yx: Float[Tensor, "*batch"]
    mean_x: Float[Tensor, "*batch"]
    mean_y: Float[Tensor, "*batch"]
    floor: Float[Tensor, "*batch"]

    @classmethod
    def of(cls, x: Float[Tensor, "*batch n"], y: Float[Tensor, "*batch n"]) -> "ScalarMoments":
        """Check and average the samples."""
        x, y = conform({"x": "n", "y": "n"}, x=x, y=y)
        s2, yx = x.square().mean(-1), (y * x).mean(-1)
        check_overflow(s2, yx)
        rest = y - (yx / torch.where(s2 > 0, s2, 1.0)).unsqueeze(-1) * x
        return cls(s2, yx, x.mean(-1), y.mean(-1), 0.5 * rest.square().mean(-1))

    @property
    def target(self) -> Float[Tensor, "*batch"]:
        """The regression coefficient `theta = yx / s2` (0 where every input is 0)."""
        return self.yx / torch.where(self.s2 > 0, self.s2, 1.0)


def check_overflow(*moments: Tensor) -> None:
    """Refuse moments that are no longer finite although the samples were."""
    if not all(bool(torch.isfinite(m).all()) for m in moments):
        raise TheoryError(
            "the squares of the data overflow float64; expected smaller numbers: divide x and y by their largest."
        )
