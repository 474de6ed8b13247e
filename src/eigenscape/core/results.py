"""Results that carry their certificates. All are frozen; `status` is a sentence."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import special, stats
from torch import Tensor

from .errors import SolverError


def check_level(level: float) -> None:
    """Refuse a confidence level outside (0, 1)."""
    if not 0 < level < 1:
        raise SolverError(f"level is {level}; expected a number between 0 and 1, such as 0.95.")


@dataclass(frozen=True)
class Enclosure:
    """`lower <= the extreme eigenvalue <= upper`, with at least the stated probability over the random start."""

    lower: Float[Tensor, "*batch"]
    upper: Float[Tensor, "*batch"]
    probability: float


@dataclass(frozen=True, eq=False)
class EigenPairs:
    """Eigenpairs with honest residuals.

    Each `intervals[..., i, :]` surely contains an eigenvalue: `|A x - t x| <= r` puts one within r of t. `top` (and
    `bottom` where that end was asked for) encloses the extreme eigenvalue itself with the probability it states.
    """

    values: Float[Tensor, "*batch k"]
    vectors: Float[Tensor, "*batch n k"]
    residual_norms: Float[Tensor, "*batch k"]
    intervals: Float[Tensor, "*batch k 2"]
    num_matvecs: int
    status: str
    converged: bool
    top: Enclosure | None = None
    bottom: Enclosure | None = None

    def __len__(self) -> int:
        return self.values.shape[-1]


@dataclass(frozen=True, eq=False)
class Estimate:
    """A random estimate with its standard error; intervals come from Student's t with `dof` degrees of freedom."""

    value: Tensor
    stderr: Tensor
    dof: float
    num_matvecs: int
    status: str

    def interval(self, level: float = 0.95) -> Tensor:
        """Confidence interval, shape (..., 2).

        >>> e = Estimate(torch.tensor(10.0), torch.tensor(1.0), dof=float("inf"), num_matvecs=9, status="")
        >>> e.interval(0.95)
        tensor([ 8.0400, 11.9600])
        """
        check_level(level)
        q = float(stats.t.ppf(0.5 + level / 2, self.dof))
        return torch.stack([self.value - q * self.stderr, self.value + q * self.stderr], -1)

    def __float__(self) -> float:
        return float(self.value)


@dataclass(frozen=True, eq=False)
class Density:
    """Spectral density of a symmetric matrix of size n as Gauss quadrature, one rule per random probe.

    `nodes` and `weights` have shape (*batch, probes, steps); the weights of a probe sum to 1 (unused nodes weigh 0). Rounding
    leaves nodes uncertain by `resolution`, one number per member of a batch.

    >>> d = Density(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.75, 0.25]]), n=4, num_matvecs=2, status="")
    >>> d.cdf(torch.tensor([-1.0, 0.5, 2.0]))
    tensor([0.0000, 0.7500, 1.0000], dtype=torch.float64)
    """

    nodes: Float[Tensor, "*batch probes steps"]
    weights: Float[Tensor, "*batch probes steps"]
    n: int
    num_matvecs: int
    status: str
    resolution: Float[Tensor, "*batch"] | float = 0.0

    def __post_init__(self):
        for name in ("nodes", "weights", "resolution"):
            value = torch.as_tensor(getattr(self, name)).detach().to("cpu", torch.float64)
            object.__setattr__(self, name, value)

    @classmethod
    def exact(cls, values: Float[Tensor, "r"], multiplicities: Int[Tensor, "r"]) -> "Density":
        """Density of a matrix all of whose eigenvalues are known.

        >>> Density.exact(torch.tensor([1.0, 5.0]), torch.tensor([3, 1])).weights
        tensor([[0.7500, 0.2500]], dtype=torch.float64)
        """
        n = int(multiplicities.sum())
        return cls(values[None], (multiplicities / n)[None], n, 0, "exact: all eigenvalues are known")

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest node that carries weight (of all members of a batch)."""
        used = self.nodes[self.weights > 0]
        return float(used.min()), float(used.max())

    def grid(self, points: int = 512) -> Float[Tensor, "points"]:
        """Evenly spaced points that cover the support with a margin of a twentieth on each side."""
        low, high = self.support
        margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        return torch.linspace(low - margin, high + margin, points, dtype=torch.float64)

    def pdf(
        self, grid: Float[Tensor, "points"] | None = None, width: float | None = None, axis: str = "linear"
    ) -> Float[Tensor, "*batch points"]:
        """Density smoothed with a Gaussian, at the points of `grid`.

        `axis="linear"`: per unit of the eigenvalue; `width` defaults to a hundredth of the support. `axis="log"`: per decade
        of |eigenvalue|, each sign by itself and zeros left out; `width` is in decades and defaults to a tenth. Both follow
        the matrix when it is scaled.
        """
        t = (self.grid() if grid is None else grid).to(torch.float64)
        if axis == "linear":
            low, high = self.support
            sigma = width or (high - low) / 100 or abs(high) / 100 or 1.0
            z = (t[:, None, None] - self.nodes.unsqueeze(-3)) / sigma
        elif axis == "log":
            sigma = width or 0.1
            z = (t.abs().log10()[:, None, None] - self.nodes.abs().log10().unsqueeze(-3)) / sigma
            same = (t.sign()[:, None, None] == self.nodes.sign().unsqueeze(-3)) & (t != 0)[:, None, None]
            z = torch.where(same, z, torch.inf)
        else:
            raise SolverError(f'axis is {axis!r}; expected "linear" or "log".')
        kernel = torch.exp(-0.5 * z.square()) / (sigma * (2 * torch.pi) ** 0.5)
        return (kernel * self.weights.unsqueeze(-3)).sum(-1).mean(-1)

    def cdf(self, grid: Float[Tensor, "points"] | None = None) -> Float[Tensor, "*batch points"]:
        """Share of eigenvalues at or below each point, from 0 to 1."""
        return self._cumulative(self.grid() if grid is None else grid, 0).mean(-1)

    def band(
        self, level: float = 0.95, grid: Float[Tensor, "points"] | None = None
    ) -> tuple[Float[Tensor, "*batch points"], Float[Tensor, "*batch points"]]:
        """Confidence band `(lower, upper)` for the true cdf at each point (pointwise), from at least one probe.

        Two errors are covered. Of the quadrature: by the Chebyshev-Markov-Stieltjes inequalities, the share of a probe's
        weight at or below t lies between the sum without the last node passed and the sum with the next node. Of the probes:
        for a unit vector uniform on the sphere, the weight on a share F of n orthonormal directions is
        Beta(n F / 2, n (1 - F) / 2) whatever the directions, so F is bounded as Clopper and Pearson bound a proportion; the
        mean of several probes is treated as the Beta law of the same mean and variance. Shares are whole multiples of 1/n.
        """
        check_level(level)
        t = self.grid() if grid is None else grid
        probes = self.weights.shape[-2]
        strength = probes * (self.n + 2) / 2 - 1
        tail = (1 - level) / 2
        blur = self.resolution.unsqueeze(-1) if isinstance(self.resolution, Tensor) else self.resolution
        low = self._cumulative(t - blur, -1).mean(-1).clamp(0, 1).numpy()
        high = self._cumulative(t + blur, +1).mean(-1).clamp(0, 1).numpy()
        lower = np.where(low > 0, _beta_mean(np.minimum(low, 1 - 1e-12), strength, 1 - tail), 0.0)
        upper = np.where(high < 1, _beta_mean(np.maximum(high, 1e-300), strength, tail), 1.0)
        up, down = np.ceil(lower * self.n - 1e-9) / self.n, np.floor(upper * self.n + 1e-9) / self.n
        empty = up > down  # no multiple of 1/n lies between: the interval itself is then the better answer
        return torch.from_numpy(np.where(empty, lower, np.abs(up))), torch.from_numpy(np.where(empty, upper, down))

    def _cumulative(self, grid: Float[Tensor, "*batch points"], extra: int) -> Tensor:
        """Weight of each probe at or below each point, with `extra` more (or fewer) nodes; shape (*batch, points, probes)."""
        nodes, order = torch.where(self.weights > 0, self.nodes, torch.inf).sort(-1)
        weights = self.weights.gather(-1, order)
        sums = torch.cat([torch.zeros_like(weights[..., :1]), weights.cumsum(-1)], -1)
        total = sums[..., -1:]
        t = torch.as_tensor(grid).to(torch.float64).unsqueeze(-2).expand(*nodes.shape[:-1], -1).contiguous()
        passed = torch.searchsorted(nodes.contiguous(), t, right=True) + extra
        share = sums.gather(-1, passed.clamp(0, nodes.shape[-1])) / total
        return share.mT


def _beta_mean(x: np.ndarray, strength: float, probability: float) -> np.ndarray:
    """Mean F for which a Beta(F s, (1 - F) s) variable is below x with the given probability; by bisection."""
    low, high = np.zeros_like(x), np.ones_like(x)
    for _ in range(60):
        mid = (low + high) / 2
        below = special.betainc(mid * strength, (1 - mid) * strength, x) > probability
        low, high = np.where(below, mid, low), np.where(below, high, mid)
    return (low + high) / 2
