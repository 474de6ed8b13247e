"""Finding the frames in which a deep linear network and its data are diagonal, where there are such frames."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import TheoryError
from .chain import Weights
from .moments import Moments, as_float64

DEAD = 1e-10
"""A direction is lost in a layer that shrinks it below this share of the layer's norm."""


def aligned_frames(weights: Weights, X: Float[Tensor, "n d0"], Y: Float[Tensor, "n dL"]) -> list[Float[Tensor, "_ _"]]:
    r"""Return orthogonal `[Q_0, ..., Q_L]` in which an aligned network and its data are diagonal, for one network.

    In an aligned network all symmetric matrices that products of layers and moments make at one level commute, so the
    eigenvectors of a generic combination of them are the frame of the inputs. Layers carry it on, and directions that
    begin later are found in the same way. What comes out is a candidate: `aligned_deep_linear` checks it, and refuses it
    where the network is not aligned.

    >>> Q_0, Q_1, Q_2 = aligned_frames([torch.diag(torch.tensor([1.0, 3.0])), torch.eye(2)], torch.eye(2), torch.eye(2))
    >>> bool(((Q_2.T @ Q_0).abs() > 1 - 1e-12).diagonal().all())
    True
    """
    Ws = list(as_float64(**{f"W_{l}": W for l, W in enumerate(weights, 1)}))
    moments = Moments.of(X, Y)
    generic = _Generic(Ws, moments)
    Q = torch.linalg.eigh(generic.at(0)).eigenvectors
    partners = (moments.Syx @ Q).norm(dim=0)
    rank = generic.lifetime(Q, 0) + 0.5 * (partners > DEAD * partners.max())  # long lives first, then those with a target
    Q = Q[:, rank.argsort(descending=True, stable=True)]
    frames = [Q]
    for l, W in enumerate(Ws, 1):
        frames.append(_next(W, frames, l, generic))
    return frames


class _Generic:
    """Combinations, with fixed coefficients, of the symmetric matrices that layers and moments make at each level."""

    def __init__(self, weights: list[Tensor], moments: Moments):
        self.weights, self.moments = weights, moments

    def product(self, start: int, stop: int) -> Tensor:
        """`W_stop ... W_{start+1}`."""
        width = self.weights[start].shape[-1] if start < len(self.weights) else self.weights[-1].shape[0]
        out = torch.eye(width, dtype=self.moments.Sxx.dtype, device=self.moments.Sxx.device)
        for W in self.weights[start:stop]:
            out = W @ out
        return out

    def at(self, level: int) -> Float[Tensor, "d d"]:
        """Return the combination at one level."""
        L = len(self.weights)
        before, after = self.product(0, level), self.product(level, L)
        terms = [before @ self.moments.Sxx @ before.mT]
        loop = after.mT @ self.moments.Syx @ before.mT
        back = self.moments.Syx.mT @ after if level else self.moments.Syx
        terms += [loop + loop.mT, back.mT @ back]
        for m in range(level + 1, L + 1):
            up = self.product(level, m)
            terms.append(up.mT @ up)
        for m in range(level):
            down = self.product(m, level)
            terms.append(down @ down.mT)
        scaled = [k**0.5 * A / A.norm() for k, A in zip(itertools.cycle(PRIMES), terms) if A.norm() > 0]
        return torch.stack([torch.zeros_like(terms[0]), *scaled]).sum(0)

    def lifetime(self, Q: Float[Tensor, "d k"], level: int) -> Float[Tensor, "k"]:
        """How many layers each column survives."""
        alive = torch.ones(Q.shape[-1], dtype=torch.bool, device=Q.device)
        total = torch.zeros(Q.shape[-1], device=Q.device)
        for W in self.weights[level:]:
            Q = W @ Q
            norms = Q.norm(dim=0)
            alive = alive & (norms > DEAD * W.norm())
            Q = Q / torch.where(alive, norms, 1.0)
            total += alive
        return total


PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


def _next(W: Tensor, frames: list[Tensor], level: int, generic: _Generic) -> Float[Tensor, "d d"]:
    """Carry the frame through a layer, and complete it with the directions that begin behind it."""
    image, d = W @ frames[-1], W.shape[0]
    norms = image.norm(dim=0)
    kept = (norms > DEAD * W.norm()).nonzero()[:, 0]
    if len(kept) and int(kept.max()) >= d:
        raise TheoryError(f"layer {level} keeps more directions than it has outputs; expected aligned layers.")
    columns = {int(i): image[:, i] / norms[i] for i in kept}
    free = [i for i in range(d) if i not in columns]
    if level == len(generic.weights):
        partners = generic.moments.Syx @ frames[0]
        size = partners.norm(dim=0)
        found = [i for i in free if i < len(size) and size[i] > DEAD * size.max()]
        columns |= {i: partners[:, i] / size[i] for i in found}
        free = [i for i in free if i not in columns]
    given = torch.stack([columns[i] for i in sorted(columns)], -1) if columns else W.new_zeros(d, 0)
    rest = torch.linalg.qr(given, mode="complete").Q[:, given.shape[-1] :]
    rest = rest @ torch.linalg.eigh(rest.mT @ generic.at(level) @ rest).eigenvectors
    rest = rest[:, generic.lifetime(rest, level).argsort(descending=True, stable=True)]
    columns |= {i: rest[:, k] for k, i in enumerate(free)}
    return torch.stack([columns[i] for i in range(d)], -1)
