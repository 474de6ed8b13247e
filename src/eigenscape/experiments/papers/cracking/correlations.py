"""How strongly one number goes with others over a population, and how well a sample of it can tell."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

NORMS = ("spectral", "frobenius", "nuclear")
RESAMPLES = 500


@dataclass(frozen=True)
class Correlations:
    """Pearson's coefficient of each quantity with the target: over the population, and over resampled ones."""

    values: Float[Tensor, "q"]
    resampled: Float[Tensor, "r q"]

    @property
    def errors(self) -> Float[Tensor, "q"]:
        """Standard errors by the bootstrap."""
        return self.resampled.std(0)


def correlate(
    target: Float[Tensor, "N"], quantities: Float[Tensor, "N q"], generator: torch.Generator, resamples: int = RESAMPLES
) -> Correlations:
    """Correlate each quantity with the target; all of them over the same resampled populations, so that they can be compared.

    >>> x = torch.arange(5.0)
    >>> correlate(x, torch.stack([2 * x, -x, (x - 2).square()], -1), torch.Generator().manual_seed(0)).values
    tensor([ 1., -1.,  0.])
    """
    N = len(target)
    chosen = torch.randint(N, (resamples, N), generator=generator).to(target.device)
    counts = torch.zeros(resamples, N, dtype=target.dtype, device=target.device)
    counts.scatter_add_(1, chosen, torch.ones_like(chosen, dtype=target.dtype))
    target, quantities = target - target.mean(), quantities - quantities.mean(0)
    whole = _pearson(torch.full_like(counts[:1], 1 / N), target, quantities)[0]
    return Correlations(whole, _pearson(counts / N, target, quantities))


def _pearson(weights: Tensor, t: Tensor, Q: Tensor) -> Float[Tensor, "r q"]:
    """Of populations in which member i has a share of `weights[:, i]`."""
    mean_t, mean_Q = weights @ t, weights @ Q
    together = weights @ (t.unsqueeze(-1) * Q) - mean_t.unsqueeze(-1) * mean_Q
    own = (weights @ t.square() - mean_t.square()).unsqueeze(-1) * (weights @ Q.square() - mean_Q.square())
    return together / own.clamp(min=torch.finfo(own.dtype).tiny).sqrt()


def norms(A: Float[Tensor, "N _ _"]) -> Float[Tensor, "N 3"]:
    """Spectral, Frobenius and nuclear norm of every matrix of a stack.

    >>> norms(torch.diag(torch.tensor([3.0, 4.0]))[None])
    tensor([[4., 5., 7.]])
    """
    sigma = torch.linalg.svdvals(A)
    return torch.stack([sigma[:, 0], sigma.square().sum(-1).sqrt(), sigma.sum(-1)], -1)


def alignments(W: Float[Tensor, "N K m"], V: Float[Tensor, "N m K"]) -> Float[Tensor, "N 3"]:
    """Absolute alignments of two factors: largest singular value, trace and sum of the singular values of their product.

    >>> alignments(torch.eye(2)[None], torch.tensor([[[0.0, 2.0], [2.0, 0.0]]]))
    tensor([[2., 0., 4.]])
    """
    product = W @ V
    sigma = torch.linalg.svdvals(product)
    return torch.stack([sigma[:, 0], product.diagonal(dim1=-2, dim2=-1).sum(-1).abs(), sigma.sum(-1)], -1)


def knocked_out(weights: tuple[Float[Tensor, "N _ _"], ...], l: int) -> Float[Tensor, "N _ _"]:
    """Product of all matrices but one, `W_B ... W_{l+2} W_l ... W_1` (l counts from 0).

    >>> a, b, c = (torch.tensor([[[t]]]) for t in (2.0, 3.0, 5.0))
    >>> [knocked_out((a, b, c), l).item() for l in range(3)]
    [15.0, 10.0, 6.0]
    """
    rest = [W for i, W in enumerate(weights) if i != l]
    product = rest[0]
    for W in rest[1:]:
        product = W @ product
    return product
