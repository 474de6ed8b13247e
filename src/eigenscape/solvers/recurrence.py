"""The three-term recurrence of Lanczos as a coroutine: it asks for products and never makes them."""

from collections.abc import Generator

import torch
from jaxtyping import Float
from torch import Tensor

from .products import lengths

Coefficients = tuple[Float[Tensor, "*lead j"], Float[Tensor, "*lead j"]]


def lanczos(v: Float[Tensor, "*lead n"], steps: int, reorthogonalize: bool = False) -> Generator[Tensor, Tensor, Coefficients]:
    r"""Advance one recurrence per row: `b_j q_{j+1} = A q_j - a_j q_j - b_{j-1} q_{j-1}`, from unit rows v.

    Yields rows q, is sent `A q`, and returns the coefficients `(a, b)`, each of shape (*lead, j), float64 on the CPU. Three
    vectors are held, whatever the depth (all of them with `reorthogonalize`). A row whose space is exhausted goes on as
    zeros with `b = 0`; the coroutine ends early when all are.

    >>> process = lanczos(torch.tensor([1.0, 0.0]), 2)
    >>> q = next(process)
    >>> q = process.send(torch.tensor([2.0, 3.0]))  # the first column of A
    >>> try: process.send(torch.tensor([3.0, 5.0]))
    ... except StopIteration as end: print(*end.value)
    tensor([2., 5.], dtype=torch.float64) tensor([3., 0.], dtype=torch.float64)
    """
    eps = torch.finfo(v.dtype).eps
    basis = v.unsqueeze(-2) if reorthogonalize else None
    before, b = torch.zeros_like(v), torch.zeros(v.shape[:-1], dtype=torch.float64, device=v.device)
    scale, alphas, betas = b, [], []
    for _ in range(steps):
        w = yield v
        scale = torch.maximum(scale, lengths(w))
        w = torch.addcmul(w, before, b.to(v.dtype).unsqueeze(-1), value=-1)
        a = (v * w).sum(-1, dtype=torch.float64)
        w = torch.addcmul(w, v, a.to(v.dtype).unsqueeze(-1), value=-1)
        if basis is not None:
            for _ in range(2):
                w = w - ((basis @ w.unsqueeze(-1)).mT @ basis).squeeze(-2)
        b = lengths(w)
        b = torch.where(b > 8 * eps * scale, b, 0.0)
        before, v = v, w * torch.where(b > 0, 1 / b, 0.0).to(w.dtype).unsqueeze(-1)
        alphas.append(a.cpu())
        betas.append(b.cpu())
        if not bool((b > 0).any()):
            break
        if basis is not None:
            basis = torch.cat([basis, v.unsqueeze(-2)], -2)
    return torch.stack(alphas, -1), torch.stack(betas, -1)


def gauss(a: Float[Tensor, "*lead j"], b: Float[Tensor, "*lead j"]) -> tuple[Tensor, Tensor]:
    """Gauss rule of a recurrence: the eigenvalues of its tridiagonal matrix, and squared first entries of its eigenvectors.

    Nodes after a breakdown (`b = 0`) weigh nothing.

    >>> gauss(torch.tensor([2.0, 2.0]), torch.tensor([1.0, 0.0]))
    (tensor([1., 3.]), tensor([0.5000, 0.5000]))
    """
    alive = torch.cat([torch.ones_like(b[..., :1]), (b[..., :-1] > 0).to(b.dtype).cumprod(-1)], -1) > 0
    a = torch.where(alive, a, a[..., :1])  # a stand-in inside the range, decoupled from the rest
    off = torch.where(alive[..., 1:], b[..., :-1], 0.0)
    T = torch.diag_embed(a) + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    nodes, vectors = torch.linalg.eigh(T)
    weights = vectors[..., 0, :].square()
    used = (alive.to(T.dtype).unsqueeze(-2) @ vectors.square()).squeeze(-2) > 0.5
    return nodes, torch.where(used, weights, 0.0)
