"""Measure everything worth knowing about the curvature of one objective."""

from collections.abc import Mapping

import torch

from ..core import resolve_generator
from ..curvature import Objective, ggn, hessian
from .derived import condition_number
from .provenance import Provenance, command, device_name, now, versions
from .record import Analysis
from .survey import Survey, gradient_share, on_cpu
from .watched import Progress, Stages

SMALL = 2000  # up to this many parameters every eigenvalue is computed: no dearer than sampling, and exact


def analyze(
    obj: Objective,
    *,
    k: int = 10,
    lowest: int = 3,
    tol: float = 1e-3,
    density: bool = True,
    density_steps: int = 100,
    density_probes: int = 8,
    ggn_density: bool = False,
    blocks: bool = False,
    small: int = SMALL,
    learning_rate: float | None = None,
    name: str | None = None,
    notes: Mapping[str, str] | None = None,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Measure loss, gradient, both ends of the Hessian's spectrum, the Gauss-Newton matrix beside it, trace and density.

    Where the network has a closed form (see `spectrum`), the exact spectrum stands beside what is measured.

    - k, lowest: how many of the largest (of H and of G) and of the smallest eigenvalues (of H); at most n.
    - tol: relative residual that eigenpairs are converged to.
    - density, ggn_density, blocks: whether to measure the density of H, of G, and of the diagonal block of H of each
      parameter, with `density_probes` random vectors and `density_steps` products for each.
    - small: up to this many parameters all eigenvalues are computed; trace, density and condition number are then exact.
    - learning_rate: the rate in use, to compare 2 / sharpness with in pictures.
    - name, notes: what the report calls this run, and what else it says.
    - generator: source of all random choices.
    - progress: called as `progress(stage, products_done, products_expected)`.

    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> obj = Objective(model, torch.nn.MSELoss(), (torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 1)))
    >>> a = analyze(obj)               # H = (2/n) X^T X = diag(4, 1)
    >>> a.hessian.values, round(a.condition.value, 4), round(a.critical_learning_rate.value, 4)
    (tensor([4., 1.], dtype=torch.float64), 4.0, 0.5)
    """
    started, source = now(), resolve_generator(generator)
    seed = int(torch.randint(0, 2**62, (), generator=source, device=source.device))
    H = hessian(obj)
    stages = Stages(H.device, progress)
    survey = Survey(stages, seed, k, lowest, tol, density_steps, density_probes)
    loss, g = survey.gradient(obj)
    form = survey.closed_form(obj)
    exact = None if form is None else on_cpu(form)
    largest, smallest = survey.largest(H), survey.smallest(H)
    gauss_newton = survey.gauss_newton(obj)
    spectrum = survey.complete(H) if H.n <= small else None
    trace = survey.trace(H, spectrum)
    whole = survey.density(H, spectrum) if density else None
    beside = survey.density(ggn(obj), of="Gauss-Newton") if ggn_density and gauss_newton is not None else None
    each = survey.blocks(H) if blocks else {}
    return Analysis(
        name=name or type(obj.model).__name__,
        loss=loss,
        gradient_norm=float(torch.linalg.vector_norm(g, dtype=torch.float64)),
        gradient_share=gradient_share(largest.vectors, g.cpu()),
        num_samples=float(obj.num_samples),
        layout=obj.layout,
        hessian=largest,
        lowest=smallest,
        ggn=gauss_newton,
        trace=trace,
        condition=condition_number(spectrum or exact, largest, smallest),
        density=whole,
        ggn_density=beside,
        blocks=each,
        spectrum=spectrum,
        closed_form=exact,
        theorem=None if form is None else form.theorem,
        learning_rate=learning_rate,
        provenance=Provenance(
            command=command(),
            versions=versions(),
            device=device_name(H.device),
            dtype=str(H.dtype).removeprefix("torch."),
            engine=H.engine,
            threads=torch.get_num_threads(),
            seed=source.initial_seed(),
            started=started,
            stages=tuple(stages.done),
        ),
        notes=dict(notes or {}),
    )
