"""Gradient descent on self-attention from small weights, for many inputs at once: [cracking] App. D.2 and D.5."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ....theory import self_attention, self_attention_numbers
from ...machine import Experiment, Row
from .brute import hessian_eigenvalues
from .samples import normal

WIDTH = 2  # d_K
LR = 2.3  # of the paper
CHUNK = 50  # steps whose curvature is computed at once
HUGE = 1e3  # weights beyond it count as diverged
EDGE, HOVERS, BELOW, OTHER, DIVERGES = "edge", "hovers", "below", "other", "diverges"


@dataclass(frozen=True)
class Search:
    """Every input `(x1, x2)` of a grid with `x1 >= |x2|`: swapping the tokens, or all signs, changes nothing."""

    lr: float
    seed: int
    points: int
    steps: int
    reach: float = 2.0


@dataclass(frozen=True)
class Path:
    """One input, step by step."""

    x1: float
    x2: float
    lr: float = LR
    seed: int = 2
    steps: int = 400


def searches(profile: str) -> list[Search]:
    """The paper's learning rate for several initialisations, and others around it."""
    if profile == "smoke":
        return [Search(LR, 2, 21, 250)]
    fine, coarse, steps, seeds = (81, 41, 600, 4) if profile == "quick" else (161, 81, 2000, 20)
    return [Search(LR, s, fine, steps) for s in range(seeds)] + [
        Search(lr, s, coarse, steps) for lr in (1.7, 1.9, 2.1, 2.5, 2.7, 2.9) for s in range(2, 2 + seeds // 2)
    ]


def paths(profile: str) -> list[Path]:
    """An input that reproduces the figure; the search found it."""
    return [Path(1.0, -0.95, steps=150 if profile == "smoke" else 400)]


@dataclass(frozen=True, eq=False)
class Heads:
    """One head per input, `f(x) = w_V softmax(<w_Q, w_K> x x^T / sqrt(2)) x`, which is to reverse its two tokens."""

    a: Float[Tensor, "N"]
    q: Float[Tensor, "N d"]
    k: Float[Tensor, "N d"]
    x: Float[Tensor, "N 2"]

    @classmethod
    def start(cls, seed: int, x: Float[Tensor, "N 2"]) -> "Heads":
        """Normal weights of deviation 0.1, the same for every input."""
        theta = 0.1 * normal(Search(0.0, seed, 0, 0), "weights", 1 + 2 * WIDTH, device=x.device)
        a, q, k = theta.expand(len(x), -1).split([1, WIDTH, WIDTH], -1)
        return cls(a.squeeze(-1), q, k, x)

    def moments(self) -> tuple[Float[Tensor, "N 2"], Float[Tensor, "N 2"]]:
        """Mean and variance of the tokens under the attention of each."""
        c = (self.q * self.k).sum(-1) / WIDTH**0.5
        A = (c[:, None, None] * self.x.unsqueeze(-1) * self.x.unsqueeze(-2)).softmax(-1)
        m1 = (A @ self.x.unsqueeze(-1)).squeeze(-1)
        return m1, (A * (self.x.unsqueeze(-2) - m1.unsqueeze(-1)).square()).sum(-1)

    def residual(self) -> Float[Tensor, "N 2"]:
        """Output less target."""
        return self.a.unsqueeze(-1) * self.moments()[0] - self.x.flip(-1)

    def step(self, lr: float) -> "Heads":
        """Descend along `dl/da = mean d m1` and `dl/dc = mean a d x m2 / sqrt(2)`."""
        m1, m2 = self.moments()
        d = self.a.unsqueeze(-1) * m1 - self.x.flip(-1)
        slope = (self.a * (d * self.x * m2).mean(-1) / WIDTH**0.5).unsqueeze(-1)
        return Heads(self.a - lr * (d * m1).mean(-1), self.q - lr * slope * self.k, self.k - lr * slope * self.q, self.x)

    def where(self, kept: Bool[Tensor, "N"]) -> "Heads":
        """Set the others to zero, where they stay finite."""
        a, q, k = (torch.where(kept[(..., *[None] * (t.ndim - 1))], t, 0.0) for t in (self.a, self.q, self.k))
        return Heads(a, q, k, self.x)

    def size(self) -> Float[Tensor, "N"]:
        """Largest weight."""
        return torch.cat([self.a.unsqueeze(-1), self.q, self.k], -1).abs().amax(-1)


def descend(heads: Heads, lr: float, steps: int) -> tuple[list[Heads], Bool[Tensor, "N"]]:
    """Heads before every step and after the last, and which of them never diverged; those that did are zero from then on."""
    alive = torch.ones(len(heads.x), dtype=torch.bool, device=heads.x.device)
    path = [heads]
    for _ in range(steps):
        heads = heads.step(lr)
        size = heads.size()
        alive = alive & size.isfinite() & (size < HUGE)
        heads = heads.where(alive)
        path.append(heads)
    return path, alive


def stacked(path: list[Heads]) -> tuple[Tensor, ...]:
    """What `theory.self_attention` takes, with steps and inputs as leading axes."""
    a, q, k = (torch.stack(parts) for parts in zip(*((h.a, h.q, h.k) for h in path)))
    x = path[0].x.unsqueeze(-2)
    return a, q, k, x, x.flip(-1)


def search(cell: Search, device: torch.device) -> list[Row]:
    """One row per input: what became of it, with the numbers the sorting used."""
    axis = torch.linspace(-cell.reach, cell.reach, cell.points, dtype=torch.float64, device=device)
    x = torch.cartesian_prod(axis, axis)
    path, alive = descend(Heads.start(cell.seed, x[x[:, 0] >= x[:, 1].abs()]), cell.lr, cell.steps)
    parts = [self_attention(*stacked(path[i : i + CHUNK])) for i in range(0, len(path), CHUNK)]
    S, T = torch.cat([p.max for p in parts]), torch.cat([p.trace for p in parts])
    L = torch.stack([0.5 * h.residual().square().mean(-1) for h in path])
    found = [classify(S[:, i], L[:, i], 2 / cell.lr, bool(alive[i])) for i in range(len(alive))]
    return [
        {"x1": float(p[0]), "x2": float(p[1])} | outcome | {"opposed": _opposed(S[:, i], T[:, i], outcome)}
        for i, (p, outcome) in enumerate(zip(path[0].x, found))
    ]


def classify(S: Float[Tensor, "t"], L: Float[Tensor, "t"], threshold: float, alive: bool) -> Row:
    """Sort a run.

    At the edge: sharpness rises to 2 / lr from at most 0.7 of it, in five steps or more, later crosses that line four times
    or more, and over the last half stays within a quarter of it on average, while the loss goes on falling: its mean over the
    last quarter of the steps is at most half of its mean over as many steps after the first crossing.
    """
    above = threshold < S
    crossing = int(above.long().argmax()) if bool(above.any()) else -1
    row: Row = {
        "crossing": crossing,
        "start": float(S[0] / threshold),
        "loss": float(L[-1]),
        "crossings": 0,
        "late": float("nan"),
    }
    if not alive:
        return row | {"outcome": DIVERGES}
    if crossing < 0:
        return row | {"outcome": BELOW, "late": float(S[-1] / threshold)}
    after = above[crossing:]
    half = S[len(S) // 2 :] / threshold
    row |= {"crossings": int((after[1:] != after[:-1]).sum()), "late": float(half.mean())}
    rises = crossing >= 5 and row["start"] <= 0.7 and bool((S[1 : crossing + 1] > S[:crossing]).double().mean() > 0.9)
    near = float((half - 1).abs().mean()) < 0.25 and row["crossings"] >= 4
    quarter = len(L) // 4
    falls = float(L[-quarter:].mean()) <= 0.5 * float(L[crossing : crossing + quarter].mean())
    return row | {"outcome": EDGE if rises and near and falls else HOVERS if rises and near else OTHER}


def _opposed(S: Tensor, T: Tensor, outcome: Row) -> float:
    """Correlation of the changes of sharpness and trace from step to step, at the edge."""
    if outcome["outcome"] != EDGE:
        return float("nan")
    return float(torch.corrcoef(torch.stack([S, T])[:, outcome["crossing"] :].diff())[0, 1])


def path(cell: Path, device: torch.device) -> list[Row]:
    """One row per step by the closed form, and beside it the same training and Hessian by automatic differentiation."""
    heads = Heads.start(cell.seed, torch.tensor([[cell.x1, cell.x2]], dtype=torch.float64, device=device))
    x, y = heads.x[0], heads.x[0].flip(-1)

    def loss(t: Tensor) -> Tensor:
        a, q, k = t.split([1, WIDTH, WIDTH])
        return 0.5 * (a * (((q @ k) / WIDTH**0.5 * torch.outer(x, x)).softmax(-1) @ x) - y).square().mean()

    theta, thetas = torch.cat([heads.a[:, None], heads.q, heads.k], -1)[0], []
    for _ in range(cell.steps + 1):
        thetas.append(theta)
        theta = theta - cell.lr * torch.func.grad(loss)(theta)
    dense = hessian_eigenvalues(loss, torch.stack(thetas))
    steps, _ = descend(heads, cell.lr, cell.steps)
    spectrum, numbers = self_attention(*stacked(steps)), self_attention_numbers(*stacked(steps))
    rows = []
    for t, (h, d) in enumerate(zip(steps, dense)):
        m1, m2 = h.moments()
        rows.append(
            {
                "step": t,
                "sharpness": float(spectrum.max[t]),
                "measured": float(d[-1]),
                "trace": float(spectrum.trace[t]),
                "xi": float(numbers.radius[t]),
                "loss": float(0.5 * h.residual().square().mean()),
                "residual": float(h.residual().norm()),
                "value": float(h.a),
                "query": float(h.q.norm()),
                "key": float(h.k.norm()),
                "m1": float(m1.norm()),
                "m2": float(m2.norm()),
            }
        )
    return rows


SEARCH = Experiment("cracking/attention-edge-search", searches, search)
PATH = Experiment("cracking/attention-edge-path", paths, path)
