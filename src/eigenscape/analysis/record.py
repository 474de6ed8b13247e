"""Everything known about the curvature of one objective, in one object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..core import Density, EigenPairs, Estimate, Layout, Spectrum
from ..report import Section, write
from .derived import Condition, Interval, critical_rate, distance, enclosed
from .facts import as_html, as_text
from .page import figures, page, sheet
from .provenance import Provenance
from .store import read_record, summary, write_record


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """What `es.analyze` measured, on the CPU: numbers with their certificates, and how they came about.

    - name: what was analysed, in a few words.
    - loss: the mean loss over all samples.
    - gradient_norm: Euclidean norm of the gradient.
    - gradient_share: share of the gradient's squared norm in the span of the top eigenvectors of the Hessian (nan for a
      zero gradient).
    - num_samples: what the mean divides by (samples, tokens, or the sum of the weights).
    - layout: names and shapes of the parameters, in the order of every vector here.
    - hessian: the largest eigenvalues of the Hessian, descending, with vectors, residuals and intervals.
    - lowest: the smallest eigenvalues of the Hessian, ascending.
    - ggn: the largest eigenvalues of the Gauss-Newton matrix; None where the criterion defines none (the stage says why).
    - trace: of the Hessian.
    - condition: ratio of the largest to the smallest magnitude, or the part of it that was measured.
    - density: of the Hessian; None where it was not asked for.
    - ggn_density: of the Gauss-Newton matrix; None where it was not asked for.
    - blocks: density of the Hessian's diagonal block of each parameter; empty where it was not asked for.
    - spectrum: every eigenvalue of the Hessian, where n is small enough to compute them all.
    - closed_form: the exact spectrum from a formula, where the network has one; `theorem` names the function of
      `eigenscape.theory` that gave it.
    - learning_rate: the rate that the picture compares with, where one was given.
    - provenance: versions, command, seed, device, and what each stage cost.
    - notes: further facts about the run, as text.
    """

    name: str
    loss: float
    gradient_norm: float
    gradient_share: float
    num_samples: float
    layout: Layout
    hessian: EigenPairs
    lowest: EigenPairs
    ggn: EigenPairs | None
    trace: Estimate
    condition: Condition
    density: Density | None
    ggn_density: Density | None
    blocks: Mapping[str, Density]
    spectrum: Spectrum | None
    closed_form: Spectrum | None
    theorem: str | None
    learning_rate: float | None
    provenance: Provenance
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_parameters(self) -> int:
        """Size of the matrices."""
        return self.layout.size

    @property
    def sharpness(self) -> Interval:
        """Largest eigenvalue of the Hessian."""
        return enclosed(self.hessian)

    @property
    def critical_learning_rate(self) -> Interval:
        """`2 / sharpness`: gradient descent on the quadratic model diverges above it; infinite without positive curvature."""
        return critical_rate(self.sharpness)

    @property
    def gap(self) -> Interval | None:
        """`|largest eigenvalue of H - largest eigenvalue of G|`: what the Gauss-Newton matrix misses at the top."""
        return None if self.ggn is None else distance(self.sharpness, enclosed(self.ggn))

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return as_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the large arrays as plain JSON values; numbers that JSON lacks are text ("inf", "nan")."""
        return summary(self)

    def save(self, folder: str | Path, *, vectors: bool = True) -> Path:
        """Write `analysis.json` and `analysis.npz` into a folder, whole or not at all; `vectors=False` leaves those out."""
        return write_record(self, Path(folder), vectors)

    def plot(self) -> Figure:
        """Picture the largest eigenvalues, the density (twice) and the cumulative share on one sheet."""
        return sheet(self)

    def figures(self) -> dict[str, Figure]:
        """Return every picture by name, one measurement each."""
        return figures(self)

    def report(self, path: str | Path, *, opening: Sequence[Section] = ()) -> Path:
        """Write one self-contained HTML page; `opening` sections come before the measurements."""
        return write(page(self, opening), path)


def load(folder: str | Path) -> Analysis:
    """Read an analysis that `save` wrote; eigenvectors that were left out come back with no columns."""
    return Analysis(**read_record(Path(folder)))
