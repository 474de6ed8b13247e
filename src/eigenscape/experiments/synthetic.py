"""Random data: regression without structure, decorrelated and standardised sets, and teachers with noise."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import DataError, random_like

Samples = tuple[Float[Tensor, "*N n D"], Float[Tensor, "*N n K"]]


def regression(
    n: int, D: int, K: int, generator: torch.Generator, *, variance: float = 1.0, members: int | None = None
) -> Samples:
    """Draw inputs from a normal of that variance, and standard normal targets that have nothing to do with them.

    With `members`, each has a set of its own: `(N, n, D)` and `(N, n, K)`.

    >>> X, Y = regression(1000, 2, 1, torch.Generator().manual_seed(0), variance=4.0)
    >>> X.shape, Y.shape, round(X.std().item())
    (torch.Size([1000, 2]), torch.Size([1000, 1]), 2)
    """
    return variance**0.5 * _normal((n, D), generator, members), _normal((n, K), generator, members)


def standardised(X: Float[Tensor, "*N n D"]) -> Float[Tensor, "*N n D"]:
    """Shift and scale every column to mean 0 and variance 1 over the samples.

    >>> standardised(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [-1.0, 1.0]
    """
    X = X - X.mean(-2, keepdim=True)
    return X / X.square().mean(-2, keepdim=True).sqrt()


def decorrelated(n: int, D: int, K: int, generator: torch.Generator, *, members: int | None = None) -> Samples:
    """Draw inputs and targets whose empirical means are 0, variances 1 and correlations 0, all exactly: needs n > D + K.

    With means of zero, correlation is the uncentred `E[x_d x_e]`: `X^T X / n = I` and `Y^T X = 0`.

    >>> X, Y = decorrelated(8, 2, 1, torch.Generator().manual_seed(0))
    >>> (X.T @ X / 8).round(decimals=9).tolist(), bool((Y.T @ X).abs().max() < 1e-12)
    ([[1.0, 0.0], [0.0, 1.0]], True)
    """
    if n <= D + K:
        raise DataError(f"{n} samples of {D} inputs and {K} targets; expected more than {D + K} to decorrelate them all.")
    Z = _normal((n, D + K), generator, members)
    Q = torch.linalg.qr(Z - Z.mean(-2, keepdim=True)).Q * n**0.5
    return Q[..., :D], Q[..., D:]


def teacher(
    kind: str, n: int, D: int, K: int, generator: torch.Generator, *, noise: float = 0.01, members: int | None = None
) -> Samples:
    """Draw standard normal inputs, and targets `T x + e` (`"linear"`) or `relu(T x) + e` (`"relu"`), e of variance `noise`.

    [cracking] App. D.1.3 does not say how T is drawn: its entries are normal with variance `1 / D` here, so that `T x` has
    variance 1.

    >>> X, Y = teacher("relu", 5, 3, 2, torch.Generator().manual_seed(0), noise=0.0)
    >>> bool((Y >= 0).all())
    True
    """
    if kind not in ("linear", "relu"):
        raise DataError(f'the teacher is {kind!r}; expected "linear" or "relu".')
    T = _normal((K, D), generator, members) / D**0.5
    X, e = _normal((n, D), generator, members), _normal((n, K), generator, members)
    Z = X @ T.mT
    return X, (Z.clamp(min=0) if kind == "relu" else Z) + noise**0.5 * e


def _normal(shape: tuple[int, int], generator: torch.Generator, members: int | None) -> Tensor:
    lead = () if members is None else (members,)
    return random_like((*lead, *shape), generator, dtype=torch.float64, device=generator.device)
