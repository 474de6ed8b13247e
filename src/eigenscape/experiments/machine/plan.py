"""What a command asks for: figures, and the cells that they share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .experiment import Experiment
from .figure import Figure
from .rows import Rows
from .store import Kept, Store
from .tasks import Task

PROFILES = ("smoke", "quick", "paper")


@dataclass(frozen=True)
class Plan:
    """Figures at one profile, and every cell they need, once, in the order of the figures."""

    figures: Sequence[Figure]
    profile: str = "quick"
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    tasks: dict[str, Task] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = {task.key: task for figure in self.figures for task in self.of(figure)}
        object.__setattr__(self, "tasks", found)

    def of(self, figure: Figure) -> list[Task]:
        """Every cell that a figure needs."""
        return [Task(e, cell, self.seed, self.device, self.threads) for e, cell in figure.cells(self.profile)]

    def missing(self, store: Store) -> list[Task]:
        """Cells that have no rows yet; those that failed are to be tried again."""
        kept = store.kept(self.tasks.values())
        return [task for key, task in self.tasks.items() if key not in kept or kept[key].rows is None]

    def experiments(self) -> Iterator[tuple[Experiment, list[Task]]]:
        """Every experiment with its cells in this plan."""
        names = {task.experiment.name: task.experiment for task in self.tasks.values()}
        for name, experiment in names.items():
            yield experiment, [task for task in self.tasks.values() if task.experiment.name == name]


def rows_of(tasks: Sequence[Task], kept: Mapping[str, Kept]) -> Rows:
    """Rows of the cells that are there, in the cells' order."""
    return Rows([row for task in tasks if task.key in kept for row in kept[task.key].table(task.cell)])
