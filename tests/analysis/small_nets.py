"""A small network with its Hessian and Gauss-Newton matrix by brute force, in float64."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

import eigenscape as es


def objective(inputs: int = 6, width: int = 12, outputs: int = 4, scale: float = 1.0, seed: int = 0) -> es.Objective:
    """A tanh network on random data; the loss is `scale` times half the squared error."""
    g = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    X, Y = (torch.randn(30, d, generator=g, dtype=torch.float64) for d in (inputs, outputs))
    return es.Objective(model, lambda f, y: scale * es.losses.half_mse(f, y), (X, Y))


def brute_force(obj: es.Objective) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient, Hessian (double backward) and Gauss-Newton matrix of half the squared error."""
    X, Y = next(iter(obj.batches()))
    flat = torch.cat([p.reshape(-1) for p in obj.parameters.values()])

    def outputs(t: Tensor) -> Tensor:
        return functional_call(obj.model, obj.layout.unflatten(t), (X,))

    def loss(t: Tensor) -> Tensor:
        return es.losses.half_mse(outputs(t), Y)

    H = torch.autograd.functional.hessian(loss, flat)
    J = torch.autograd.functional.jacobian(outputs, flat).flatten(0, 1)
    return torch.func.grad(loss)(flat), H, J.T @ J / len(X)
