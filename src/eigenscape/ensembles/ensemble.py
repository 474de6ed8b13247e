"""Many networks of one architecture as one: parameters are stacked, and every product is batched."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import CurvatureError, Layout
from .activations import check_activation
from .passes import Pass

LOSSES = ("half_mse", "mse")


@dataclass(frozen=True, eq=False)
class Ensemble:
    r"""N networks `f(x) = c_L W_L a(... a(c_1 W_1 x))` without biases, their weights stacked along the first axis.

    `weights[l]` has shape (N, d_{l+1}, d_l); the activation a is `"linear"`, `"relu"` or `"tanh"`; the multipliers c_l are
    constants, 1 unless given. Rows of X are samples: (n, D), or (N, n, D) where every member has its own. The loss is
    `"half_mse"`, `1/(2n) sum_i |f(x_i) - y_i|^2`, or `"mse"`, torch's mean over samples and outputs.

    >>> V, W = torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[[3.0]], [[4.0]]])     # two nets of width 1
    >>> nets = Ensemble((V, W))
    >>> x, y = torch.ones(1, 1), torch.zeros(1, 1)
    >>> nets.outputs(x).flatten(), nets.losses(x, y)
    (tensor([3., 8.]), tensor([ 4.5000, 32.0000]))
    >>> [g.flatten().tolist() for g in nets.gradients(x, y)]
    [[9.0, 32.0], [3.0, 16.0]]
    """

    weights: tuple[Float[Tensor, "N _ _"], ...]
    activation: str = "linear"
    multipliers: tuple[float, ...] = ()

    def __post_init__(self):
        check_activation(self.activation)
        weights = tuple(self.weights)
        _check_chain(weights)
        multipliers = tuple(float(c) for c in self.multipliers) or (1.0,) * len(weights)
        if len(multipliers) != len(weights):
            raise CurvatureError(f"{len(multipliers)} multipliers came with {len(weights)} weights; expected one each.")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "multipliers", multipliers)

    def __len__(self) -> int:
        return self.weights[0].shape[0]

    @property
    def depth(self) -> int:
        """Number of weight matrices."""
        return len(self.weights)

    @property
    def widths(self) -> tuple[int, ...]:
        """Sizes of the layers from input to output."""
        return (self.weights[0].shape[-1], *(W.shape[-2] for W in self.weights))

    @property
    def layout(self) -> Layout:
        """How the parameters of one member lie in a flat vector: as in `nn.Sequential` of `nn.Linear(bias=False)`."""
        names = tuple(f"{l}.weight" for l in range(self.depth))
        return Layout(names, tuple((W.shape[-2], W.shape[-1]) for W in self.weights))

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.weights[0].dtype

    @property
    def device(self) -> torch.device:
        """Of the weights."""
        return self.weights[0].device

    def flat(self) -> Float[Tensor, "N p"]:
        """All parameters, one row per member."""
        return torch.cat([W.flatten(1) for W in self.weights], -1)

    def replace(self, weights: Sequence[Tensor]) -> "Ensemble":
        """Return the same architecture with other weights."""
        return Ensemble(tuple(weights), self.activation, self.multipliers)

    def select(self, members: int | slice | Sequence[int] | Tensor) -> "Ensemble":
        """Return an ensemble of some of the members; one number gives an ensemble of one."""
        index = slice(members, members + 1 or None) if isinstance(members, int) else members
        return self.replace([W[index] for W in self.weights])

    def to(self, *args, **kwargs) -> "Ensemble":
        """Move or cast the weights, as `Tensor.to` does."""
        return self.replace([W.to(*args, **kwargs) for W in self.weights])

    def run(self, X: Float[Tensor, "*N n D"]) -> Pass:
        """Feed samples forward, and keep what backward passes need."""
        self.check_samples(X=X)
        return Pass.of(self.weights, self.multipliers, self.activation, X)

    def outputs(self, X: Float[Tensor, "*N n D"]) -> Float[Tensor, "N n K"]:
        """Outputs of every member for every sample."""
        return self.run(X).outputs

    def losses(self, X: Float[Tensor, "*N n D"], Y: Float[Tensor, "*N n K"], loss: str = "half_mse") -> Float[Tensor, "N"]:
        """Loss of every member."""
        self.check_samples(X=X, Y=Y)
        return self.loss_scale(loss) * (self.outputs(X) - Y).square().sum((-2, -1)) / (2 * X.shape[-2])

    def gradients(self, X: Float[Tensor, "*N n D"], Y: Float[Tensor, "*N n K"], loss: str = "half_mse") -> list[Tensor]:
        """Gradient of every member's loss, one stack per weight."""
        self.check_samples(X=X, Y=Y)
        run = self.run(X)
        return run.gradients((run.outputs - Y) * (self.loss_scale(loss) / X.shape[-2]))

    def loss_scale(self, loss: str) -> float:
        """Factor between a loss and `"half_mse"`."""
        if loss not in LOSSES:
            raise CurvatureError(f"loss is {loss!r}; expected one of {', '.join(LOSSES)}.")
        return 1.0 if loss == "half_mse" else 2 / self.widths[-1]

    def check_samples(self, **samples: Tensor) -> None:
        """Refuse data whose shape, dtype or device does not fit the members."""
        sizes = {"X": ("D", self.widths[0]), "Y": ("K", self.widths[-1])}
        n = next(iter(samples.values())).shape[-2:-1]
        for name, A in samples.items():
            axis, size = sizes[name]
            if A.ndim not in (2, 3) or A.shape[-1] != size or A.shape[-2:-1] != n or (A.ndim == 3 and len(A) != len(self)):
                raise CurvatureError(
                    f"{name} has shape {tuple(A.shape)}; expected (n, {axis}) or (N, n, {axis}) with {axis} = {size} and "
                    f"N = {len(self)}, and as many rows in X as in Y."
                )
            if A.dtype != self.dtype or A.device != self.device:
                raise CurvatureError(
                    f"{name} is {A.dtype} on {A.device}, the weights {self.dtype} on {self.device}; "
                    f"expected the same: {name}.to(ensemble.weights[0])."
                )


def _check_chain(weights: Sequence[Tensor]) -> None:
    if not weights:
        raise CurvatureError("the list of weights is empty; expected at least one stack of matrices: (W_1, ..., W_L).")
    first = weights[0]
    for l, W in enumerate(weights):
        inputs = first.shape[-1] if l == 0 else weights[l - 1].shape[-2]
        if W.ndim != 3 or len(W) != len(first) or W.shape[-1] != inputs:
            raise CurvatureError(
                f"weight {l + 1} has shape {tuple(W.shape)}; expected (N, d, {inputs}) with N = {len(first)}: (W_1, ..., W_L)."
            )
        if W.dtype != first.dtype or W.device != first.device:
            raise CurvatureError(
                f"weight {l + 1} is {W.dtype} on {W.device}; expected {first.dtype} on {first.device} as the first."
            )


def total(multipliers: Sequence[float]) -> float:
    """Product of the multipliers: all that a linear chain, and a ReLU one, sees of them.

    >>> total((0.5, 4.0))
    2.0
    """
    return torch.tensor(multipliers, dtype=torch.float64).prod().item()
