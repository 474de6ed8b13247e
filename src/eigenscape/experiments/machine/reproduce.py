"""From figures to a folder with everything in it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from .figure import Figure
from .files import Shown, shown_in, write_result, write_verdicts
from .page import write_index
from .plan import Plan
from .results import results
from .run import IN_THIS_PROCESS, Backend, Standing, measure_missing, silent
from .store import Store


def reproduce(
    figures: Sequence[Figure],
    folder: str | Path,
    *,
    profile: str = "quick",
    seed: int = 0,
    device: str = "cpu",
    backend: Backend = IN_THIS_PROCESS,
    tell: Callable[[Standing], None] = silent,
) -> list[Shown]:
    """Measure what the folder's store does not hold yet, then draw and judge the figures, and write its index page."""
    plan, folder = Plan(figures, profile, seed, device), Path(folder)
    with Store.writing(folder) as store:
        measure_missing(plan, store, backend, tell)
        return publish(plan, store, folder)


def publish(
    plan: Plan, store: Store, folder: Path, order: Sequence[str] = (), tell: Callable[[Shown], None] = lambda shown: None
) -> list[Shown]:
    """Draw and judge the figures of a plan from the store, write them, and the index of all that lies in the folder."""
    done = []
    for result in results(plan, store):
        done.append(write_result(result, folder))
        tell(done[-1])
    there = shown_in(folder, order or [figure.id for figure in plan.figures])
    write_index(there, folder)
    write_verdicts(there, folder)
    return done
