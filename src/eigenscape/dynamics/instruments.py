"""One look at a model in training: every number of a record, from an objective and an optimizer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from ..core import CurvatureError, SolverError
from ..curvature import Objective, ggn, hessian
from ..curvature.hazards import differentiable_twice
from ..curvature.operators import CurvatureOperator
from ..linop import Counted, Operator
from ..solvers import trace
from .history import Row
from .lines import crossing, loss_at
from .rules import View, group_rule, view
from .tracking import Tracked, Tracker

MEASURES = ("effective", "directional", "critical", "ggn", "trace")
DEFAULT = ("effective", "directional", "critical")
TRACE_PRODUCTS = 12
MOST = 40  # products of one look of a tracker at most
THRIFTY_PRODUCTS = 3  # the same under a budget, beyond one for each pair


def chosen_measures(measures: str | Sequence[str]) -> tuple[str, ...]:
    """Check names of measures; `"all"` means every one of them."""
    names = MEASURES if measures == "all" else (measures,) if isinstance(measures, str) else tuple(measures)
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        raise CurvatureError(f'{unknown[0]!r} is not a measure; expected "all" or some of {", ".join(map(repr, MEASURES))}.')
    return names


@dataclass
class Instruments:
    """Trackers that remember the directions of the last look."""

    k: int = 1
    smallest: int = 0
    measures: tuple[str, ...] = DEFAULT
    tol: float = 0.02
    search: int = 200
    seed: int = 0
    engine: str = "reverse"
    thrifty: bool = False  # begin at the gradient instead of searching, and spread the work over the records
    trackers: dict[str, Tracker] = field(default_factory=dict)
    operators: dict[str, CurvatureOperator] = field(default_factory=dict)
    owner: Objective | None = None
    tested: set[str] = field(default_factory=set)

    def tracker(self, name: str, k: int) -> Tracker:
        """The tracker of one operator."""
        if name not in self.trackers:
            stream = torch.Generator().manual_seed(self.seed + len(self.trackers))
            most = k + THRIFTY_PRODUCTS if self.thrifty else MOST
            self.trackers[name] = Tracker(k, self.tol, most, search=self.search, generator=stream)
        return self.trackers[name]

    def read(self, objective: Objective, optimizer: Optimizer, before: Float[Tensor, "n"] | None) -> Row:
        """Measure; `before` are the flat parameters before the last update."""
        now = flat(objective)
        row: Row = rates(optimizer, objective)
        try:
            with differentiable_twice(objective.model, objective.device):
                row["loss"] = loss_at(objective, now, now)(0.0) if bool(torch.isfinite(now).all()) else math.nan
                if not math.isfinite(row["loss"]):
                    return row | {"loss": math.nan}
                row |= self._curvature(objective, optimizer, now, before, row["loss"])
        except SolverError as error:
            row["note"] = str(error)
        finally:
            for operator in self.operators.values():
                operator.release()
        return row

    def _operator(self, name: str, objective: Objective) -> Counted:
        if self.owner is not objective:
            self.owner, self.operators = objective, {}
        if name not in self.operators:
            check = objective.check and name not in self.tested
            make = {"hessian": hessian, "ggn": ggn}[name]
            self.operators[name] = make(objective, check=check, engine=self.engine)
            self.tested.add(name)
        return Counted(self.operators[name])

    def _curvature(self, objective: Objective, optimizer: Optimizer, now: Tensor, before: Tensor | None, loss: float) -> Row:
        H = self._operator("hessian", objective)
        gradient = objective.gradient()
        old = self.trackers["top"].basis if "top" in self.trackers else None
        start = gradient if self.thrifty else None
        top = self.tracker("top", self.k).look(H, start)
        row = _eigenvalues(top) | {
            "gradient_norm": _norm(gradient),
            "gradient_share": share(gradient, top.vectors),
            "angle": None if old is None or old.shape[0] != H.n else angle(old[:, 0], top.vectors[:, 0]),
        }
        if self.smallest:
            low = self.tracker("bottom", self.smallest).look(-1.0 * H)
            row["smallest"], row["smallest_errors"] = (-low.values).tolist(), low.residual_norms.tolist()
        if "effective" in self.measures:
            seen = view(optimizer, dict(objective.model.named_parameters()), objective.layout)
            row |= self._effective(H, top, seen, start)
        if before is not None and before.shape == now.shape:
            row |= self._update(objective, H, top, before, now - before, row, loss, optimizer)
        if "trace" in self.measures:
            estimate = trace(H, torch.Generator().manual_seed(self.seed), max_matvecs=TRACE_PRODUCTS)
            row["trace"], row["trace_stderr"] = float(estimate.value), float(estimate.stderr)
        products = H.num_matvecs
        if "ggn" in self.measures:
            G = self._operator("ggn", objective)
            gauss = self.tracker("ggn", 1).look(G, start)
            row["ggn"], row["ggn_error"] = float(gauss.values[0]), float(gauss.residual_norms[0])
            row["ggn_gap"] = abs(row["sharpness"] - row["ggn"])
            products += G.num_matvecs
        return row | {"products": products}

    def _effective(self, H: Operator, top: Tracked, seen: View | None, start: Tensor | None) -> Row:
        if seen is None:
            return {"threshold": None, "ratio": None, "effective_sharpness": None}
        if seen.plain:
            shift = float(seen.shift)
            value, low, high = float(top.values[0]) + shift, top.low + shift, top.high + shift
        else:
            felt = self.tracker("effective", 1).look(seen.operator(H), None if start is None else seen.scale * start)
            value, low, high = float(felt.values[0]), felt.low, felt.high
        edge = seen.threshold
        return {
            "threshold": edge,
            "effective_sharpness": value,
            "effective_low": low,
            "effective_high": high,
            "ratio": value / edge,
            "ratio_low": low / edge,
            "ratio_high": high / edge,
        }

    def _update(
        self,
        objective: Objective,
        H: Operator,
        top: Tracked,
        before: Tensor,
        step: Tensor,
        row: Row,
        loss: float,
        optimizer: Optimizer,
    ) -> Row:
        out: Row = {"update_norm": _norm(step), "update_share": share(step, top.vectors)}
        if out["update_norm"] == 0:
            return out
        if "directional" in self.measures:
            u = step / out["update_norm"]
            out["directional"] = float(u.double() @ (H @ u).double())
        if "critical" in self.measures:
            out |= critical(objective, before, step, loss, float(optimizer.param_groups[0]["lr"]))
        return out

    def state_dict(self) -> dict[str, Any]:
        """What the next look depends on."""
        return {name: tracker.state_dict() for name, tracker in self.trackers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        counts = {"top": self.k, "bottom": self.smallest}
        for name, part in state.items():
            self.tracker(name, counts.get(name, 1)).load_state_dict(part)


def flat(objective: Objective) -> Float[Tensor, "n"]:
    """Copy the present parameters into one vector."""
    return objective.layout.flatten(objective.parameters)


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))


def share(x: Float[Tensor, "n"], basis: Float[Tensor, "n k"]) -> float | None:
    """Share of the squared length of x in the span of orthonormal columns; None for a zero vector.

    >>> round(share(torch.tensor([3.0, 4.0]), torch.tensor([[1.0], [0.0]])), 6)
    0.36
    """
    size = _norm(x)
    if size == 0 or not math.isfinite(size):
        return None
    return min(1.0, float(((x / size).double() @ basis.to(x.device).double()).square().sum()))


def angle(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> float:
    """Angle between two directions (lines), in radians between 0 and pi / 2.

    >>> round(angle(torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 1.0])), 6)      # pi / 4
    0.785398
    """
    x, y = (v.double() / torch.linalg.vector_norm(v.double()) for v in (x, y.to(x.device)))
    y = y * (1.0 if float(x @ y) >= 0 else -1.0)
    return 2 * math.atan2(_norm(x - y), _norm(x + y))


def _eigenvalues(top: Tracked) -> Row:
    return {
        "sharpness": float(top.values[0]),
        "sharpness_low": top.low,
        "sharpness_high": top.high,
        "eigenvalues": top.values.tolist(),
        "eigenvalue_errors": top.residual_norms.tolist(),
        "converged": top.converged,
        "searched": top.searched,
    }


def rates(optimizer: Optimizer, objective: Objective) -> Row:
    """Learning rate of the first group, `2 / lr`, and rate and threshold of every group that is measured."""
    measured = {id(p) for name, p in objective.model.named_parameters() if name in objective.layout.names}
    groups = [g for g in optimizer.param_groups if any(id(p) in measured for p in g["params"])] or optimizer.param_groups
    found = [(float(g["lr"]), group_rule(optimizer, g)) for g in groups]
    lr = found[0][0]
    listed = [{"lr": rate, "threshold": rule.threshold if rule else None} for rate, rule in found]
    return {"lr": lr, "two_over_lr": 2 / lr if lr > 0 else math.inf, "groups": listed}


def critical(objective: Objective, before: Tensor, step: Tensor, loss: float, lr: float) -> Row:
    r"""Learning rate at which the last update would have left the loss where it was, from forward passes alone.

    The update is scaled: `loss(before + s step) = loss(before)` at s*, and the critical rate is `s* lr`. For gradient descent
    on a quadratic it is `2 |g|^2 / g^T H g >= 2 / sharpness`. None where rounding hides the difference, and where the update
    pointed uphill.
    """
    along = loss_at(objective, before, step)
    start = along(0.0)
    floor = 16 * torch.finfo(objective.dtype).eps * abs(start)
    if not abs(loss - start) > floor:
        return {"critical_lr": None, "critical_low": None, "critical_high": None, "critical_passes": 1}
    found = crossing(lambda s: (loss if s == 1.0 else along(s)) - start)
    known = found.lower > 0
    return {
        "critical_lr": found.value * lr if known else None,
        "critical_low": found.lower * lr,
        "critical_high": found.upper * lr,
        "critical_passes": found.passes,
    }
