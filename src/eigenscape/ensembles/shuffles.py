"""Minibatches from streams of their own, so that a member meets the same samples in company and alone."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor


class Shuffles:
    """Epochs of N independent streams: each a permutation of n samples, cut into minibatches (the last may be smaller).

    >>> three, one = Shuffles([7, 8, 9], n=5), Shuffles([9], n=5)
    >>> (three.epoch() == one.epoch()).all(1).tolist()
    [False, False, True]
    """

    def __init__(self, seeds: Sequence[int], n: int):
        self.n = n
        self._streams = [torch.Generator().manual_seed(seed) for seed in seeds]

    def epoch(self) -> Int[Tensor, "N n"]:
        """Draw the next permutation of every stream."""
        return torch.stack([torch.randperm(self.n, generator=stream) for stream in self._streams])

    def keep(self, kept: Sequence[bool]) -> None:
        """Go on with some of the streams; the others are not drawn from any more."""
        self._streams = [stream for stream, wanted in zip(self._streams, kept) if wanted]


def cuts(start: int, stop: int, n: int, size: int) -> Iterator[slice]:
    """Where the minibatches numbered start to stop - 1 of an epoch lie.

    >>> list(cuts(1, 3, n=5, size=2))
    [slice(2, 4, None), slice(4, 5, None)]
    """
    for i in range(start, stop):
        yield slice(i * size, min((i + 1) * size, n))
