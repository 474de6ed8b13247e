"""The single measurements of an analysis, each a stage with a random stream of its own."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .. import linop, solvers
from ..core import CurvatureError, Density, EigenPairs, Enclosure, Estimate, NotRecognised, Spectrum
from ..curvature import Objective, ggn
from ..linop import Operator
from .provenance import Stopwatch
from .recognise import Recognised
from .recognise import spectrum as recognise
from .watched import Stages

STREAMS = ("largest", "lowest", "ggn", "trace", "density", "ggn density", "blocks")


@dataclass(frozen=True)
class Survey:
    """What to measure and how well; every method is one measurement."""

    stages: Stages
    seed: int
    k: int
    lowest: int
    tol: float
    steps: int
    probes: int

    def stream(self, name: str) -> torch.Generator:
        """Return the random stream of one measurement: leaving out another one changes nothing here."""
        seeds = torch.randint(0, 2**62, (len(STREAMS),), generator=torch.Generator().manual_seed(self.seed))
        return torch.Generator().manual_seed(int(seeds[STREAMS.index(name)]))

    def gradient(self, obj: Objective) -> tuple[float, Float[Tensor, "n"]]:
        """Loss and gradient."""
        name = "loss and gradient"
        self.stages.progress(name, 0, None)
        watch = Stopwatch(obj.device)
        loss, g = float(obj.loss()), obj.gradient()
        self.stages.note(name, watch.seconds, 0, "one pass over the data for each")
        return loss, g

    def closed_form(self, obj: Objective) -> Recognised | None:
        """Exact spectrum from a formula; None, and a stage that says why, where the network has none."""
        name = "closed form"
        self.stages.progress(name, 0, None)
        watch = Stopwatch(obj.device)
        try:
            found, status = recognise(obj), ""
        except NotRecognised as reason:
            found, status = None, f"none: {reason}"
        self.stages.note(name, watch.seconds, 0, found.status if found else status)
        return found

    def largest(self, H: Operator) -> EigenPairs:
        """Top of the Hessian."""
        k = min(self.k, H.n)
        return self._pairs("largest eigenvalues of the Hessian", H, k, "largest", "largest")

    def smallest(self, H: Operator) -> EigenPairs:
        """Bottom of the Hessian."""
        k = min(self.lowest, H.n)
        return self._pairs("smallest eigenvalues of the Hessian", H, k, "smallest", "lowest")

    def gauss_newton(self, obj: Objective) -> EigenPairs | None:
        """Top of the Gauss-Newton matrix; None, and a stage that says why, where the criterion defines none."""
        name, k = "largest eigenvalues of Gauss-Newton", min(self.k, obj.layout.size)
        watch = Stopwatch(obj.device)
        try:
            return self._pairs(name, ggn(obj), k, "largest", "ggn")
        except CurvatureError as reason:
            self.stages.note(name, watch.seconds, 0, f"not defined here: {reason}")
            return None

    def _pairs(self, name: str, op: Operator, k: int, which: str, stream: str) -> EigenPairs:
        generator = self.stream(stream)
        pairs = self.stages.measure(name, op, lambda A: solvers.eigsh(A, k, which, self.tol, generator=generator))
        return on_cpu(pairs)

    def complete(self, H: Operator) -> Spectrum:
        """Every eigenvalue of the Hessian."""
        return on_cpu(self.stages.measure("all eigenvalues of the Hessian", H, solvers.dense, H.n))

    def trace(self, H: Operator, spectrum: Spectrum | None) -> Estimate:
        """Trace of the Hessian: the sum of all eigenvalues where they are known, else an estimate."""
        if spectrum is not None:
            zero = torch.zeros((), dtype=torch.float64)
            return Estimate(spectrum.trace, zero, float("inf"), 0, "exact: the sum of all eigenvalues")
        generator = self.stream("trace")
        return on_cpu(self.stages.measure("trace of the Hessian", H, lambda A: solvers.trace(A, generator=generator)))

    def density(self, op: Operator, spectrum: Spectrum | None = None, of: str = "the Hessian") -> Density:
        """Density: exact where all eigenvalues are known, else by quadrature."""
        if spectrum is not None:
            return Density.exact(spectrum.values, spectrum.multiplicities)
        generator = self.stream("density" if of == "the Hessian" else "ggn density")
        steps = min(self.steps, op.n)

        def measure(A: Operator) -> Density:
            return solvers.density(A, steps=steps, probes=self.probes, generator=generator)

        return self.stages.measure(f"density of {of}", op, measure, steps * self.probes)

    def blocks(self, H: Operator) -> dict[str, Density]:
        """Densities of the diagonal blocks of all parameters, in shared passes over the data."""
        generator, sizes = self.stream("blocks"), [min(self.steps, size) for size in H.layout.sizes] if H.layout else []

        def measure(A: Operator) -> dict[str, Density]:
            return solvers.density(linop.blocks(A), steps=self.steps, probes=self.probes, generator=generator)

        return self.stages.measure("densities of the diagonal blocks", H, measure, sum(sizes) * self.probes)


def gradient_share(vectors: Float[Tensor, "n k"], g: Float[Tensor, "n"]) -> float:
    """Return `|Q^T g|^2 / |g|^2`, the share of the gradient in the span of orthonormal columns; nan for a zero gradient.

    >>> round(gradient_share(torch.eye(2)[:, :1], torch.tensor([3.0, 4.0])), 6)
    0.36
    """
    unit = (g / torch.linalg.vector_norm(g)).to(vectors)
    return float(torch.linalg.vector_norm(vectors.mT @ unit, dtype=torch.float64).square().clamp(max=1))


def on_cpu(result: Any) -> Any:
    """Move a result to the CPU: numbers as float64, vectors as they are, eigenspaces left behind."""
    if isinstance(result, Spectrum):
        return Spectrum(result.values.detach().double().cpu(), result.multiplicities.cpu(), result.labels)

    def move(name: str, x: Any) -> Any:
        if isinstance(x, Enclosure):
            return on_cpu(x)
        return x.detach().to("cpu", x.dtype if name == "vectors" else torch.float64) if isinstance(x, Tensor) else x

    return replace(result, **{name: move(name, x) for name, x in vars(result).items()})
