"""What gradient descent on the scalar network does, for a million learning rates and initial norms, from the exact map."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ....theory import ScalarNet, dynamics
from ...ledger.oracle import normal
from ...machine import Experiment, Row, stream

CONVERGES, CATAPULTS, SLOW, EDGE, DIVERGES = "converges", "catapults", "slow", "edge", "diverges"
OUTCOMES = (CONVERGES, CATAPULTS, SLOW, EDGE, DIVERGES)
LETTERS = "cksed"  # one letter per outcome, so that a million of them stay small on disk
SEGMENT = 20  # steps looked at together
LAST = 2.2  # largest learning rate, in units of 1 / |mean yx|
NORMS = (0.01, 100.0)  # of |w|^2 + |v|^2, in units of |mean yx| / mean x^2


@dataclass(frozen=True)
class Strip:
    """One part of the grid of learning rates against all initial norms; runs start at `<w, v> = 0`."""

    part: int
    parts: int
    rates: int
    norms: int
    steps: int

    def grid(self) -> tuple[Tensor, Tensor]:
        """Learning rates of this part, and all norms."""
        lr = LAST * torch.arange(1, self.rates + 1, dtype=torch.float64) / self.rates
        low, high = (torch.tensor(end, dtype=torch.float64).log10().item() for end in NORMS)
        return lr.chunk(self.parts)[self.part], torch.logspace(low, high, self.norms, dtype=torch.float64)


@dataclass(frozen=True)
class Ladder:
    """Learning rates whose late iterates are kept, from a small initial norm."""

    rates: int
    steps: int = 4000
    kept: int = 32
    norm: float = 0.1


@dataclass(frozen=True)
class Weights:
    """Plain descent on all weights of networks of width 5, for random learning rates and norms."""

    runs: int
    steps: int
    width: int = 5


def strips(profile: str) -> list[Strip]:
    """A million runs at quick, four million at paper."""
    side, parts, steps = {"smoke": (150, 2, 200), "quick": (1000, 10, 400), "paper": (2000, 20, 2000)}[profile]
    return [Strip(i, parts, side, side, steps) for i in range(parts)]


def ladders(profile: str) -> list[Ladder]:
    """One."""
    return [Ladder({"smoke": 150, "quick": 600, "paper": 2000}[profile])]


def weights(profile: str) -> list[Weights]:
    """As many steps as the strips have."""
    return [Weights({"smoke": 100, "quick": 2000, "paper": 20_000}[profile], strips(profile)[0].steps)]


def scalar_net(norm: Tensor) -> ScalarNet:
    """Networks with `<w, v> = 0` on data with mean x^2 = mean yx = 1, to which every other data can be scaled."""
    one = torch.ones(1, dtype=torch.float64, device=norm.device)
    return ScalarNet.from_norms(norm, norm, one, one)


@dataclass(frozen=True)
class Ends:
    """What became of each run: an index into OUTCOMES, and sharpness over 2 / lr at the end (mean of the last steps)."""

    outcome: Tensor
    sharpness: Tensor


def run(norm: Tensor, lr: Tensor, steps: int) -> Ends:
    """Follow runs to the end; norm and lr broadcast.

    Converged: the residual covariance is below 1e-6, or nearly a digit smaller than one segment ago in every segment to come.
    A run that has converged catapulted if its loss was ever above where it began. One that has not is at the edge if the
    residual covariance still changes sign, and slow if not.
    """
    now = scalar_net(norm)
    start = now.loss
    peak, seen = start, now
    for _ in range(0, steps, SEGMENT):
        path = dynamics.gradient_descent(now, lr, SEGMENT)
        seen = path.net
        peak = torch.maximum(peak, seen.loss.amax(0))
        now = ScalarNet(seen.plus[-1], seen.minus[-1], now.data)
    settled = now.slope.abs() < 1e-6
    swings = (seen.slope.amax(0) > 0) & (seen.slope.amin(0) < 0)
    jumped = settled & (peak > start * (1 + 1e-9))
    outcome = torch.where(settled, OUTCOMES.index(CONVERGES), torch.where(swings, OUTCOMES.index(EDGE), OUTCOMES.index(SLOW)))
    outcome = torch.where(jumped, OUTCOMES.index(CATAPULTS), outcome)
    outcome = torch.where(now.plus.isnan(), OUTCOMES.index(DIVERGES), outcome)
    return Ends(outcome, seen.sharpness.mean(0) * lr / 2)


def map_strip(cell: Strip, device: torch.device) -> list[Row]:
    """One row per learning rate: a letter per norm, and the range of sharpness over 2 / lr where runs settle or swing."""
    lr, norm = (t.to(device) for t in cell.grid())
    ends = run(norm, lr.unsqueeze(-1), cell.steps)
    rows = []
    for rate, outcome, sharp in zip(lr.tolist(), ends.outcome.cpu(), ends.sharpness.cpu()):
        row: Row = {"lr": rate, "outcomes": "".join(LETTERS[i] for i in outcome.tolist())}
        for name, kinds in (("settled", (CONVERGES, CATAPULTS)), ("swinging", (EDGE,))):
            there = sharp[torch.isin(outcome, torch.tensor([OUTCOMES.index(k) for k in kinds]))]
            row |= {
                f"{name}_low": float(there.min()) if len(there) else None,
                f"{name}_high": float(there.max()) if len(there) else None,
            }
        rows.append(row)
    return rows


def climb(cell: Ladder, device: torch.device) -> list[Row]:
    """One row per learning rate that does not diverge: the last values of sharpness over 2 / lr, as text, and their period."""
    lr = LAST * torch.arange(1, cell.rates + 1, dtype=torch.float64, device=device) / cell.rates
    start = scalar_net(torch.tensor(cell.norm, dtype=torch.float64, device=device))
    early = dynamics.gradient_descent(start, lr, cell.steps - cell.kept, every=cell.steps).net
    late = dynamics.gradient_descent(ScalarNet(early.plus[-1], early.minus[-1], early.data), lr, cell.kept - 1).net
    values = (late.sharpness * lr / 2).T.cpu()
    return [
        {"lr": float(rate), "late": " ".join(f"{v:.5f}" for v in path.tolist()), "period": period(path)}
        for rate, path in zip(lr, values)
        if bool(path.isfinite().all())
    ]


def period(path: Tensor) -> int:
    """Return the length of the cycle that the values repeat, up to 8; 0 if none.

    >>> period(torch.tensor([1.0, 2.0]).repeat(8)), period(torch.ones(16)), period(torch.rand(16))
    (2, 1, 0)
    """
    return next((k for k in (1, 2, 4, 8) if bool((path[k:] - path[:-k]).abs().max() < 1e-4)), 0)


def descend(cell: Weights, device: torch.device) -> list[Row]:
    """Sort runs on all weights by automatic differentiation as the map sorts them."""
    generator = stream(cell)
    lr = LAST * torch.rand(cell.runs, generator=generator, dtype=torch.float64).to(device)
    low, high = (torch.tensor(end).log10().item() for end in NORMS)
    norm = 10 ** (low + (high - low) * torch.rand(cell.runs, generator=generator, dtype=torch.float64)).to(device)
    w, v = normal(generator, 2, cell.runs, cell.width).to(device)
    v = v - (v * w).sum(-1, keepdim=True) * w / w.square().sum(-1, keepdim=True)  # <w, v> = 0
    theta = torch.stack([A / A.norm(dim=-1, keepdim=True) * (norm / 2).sqrt().unsqueeze(-1) for A in (w, v)])

    def losses(theta: Tensor) -> Tensor:
        return 0.5 * ((theta[0] * theta[1]).sum(-1) - 1).square()

    start = peak = losses(theta)
    slopes: list[Tensor] = []
    for _ in range(cell.steps):
        slopes.append((theta[0] * theta[1]).sum(-1) - 1)
        theta = theta - lr.unsqueeze(-1) * torch.func.grad(lambda t: losses(t).sum())(theta)
        peak = torch.fmax(peak, losses(theta))
    last = (theta[0] * theta[1]).sum(-1) - 1
    late = torch.stack([*slopes[-SEGMENT:], last])
    mapped = run(norm, lr, cell.steps).outcome
    return [
        {"lr": float(rate), "norm": float(size), "mapped": OUTCOMES[int(k)], "plain": sort(s, bool(p > a * (1 + 1e-9)))}
        for rate, size, k, s, p, a in zip(lr, norm, mapped, late.T, peak, start)
    ]


def sort(slopes: Tensor, jumped: bool) -> str:
    """Name what the last residual covariances and the loss say."""
    if not bool(slopes.isfinite().all()):
        return DIVERGES
    if abs(float(slopes[-1])) < 1e-6:
        return CATAPULTS if jumped else CONVERGES
    return EDGE if float(slopes.amax()) > 0 > float(slopes.amin()) else SLOW


MAP = Experiment("beyond/phase-map", strips, map_strip)
LADDER = Experiment("beyond/phase-ladder", ladders, climb)
PLAIN = Experiment("beyond/phase-weights", weights, descend)
