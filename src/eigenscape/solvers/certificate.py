"""What a random start proves: how far beyond the last Ritz value an eigenvalue can hide."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

# A unit vector z, uniform on the sphere of R^n, has <z, u>^2 <= w with probability at most sqrt(2 n w / pi), for any fixed
# unit vector u: for n >= 3 the density of |<z, u>| is at most 2 Gamma(n/2) / (sqrt(pi) Gamma((n-1)/2)) <= sqrt(2 n / pi),
# for n = 2 the law is 2 asin(s) / pi <= s. Lanczos from z sees an eigenvalue m of eigenvector u as an atom of weight
# <z, u>^2 in the spectral measure of z, and no measure with the recurrence coefficients found can carry an atom at m that
# is heavier than the Christoffel function 1 / sum_i p_i(m)^2, where the p_i are the orthonormal polynomials of that recurrence.
# So outside an event of probability a, an extreme eigenvalue m obeys sum_i p_i(m)^2 <= 2 n / (pi a^2), at every step at once.
# These are the Lanczos-polynomial bounds of van Dorsselaer, Hochstenbach and van der Vorst (SIAM J. Matrix Anal. Appl. 22,
# 2001); the a-priori bound of Kuczynski and Wozniakowski (same journal 13, 1992, Theorem 4.2), 1.648 sqrt(n)
# exp(-sqrt(e) (2 j - 1)), covers the worst spectrum for j fixed in advance, these the spectrum at hand and any stopping rule.


def ceiling(n: int, failure: float) -> float:
    """`2 n / (pi a^2)`: what the sum of squared polynomials exceeds at no extreme eigenvalue, but for a failure rate a."""
    return max(1.0, 2 * n / (math.pi * failure**2))


def growth(m: Float[Tensor, "b"], alphas: Float[Tensor, "b j"], betas: Float[Tensor, "b j"]) -> Float[Tensor, "b"]:
    r"""`sum_{i<=j} p_i(m)^2` of the orthonormal polynomials `b_i p_i = (m - a_i) p_{i-1} - b_{i-1} p_{i-2}`.

    >>> growth(torch.tensor([3.0]), torch.tensor([[1.0]]), torch.tensor([[2.0]]))  # p_0 = 1, p_1 = (3 - 1) / 2
    tensor([2.])
    """
    older, p, total = torch.zeros_like(m), torch.ones_like(m), torch.ones_like(m)
    previous = torch.zeros_like(m)
    for a, b in zip(alphas.unbind(-1), betas.unbind(-1)):
        # A vanishing b means that the space is exhausted: the polynomial is infinite off its zeros. 1e18 stands for that.
        step = ((m - a) * p - previous * older) / b.clamp(min=torch.finfo(m.dtype).tiny)
        older, p, previous = p, step.clamp(-1e18, 1e18), b
        total = total + p.square()
    return total


def reach(alphas: Float[Tensor, "b j"], betas: Float[Tensor, "b j"], limit: float) -> Float[Tensor, "b"]:
    """Largest m at which the growth stays within the limit, at least the largest Ritz value; by bisection, rounded up."""
    j = alphas.shape[-1]
    scale = (alphas.abs().amax(-1) + betas.amax(-1)).clamp(min=torch.finfo(alphas.dtype).tiny).unsqueeze(-1)
    alphas, betas = alphas / scale, betas / scale
    T = torch.diag_embed(alphas) + torch.diag_embed(betas[:, : j - 1], 1) + torch.diag_embed(betas[:, : j - 1], -1)
    low = torch.linalg.eigvalsh(T)[:, -1]
    high = torch.maximum(low, alphas[:, 0] + betas[:, 0] * limit**0.5)  # there p_1^2 alone reaches the limit
    for _ in range(100):
        mid = (low + high) / 2
        within = growth(mid, alphas, betas) <= limit
        below, above = torch.where(within, mid, low), torch.where(within, high, mid)
        if torch.equal(below, low) and torch.equal(above, high):  # no number lies between
            break
        low, high = below, above
    return high * scale[:, 0]


def coefficients(
    T: Float[Tensor, "b m m"], width: int, R: Float[Tensor, "b p q"]
) -> tuple[Float[Tensor, "b j"], Float[Tensor, "b j"]]:
    """Lanczos coefficients of the first start vector of a block Krylov space with projected matrix T and tail R."""
    m = T.shape[-1]
    steps = -(-m // width)
    v = torch.zeros(T.shape[0], m, dtype=T.dtype)
    v[:, 0] = 1
    V, alphas, betas = v[:, :, None], [], []
    for i in range(steps):
        w = (T @ v[:, :, None])[:, :, 0]
        a = (v * w).sum(-1)
        alphas.append(torch.where(v.abs().amax(-1) > 0, a, alphas[0] if alphas else a))  # after a breakdown: inside the range
        for _ in range(2):
            w = w - (V @ (V.mT @ w[:, :, None]))[:, :, 0]
        b = torch.linalg.vector_norm(w, dim=-1)
        if i == steps - 1:  # the part that has left the basis: |R v_last|
            b = torch.hypot(b, torch.linalg.vector_norm((R @ v[:, m - R.shape[-1] :, None])[:, :, 0], dim=-1))
        betas.append(b)
        v = w / torch.where(b > 0, b, 1.0).unsqueeze(-1)
        V = torch.cat([V, v[:, :, None]], -1)
    return torch.stack(alphas, -1), torch.stack(betas, -1)
