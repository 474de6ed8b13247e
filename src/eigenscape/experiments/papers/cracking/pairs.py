"""The two eigenvalues of a spectrum whose sum comes closest to a number."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ....core import Spectrum

COPIES = 3  # of a repeated eigenvalue: enough to see that a pair is not the only one of its sum


@dataclass(frozen=True)
class Pair:
    """The pair whose sum is closest to a target, and how far the sums of the best and of the next best pair are from it."""

    low: float
    high: float
    gap: float
    next_gap: float


def members(spectrum: Spectrum) -> list[Float[Tensor, "q"]]:
    """Eigenvalues of each member of a batch, ascending, each as often as it occurs but at most three times.

    >>> members(Spectrum(torch.tensor([[1.0, 0.0]]), torch.tensor([1, 9]), ("outlier", "zero")))[0].tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    counts = spectrum.multiplicities.clamp(max=COPIES)
    return [v.repeat_interleave(c).sort().values for v, c in zip(spectrum.values, counts)]


def closest_pair(values: Float[Tensor, "q"], target: float) -> Pair:
    """Look at every pair.

    >>> closest_pair(torch.tensor([-1.0, 0.0, 3.0, 5.0]), 4.0)
    Pair(low=-1.0, high=5.0, gap=0.0, next_gap=1.0)
    """
    i, j = torch.triu_indices(len(values), len(values), offset=1, device=values.device)
    gaps = (values[i] + values[j] - target).abs()
    two = gaps.topk(min(2, len(gaps)), largest=False)
    best = int(two.indices[0])
    return Pair(float(values[i[best]]), float(values[j[best]]), float(two.values[0]), float(two.values[-1]))


def gaps_to(values: Float[Tensor, "q"], targets: Float[Tensor, "t"]) -> Float[Tensor, "t"]:
    """How close the best pair comes to each of many numbers.

    >>> gaps_to(torch.tensor([-1.0, 0.0, 3.0, 5.0]), torch.tensor([4.0, 9.0, 1.0]))
    tensor([0., 1., 1.])
    """
    q = len(values)
    missing = targets.unsqueeze(-1) - values  # what each value needs as a partner
    at = torch.searchsorted(values, missing.contiguous())
    own = torch.arange(q, device=values.device)
    gaps = torch.full_like(missing, torch.inf)
    for shift in (-2, -1, 0, 1):
        partner = at + shift
        valid = (partner >= 0) & (partner < q) & (partner != own)
        found = (values[partner.clamp(0, q - 1)] - missing).abs()
        gaps = torch.where(valid, torch.minimum(gaps, found), gaps)
    return gaps.amin(-1)
