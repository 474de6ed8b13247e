"""White inputs and balanced weights on demand: data with `X^T X / n = s2 I`, layers with `W_l W_l^T = W_{l+1}^T W_{l+1}`."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import TheoryError, random_like, resolve_generator
from .moments import conform


def whiten(X: Float[Tensor, "*batch n D"], s2: float = 1.0) -> Float[Tensor, "*batch n D"]:
    r"""Return `sqrt(n s2) Q` with `X = Q R`, so that the second moment is `s2 I`; the first input keeps its direction.

    Rows are samples. [data] App. C takes Q "from the QR decomposition" of the inputs with samples in columns, which would
    be a square matrix of features: the samples have to be the rows.

    >>> white = whiten(torch.tensor([[3.0, 1.0], [4.0, 0.0], [0.0, 2.0]]), s2=2.0)
    >>> torch.allclose(white.T @ white / 3, 2 * torch.eye(2).double())
    True
    """
    (X,) = conform({"X": "n D"}, X=X)
    n, D = X.shape[-2:]
    if not s2 > 0:
        raise TheoryError(f"s2 is {s2}; expected a positive second moment.")
    if n < D:
        raise TheoryError(f"X has {n} samples of {D} inputs; expected at least as many samples as inputs to whiten.")
    Q, R = torch.linalg.qr(X)
    signs = R.detach().diagonal(dim1=-2, dim2=-1)
    steps = signs.abs()
    if bool((steps <= D * torch.finfo(X.dtype).eps * steps.amax(-1, keepdim=True)).any()):
        raise TheoryError("some inputs are linear combinations of others; expected X of full column rank to whiten.")
    return (n * s2) ** 0.5 * (Q * signs.sign().unsqueeze(-2))


def white_scale(X: Float[Tensor, "*batch n D"], tol: float = 1e-9) -> Float[Tensor, "*batch"]:
    """Return s2 where `X^T X / n = s2 I` up to `tol` of s2; refuse inputs that are not white.

    >>> white_scale(torch.tensor([[2.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    (X,) = conform({"X": "n D"}, X=X)
    Sxx = X.mT @ X / X.shape[-2]
    s2 = Sxx.diagonal(dim1=-2, dim2=-1).mean(-1)
    eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
    gap = (Sxx - s2[..., None, None] * eye).abs().amax((-2, -1))
    if bool((gap > tol * s2).any()):
        raise TheoryError(
            f"X is not white: X^T X / n is off s2 I by {(gap / s2).max().item():.2g} of s2; expected white inputs: whiten(X), "
            "or balanced_minimum(X, Y, depth), which takes any."
        )
    return s2


def orthonormal(
    n: int, k: int, generator: torch.Generator | None, batch: torch.Size, device: torch.device
) -> Float[Tensor, "*batch n k"]:
    """k orthonormal columns: uniformly random from a generator, the first unit vectors without one."""
    if generator is None:
        return torch.eye(n, k, dtype=torch.float64, device=device).expand(*batch, n, k)
    return torch.linalg.qr(random_like((*batch, n, k), generator, dtype=torch.float64, device=device)).Q


def chain_factors(frames: Sequence[Float[Tensor, "*batch _ q"]], t: Float[Tensor, "*batch q"]) -> list[Tensor]:
    """`W_l = Q_l diag(t) Q_{l-1}^T`: the left singular vectors of a layer are the right ones of the next."""
    return [(Q * t.unsqueeze(-2)) @ P.mT for P, Q in pairwise(frames)]


def sample_balanced_weights(
    singular_values: Float[Tensor, "*batch k"], widths: Sequence[int], *, generator: torch.Generator | None = None
) -> list[Float[Tensor, "*batch _ _"]]:
    """Draw strongly balanced layers `[W_1, ..., W_L]` that share the given singular values, for `widths = [d_0, ..., d_L]`.

    Hidden frames are uniformly random. [data] App. C, where step 1 must draw *left* singular vectors: the right ones are
    those of the layer before.

    >>> W_1, W_2 = sample_balanced_weights(torch.tensor([2.0, 1.0]), [3, 2, 4])
    >>> torch.allclose(W_1 @ W_1.T, W_2.T @ W_2), torch.linalg.svdvals(W_2 @ W_1)[:2].round(decimals=9).tolist()
    (True, [4.0, 1.0])
    """
    (t,) = conform({"singular_values": "k"}, singular_values=singular_values)
    widths = list(widths)
    if len(widths) < 2 or min(widths) < t.shape[-1]:
        raise TheoryError(
            f"widths are {widths} for {t.shape[-1]} singular values; expected [d_0, ..., d_L], none of them smaller."
        )
    source = resolve_generator(generator)
    return chain_factors([orthonormal(d, t.shape[-1], source, t.shape[:-1], t.device) for d in widths], t)
