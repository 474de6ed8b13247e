"""Batches whose members have to be computed one by one: taking a member out, and putting spectra together again."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core import Spectrum
from ..core.spectrum import LABELS


def member(A: Tensor, core: int, batch: torch.Size, i: int) -> Tensor:
    """The i-th member, in row-major order, of a tensor whose axes before the last `core` broadcast to `batch`.

    >>> member(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, torch.Size([5, 2]), 3)
    tensor([3., 4.])
    """
    shape = A.shape[A.ndim - core :]
    index = torch.unravel_index(torch.tensor(i), batch)
    return A.expand(*batch, *shape)[tuple(int(j) for j in index)]


def collate(members: Sequence[Spectrum], batch: torch.Size) -> Spectrum:
    """Stack spectra of the same size; values that a member lacks occur 0 times in it. Eigenvectors are dropped.

    >>> a = Spectrum(torch.tensor([3.0, 0.0]), torch.tensor([1, 2]), ("outlier", "zero"))
    >>> b = Spectrum(torch.tensor([2.0, 1.0, 5.0]), torch.tensor([1, 1, 1]), ("outlier", "outlier", "bulk"))
    >>> collate([a, b], torch.Size([2])).expand()
    tensor([[0., 0., 3.],
            [1., 2., 5.]])
    """
    values, counts, labels = [], [], []
    for label in LABELS:
        picks = [[j for j, found in enumerate(s.labels) if found == label] for s in members]
        width = max(len(pick) for pick in picks)
        labels += [label] * width
        values.append(torch.stack([_padded(s.values[pick], width) for s, pick in zip(members, picks)]))
        counts.append(torch.stack([_padded(s.multiplicities[pick], width) for s, pick in zip(members, picks)]))
    full, times = torch.cat(values, -1), torch.cat(counts, -1)
    return Spectrum(full.unflatten(0, tuple(batch)), times.unflatten(0, tuple(batch)), tuple(labels))


def _padded(row: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(row, (0, width - len(row)))
