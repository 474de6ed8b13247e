"""What an optimizer does to a quadratic: its step size, momentum, decay and preconditioner, read from the optimizer itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer, RMSprop

from ..core import CurvatureError, Layout
from ..linop import Operator


@dataclass(frozen=True)
class GroupRule:
    """One parameter group. An eigenvalue h of its (preconditioned) curvature is stable while `h < threshold`.

    A mode flips sign at the edge of stability, x_{t+1} = -x_t. Putting that into the update gives `lr (h / gain + decay) = 2`:

    - gradient descent: gain 1;
    - heavy ball, momentum b, dampening d: gain (1 + b) / (1 - d);
    - Nesterov: gain (1 + b) / (1 + 2 b);
    - Adam, AdamW (the momentum is an average): gain (1 + b1) / (1 - b1);
    - RMSprop: as heavy ball with d = 0.

    `coupled` weight decay adds to h before the preconditioner, `decay` (AdamW's) is the one in the formula.
    """

    lr: float
    gain: float
    coupled: float = 0.0
    decay: float = 0.0

    @property
    def threshold(self) -> float:
        """Largest stable curvature, `gain (2 / lr - decay)`; infinite at a learning rate of zero."""
        return self.gain * (2 / self.lr - self.decay) if self.lr > 0 else float("inf")


def unwrapped(optimizer: Any) -> Optimizer:
    """Return the torch optimizer inside the wrappers of Lightning and Accelerate."""
    while getattr(optimizer, "optimizer", None) is not None:
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, Optimizer):
        raise CurvatureError(f"optimizer is a {type(optimizer).__name__}; expected a torch.optim.Optimizer.")
    return optimizer


def group_rule(optimizer: Optimizer, group: Mapping[str, Any]) -> GroupRule | None:
    """Rule of one group; None for optimizers whose edge of stability is not known here.

    >>> w = torch.nn.Parameter(torch.ones(1))
    >>> sgd = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> round(group_rule(sgd, sgd.param_groups[0]).threshold, 6)      # 2 (1 + 0.9) / 0.1
    38.0
    >>> adam = torch.optim.Adam([w], lr=0.1)
    >>> round(group_rule(adam, adam.param_groups[0]).threshold, 6)    # (2 + 2 * 0.9) / ((1 - 0.9) * 0.1)
    380.0
    """
    if group.get("maximize"):
        return None
    lr, decay = float(group["lr"]), float(group.get("weight_decay", 0.0))
    if type(optimizer) is torch.optim.SGD:
        b = float(group["momentum"])
        if group["nesterov"]:
            return GroupRule(lr, (1 + b) / (1 + 2 * b), coupled=decay)
        return GroupRule(lr, (1 + b) / (1 - float(group["dampening"])) if b else 1.0, coupled=decay)
    if isinstance(optimizer, Adam):
        b1 = float(group["betas"][0])
        own = isinstance(optimizer, AdamW) or bool(group.get("decoupled_weight_decay"))
        return GroupRule(lr, (1 + b1) / (1 - b1), coupled=0.0 if own else decay, decay=decay if own else 0.0)
    if type(optimizer) is RMSprop:
        return GroupRule(lr, 1 + float(group["momentum"]), coupled=decay)
    return None


def preconditioner(optimizer: Optimizer, group: Mapping[str, Any], p: Tensor) -> Tensor | None:
    """Diagonal P of the present update `lr P^-1 (momentum)`, or None where the optimizer has not yet stepped.

    Adam's bias corrections belong to it: `P = (1 - b1^t) (sqrt(v / (1 - b2^t)) + eps)`. `step` counts the updates made, so
    this is the P of the last one.
    """
    state, p = optimizer.state.get(p, {}), p.detach()
    if isinstance(optimizer, Adam):
        if "exp_avg_sq" not in state:
            return None
        t, (b1, b2) = float(state["step"]), map(float, group["betas"])
        v = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
        return (1 - b1**t) * ((v / (1 - b2**t)).sqrt() + group["eps"])
    if type(optimizer) is RMSprop:
        if "square_avg" not in state:
            return None
        v = state["square_avg"]
        if group["centered"]:
            v = (v - state["grad_avg"].square()).clamp(min=0)
        return v.sqrt() + group["eps"]
    return torch.ones_like(p)


@dataclass(frozen=True, eq=False)
class View:
    r"""The curvature as the optimizer feels it: `A = S (P^-1/2 (H + C) P^-1/2 g0 / g + g0 W) S`, stable while `A < threshold`.

    `scale = S P^-1/2 sqrt(g0 / g)` and `shift` are diagonals over the objective's parameters; S^2 holds the groups' learning
    rates and g0 / g their gains, relative to the first group; C is coupled and W decoupled weight decay. With one group and no
    decay A is `P^-1/2 H P^-1/2`, and H itself for plain or heavy-ball gradient descent. `A / threshold > 1` in any direction
    means that the linearised dynamics grows there; with groups of unequal momentum this is exact for none of them alone.
    """

    rules: tuple[GroupRule, ...]
    scale: Float[Tensor, "n"] | float
    shift: Float[Tensor, "n"] | float

    @property
    def threshold(self) -> float:
        """Edge of stability of A: `2 g0 / lr0`."""
        first = self.rules[0]
        return 2 * first.gain / first.lr if first.lr > 0 else float("inf")

    @property
    def plain(self) -> bool:
        """Whether A is H plus a multiple of the identity."""
        return not isinstance(self.scale, Tensor)

    def operator(self, H: Operator) -> Operator:
        """Return A."""
        if not isinstance(self.scale, Tensor):
            return H if not self.shift else H.shift(float(self.shift))
        return Felt(H, self.scale, self.shift)


class Felt(Operator):
    """`D H D + diag(shift)`."""

    def __init__(self, op: Operator, scale: Float[Tensor, "n"], shift: Float[Tensor, "n"] | float):
        super().__init__(op.n, dtype=op.dtype, device=op.device, layout=op.layout)
        self.op, self.scale, self.diagonal = (
            op,
            scale.unsqueeze(-1),
            shift.unsqueeze(-1) if isinstance(shift, Tensor) else shift,
        )

    def matmat(self, V):
        """Scale, multiply, scale."""
        return self.scale * self.op.matmat(self.scale * V) + self.diagonal * V

    @property
    def engine(self) -> str:
        """The engine of H, scaled."""
        return f"scaled ({self.op.engine})"


def view(optimizer: Any, named: Mapping[str, Tensor], layout: Layout) -> View | None:
    """Read the optimizer for the parameters of an objective; None where no rule is known or no step was made yet.

    `named` maps names to the very parameters that the optimizer holds.
    """
    optimizer = unwrapped(optimizer)
    owners = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
    lost = [name for name in layout.names if id(named[name]) not in owners]
    if lost:
        raise CurvatureError(
            f"the objective measures {lost[0]!r}, which the optimizer does not move; expected params= with its parameters only."
        )
    groups = sorted({owners[id(named[name])] for name in layout.names})
    found = {i: group_rule(optimizer, optimizer.param_groups[i]) for i in groups}
    rules = {i: rule for i, rule in found.items() if rule is not None}
    if len(rules) < len(found):
        return None
    first = rules[groups[0]]
    if len(set(rules.values())) == 1 and not isinstance(optimizer, Adam | RMSprop):
        return View(tuple(rules.values()), 1.0, first.coupled)
    scales, shifts = [], []
    for name in layout.names:
        p, rule = named[name], rules[owners[id(named[name])]]
        P = preconditioner(optimizer, optimizer.param_groups[owners[id(p)]], p)
        if P is None:
            return None
        rate = rule.lr / first.lr if first.lr > 0 else 1.0
        square = rate * first.gain / (rule.gain * P.double())
        scales.append(square.sqrt().reshape(-1))
        shifts.append((rule.coupled * square + rate * first.gain * rule.decay).reshape(-1))
    dtype = named[layout.names[0]].dtype
    return View(tuple(rules.values()), torch.cat(scales).to(dtype), torch.cat(shifts).to(dtype))
