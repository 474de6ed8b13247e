"""Products in plain PyTorch, as one writes them by hand: contestants, and in float64 the judges of all others."""

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...curvature import Objective
from ...curvature.losses import next_token

Product = Callable[[Tensor], Tensor]


class Plain(nn.Module):
    """A model as other tools need it: one row of logits per target, and attention by the kernel that can be derived twice."""

    def __init__(self, model: nn.Module, shifted: bool):
        super().__init__()
        self.model, self.shifted = model, shifted

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        with sdpa_kernel(SDPBackend.MATH):
            out = self.model(x)
        return out[:, :-1].flatten(0, 1) if self.shifted else out


@dataclass
class Problem:
    """An objective, taken apart: model, criterion and batches, the same for everybody."""

    objective: Objective
    model: nn.Module
    criterion: nn.Module
    data: list[tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, objective: Objective, dtype: torch.dtype | None = None) -> "Problem":
        """Take an objective apart, or a copy of it in another precision."""
        model = objective.model if dtype is None else copy.deepcopy(objective.model).to(dtype)
        shifted = objective.criterion is next_token
        data = [
            (x if dtype is None or not x.is_floating_point() else x.to(dtype), y[:, 1:].flatten() if shifted else y)
            for x, y in objective.batches()
        ]
        return cls(objective, Plain(model, shifted), nn.CrossEntropyLoss(), data)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters, in the order of every flat vector."""
        return list(self.model.parameters())

    @property
    def size(self) -> int:
        """Their number."""
        return sum(p.numel() for p in self.parameters)

    def loss(self) -> Tensor:
        """Loss of the first batch."""
        x, y = self.data[0]
        return self.criterion(self.model(x), y)

    def cut(self, v: Tensor) -> list[Tensor]:
        """Cut a flat vector into the parameters' shapes."""
        ps = self.parameters
        return [part.view_as(p) for part, p in zip(v.split([p.numel() for p in ps]), ps)]


def gradient(objective: Objective) -> Callable[[], Any]:
    """The unit: one gradient of the first batch, by PyTorch's own choice of kernels."""
    x, y = next(iter(objective.batches()))
    parameters = list(objective.model.parameters())
    return lambda: torch.autograd.grad(objective.criterion(objective.model(x), y), parameters)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Join tensors into one vector."""
    return torch.cat([t.reshape(-1) for t in tensors]).detach()


def by_columns(product: Product) -> Product:
    """Make a product with a vector one with the columns of a matrix, too."""
    return lambda V: product(V) if V.ndim == 1 else torch.stack([product(v) for v in V.mT.contiguous()], -1)


def fresh(problem: Problem) -> Product:
    """Double backward from scratch for every product."""

    def product(v: Tensor) -> Tensor:
        first = torch.autograd.grad(problem.loss(), problem.parameters, create_graph=True)
        return flat(torch.autograd.grad(first, problem.parameters, problem.cut(v)))

    return by_columns(product)


def kept(problem: Problem) -> Product:
    """Double backward on a graph that is kept."""
    parameters = problem.parameters
    first = torch.autograd.grad(problem.loss(), parameters, create_graph=True)
    return by_columns(lambda v: flat(torch.autograd.grad(first, parameters, problem.cut(v), retain_graph=True)))


def linearized(problem: Problem) -> Product:
    """Forward over reverse by `torch.func.linearize`; several columns by `vmap`."""
    names = [name for name, _ in problem.model.named_parameters()]
    x, y = problem.data[0]

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return problem.criterion(torch.func.functional_call(problem.model, parameters, (x,)), y)

    at = {name: p.detach() for name, p in problem.model.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.fx, about its own nodes
        _, linear = torch.func.linearize(torch.func.grad(loss), at)

    def product(v: Tensor) -> Tensor:
        return flat(linear(dict(zip(names, problem.cut(v)))).values())

    def block(V: Tensor) -> Tensor:
        rows = {name: V.mT[:, a:b].reshape(-1, *at[name].shape) for name, (a, b) in spans.items()}
        return torch.cat([r.flatten(1) for r in torch.func.vmap(linear)(rows).values()], 1).mT

    ends = torch.tensor([at[name].numel() for name in names]).cumsum(0).tolist()
    spans = dict(zip(names, zip([0, *ends], ends)))
    return lambda V: product(V) if V.ndim == 1 else block(V)


def ggn_kept(problem: Problem) -> Product:
    """Gauss-Newton product: the Jacobian by differentiating a vector-Jacobian product, all graphs kept."""
    parameters, (x, y) = problem.parameters, problem.data[0]
    outputs = problem.model(x)
    u = torch.zeros_like(outputs, requires_grad=True)
    transposed = torch.autograd.grad(outputs, parameters, u, create_graph=True)
    slope = torch.autograd.grad(problem.criterion(outputs, y), outputs, create_graph=True)

    def product(v: Tensor) -> Tensor:
        (Jv,) = torch.autograd.grad(transposed, u, problem.cut(v), retain_graph=True)
        (HJv,) = torch.autograd.grad(slope, outputs, Jv, retain_graph=True)
        return flat(torch.autograd.grad(outputs, parameters, HJv, retain_graph=True))

    return by_columns(product)


def exact(objective: Objective, matrix: str) -> Product:
    """Products in float64, by double backward of this module: the judge."""
    problem = Problem.of(objective, torch.float64)
    product = {"Hessian": kept, "GGN": ggn_kept}[matrix](problem)
    return lambda V: product(V.double())
