"""From the store to pictures and verdicts: nothing is measured here."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Drawing

from ...report.style import styled
from .encoding import values_of
from .figure import Figure
from .plan import Plan, rows_of
from .provenance import Run
from .record import Method, Record
from .store import Kept, Store
from .tasks import Task, sentence
from .verdict import Verdict


@dataclass(frozen=True)
class Result:
    """A figure as far as the store has it: its record, and its drawing if there could be one."""

    record: Record
    drawing: Drawing | None


def results(plan: Plan, store: Store) -> Iterator[Result]:
    """Draw and judge every figure of a plan from the store alone."""
    runs = store.runs()
    for figure in plan.figures:
        tasks = plan.of(figure)
        yield result(figure, plan, tasks, store.kept(tasks), runs)


def result(figure: Figure, plan: Plan, tasks: Sequence[Task], kept: Mapping[str, Kept], runs: Mapping[int, Run]) -> Result:
    """Draw and judge one figure; an error on the way becomes its record's problem."""
    parts = {e.name: [task for task in tasks if task.experiment.name == e.name] for e in figure.experiments}
    rows = {name: rows_of(part, kept) for name, part in parts.items()}
    problem, drawing, verdicts = _gaps(plan, figure, tasks, kept), None, []
    if all(task.key in kept for task in tasks) and any(len(table) for table in rows.values()):
        drawing, verdicts, error = _shown(figure, figure.table(rows))
        problem = " ".join(filter(None, (problem, error)))
    there = [kept[task.key] for task in tasks if task.key in kept]
    since = [runs[number] for number in dict.fromkeys(k.run for k in there)]
    record = Record(
        figure.id,
        figure.title,
        figure.source,
        figure.reading,
        plan.profile,
        plan.seed,
        len(tasks),
        sum(k.rows is not None for k in there),
        sum(k.seconds for k in there),
        problem,
        tuple(verdicts),
        tuple(_method(part, kept, len(rows[name])) for name, part in parts.items() if part),
        tuple(dict.fromkeys(_place(k.machine) for k in there)),
        tuple(dict.fromkeys(run.commit for run in since if run.commit)),
        since[-1].versions if since else None,
    )
    return Result(record, drawing)


def _gaps(plan: Plan, figure: Figure, tasks: Sequence[Task], kept: Mapping[str, Kept]) -> str:
    """Say which cells are missing or have failed."""
    missing = sum(task.key not in kept for task in tasks)
    failed = [(task, error) for task in tasks if task.key in kept and (error := kept[task.key].error) is not None]
    if missing:
        how = f"eigenscape reproduce {figure.id} --profile {plan.profile}"
        return f"{len(tasks) - missing} of {len(tasks)} cells are measured; to measure the others: {how}"
    if failed:
        task, error = failed[0]
        return (
            f"{len(failed)} of {len(tasks)} cells failed and are left out, the first with {error.rstrip('.')} at {task.cell}."
        )
    return ""


def _shown(figure: Figure, table: Any) -> tuple[Drawing | None, list[Verdict], str]:
    drawing, verdicts, problems = None, [], []
    try:
        drawing = styled(figure.draw)(table)
    except Exception as error:
        problems.append(f"Drawing ended with {sentence(error)}.")
    try:
        verdicts = list(figure.claims(table))
    except Exception as error:
        problems.append(f"Judging ended with {sentence(error)}.")
    return drawing, verdicts, " ".join(problems)


def _method(tasks: Sequence[Task], kept: Mapping[str, Kept], rows: int) -> Method:
    experiment, kind = tasks[0].experiment, type(tasks[0].cell)
    about = "" if (kind.__doc__ or "").startswith(f"{kind.__name__}(") else inspect.getdoc(kind) or ""
    cost = sum(kept[task.key].seconds for task in tasks if task.key in kept)
    doing = inspect.getdoc(experiment.measure) or ""
    configs = values_of([task.cell for task in tasks])
    return Method(experiment.name, experiment.version, configs, about, doing, len(tasks), rows, cost)


def _place(machine: Mapping[str, str | int]) -> str:
    threads = machine["threads"]
    where = "" if machine["device"] == "cpu" else f", {machine['device']}"
    return f"{machine['cpu']}, {machine['cores']} cores{where}, {threads} thread{'s' if threads != 1 else ''} per cell"
