"""The scalar net reduced to two numbers: all of its curvature depends on `|w + v|^2`, `|w - v|^2` and the data."""

from dataclasses import dataclass
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..core import TheoryError
from .moments import ScalarMoments, conform
from .scalar_products import outlier_pair, safe_sqrt


class Phase(IntEnum):
    """Phases of learning: where `c = <w, v>` stands between 0 and the regression coefficient `target`.

    `LATE` is `1/3 <= c / target <= 1`: there, and only there, the small outlier is not negative and the sharpness does not
    exceed the trace. `EARLY` is below (also on the wrong side of 0), `DIVERGENT` above. For a target of 0, every other c is
    beyond it. [cracking] App. C compares c with the target itself, which is right for a positive target only.
    """

    EARLY = 0
    LATE = 1
    DIVERGENT = 2


@dataclass(frozen=True, eq=False)
class ScalarNet:
    """`f(x) = <w, v> x` under `1/(2n) sum (f(x) - y)^2`, known by `plus = |w + v|^2` and `minus = |w - v|^2`.

    >>> net = ScalarNet.of(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0]), torch.ones(1), torch.tensor([1.0]))
    >>> net.c.item(), net.slope.item(), net.loss.item(), net.trace.item(), Phase(int(net.phase)).name
    (2.0, 1.0, 0.5, 5.0, 'DIVERGENT')
    """

    plus: Float[Tensor, "*batch"]
    minus: Float[Tensor, "*batch"]
    data: ScalarMoments

    @classmethod
    def of(
        cls,
        w: Float[Tensor, "*batch m"],
        v: Float[Tensor, "*batch m"],
        x: Float[Tensor, "*data n"],
        y: Float[Tensor, "*data n"],
    ) -> "ScalarNet":
        """Reduce the weights; data of shape (*data, n) broadcasts against the leading axes of the weights."""
        w, v = conform({"w": "m", "v": "m"}, w=w, v=v)
        return cls((w + v).square().sum(-1), (w - v).square().sum(-1), ScalarMoments.of(x, y))

    @classmethod
    def from_norms(
        cls,
        plus: Float[Tensor, "*batch"],
        minus: Float[Tensor, "*batch"],
        x: Float[Tensor, "*data n"],
        y: Float[Tensor, "*data n"],
    ) -> "ScalarNet":
        """Start from the two squared norms, for grids of initialisations without any weights."""
        plus, minus = conform({"plus": "", "minus": ""}, plus=plus, minus=minus)
        if bool((plus < 0).any()) or bool((minus < 0).any()):
            raise TheoryError("plus or minus is negative; expected squared norms, |w + v|^2 and |w - v|^2.")
        return cls(plus, minus, ScalarMoments.of(x, y))

    @property
    def c(self) -> Float[Tensor, "*batch"]:
        """`<w, v>`, the slope of the network."""
        return (self.plus - self.minus) / 4

    @property
    def slope(self) -> Float[Tensor, "*batch"]:
        """`dx = mean x (c x - y)`, the derivative of the loss with respect to c."""
        return self.data.s2 * self.c - self.data.yx

    @property
    def bulk(self) -> Float[Tensor, "*batch"]:
        """`|dx|`: the bulk is `+-bulk`, and `-bulk <= small_outlier <= bulk <= sharpness` always."""
        return self.slope.abs()

    @property
    def loss(self) -> Float[Tensor, "*batch"]:
        """The loss, as the least loss plus `dx^2 / (2 s2)`."""
        s2 = self.data.s2
        return self.data.floor + self.slope.square() / (2 * torch.where(s2 > 0, s2, 1.0))

    @property
    def trace(self) -> Float[Tensor, "*batch"]:
        """Trace of the Hessian, `s2 (|w|^2 + |v|^2)`."""
        return self.data.s2 * (self.plus + self.minus) / 2

    @property
    def sharpness(self) -> Float[Tensor, "*batch"]:
        """Largest eigenvalue of the Hessian."""
        return self._outliers()[0]

    @property
    def small_outlier(self) -> Float[Tensor, "*batch"]:
        """The other outlier: never larger in magnitude than the bulk."""
        return self._outliers()[1]

    def _outliers(self) -> tuple[Tensor, Tensor]:
        return outlier_pair(self.plus, self.minus, self.slope, self.data.s2)

    @property
    def lower_bound(self) -> Float[Tensor, "*batch"]:
        """`-sqrt(2 loss s2)`, which no eigenvalue is below ([cracking], after eq. 34)."""
        return -safe_sqrt(2 * self.loss * self.data.s2)

    @property
    def phase(self) -> Int[Tensor, "*batch"]:
        """The `Phase`, as an integer."""
        goal = self.data.yx.abs()
        way = torch.where(goal > 0, self.data.yx.sign() * self.data.s2 * self.c, self.data.s2 * self.c.abs())
        return torch.where(way > goal, int(Phase.DIVERGENT), torch.where(3 * way < goal, int(Phase.EARLY), int(Phase.LATE)))
