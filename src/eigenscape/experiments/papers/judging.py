"""Verdicts in one line each, and the spectra that figures compare."""

from torch import Tensor

from ...core import Spectrum
from ..machine import Agreement, Verdict

EXACT = 1e-10  # relative difference up to which a closed form and brute force are the same number


def verdict(
    claim: str,
    source: str,
    *,
    paper: str,
    ours: str,
    holds: bool | None,
    partly: bool = False,
    why: str = "",
) -> Verdict:
    """Agreement from what was found: it holds, it holds `partly`, it does not, or (None) the text does not let us tell.

    >>> verdict("1 + 1", "ours", paper="2", ours="2", holds=True).agreement.value
    'agrees'
    """
    if holds is None:
        said = Agreement.OPEN
    elif holds:
        said = Agreement.AGREES
    else:
        said = Agreement.PARTLY if partly else Agreement.DISAGREES
    return Verdict(claim, source, paper, ours, said, why)


def listed(spectrum: Spectrum) -> tuple[Tensor, list[str]]:
    """All eigenvalues in ascending order, each with its label.

    >>> listed(Spectrum(torch.tensor([3.0, -1.0]), torch.tensor([1, 2]), ("outlier", "bulk")))
    (tensor([-1., -1.,  3.]), ['bulk', 'bulk', 'outlier'])
    """
    counts = spectrum.multiplicities
    values, order = spectrum.values.repeat_interleave(counts).sort()
    names = [label for label, count in zip(spectrum.labels, counts.tolist()) for _ in range(count)]
    return values, [names[i] for i in order.tolist()]
