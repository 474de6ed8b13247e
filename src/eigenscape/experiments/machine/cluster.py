"""Cells on a Dask cluster that is there already."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from ...analysis.provenance import versions
from ...core import DataError
from .local import died
from .tasks import Measured, Outcome, Task, keep_to, measure

PATIENCE = 60  # seconds for the scheduler to answer, and for a first worker to come


def on_cluster(tasks: Sequence[Task], address: str) -> Measured:
    """Measure on the workers of a Dask scheduler; cells come as they end.

    A worker that dies loses nothing: the scheduler gives its cells to the others, also those whose rows it still held. A cell
    whose workers die again and again has failed.
    """
    from distributed import as_completed

    with _connected(address, PATIENCE) as client:
        run = uuid4().hex  # so that nothing is taken from an earlier run's memory
        asked = {client.submit(_on_worker, task, key=f"{task.experiment.name}-{task.key}-{run}"): task for task in tasks}
        for future in as_completed(asked, loop=client.loop):
            task = asked.pop(future)
            yield task, _outcome(future, task, address)
            future.release()


def _on_worker(task: Task) -> Outcome:
    """Measure in a worker, where several threads may do so at a time: none gives back what the others compute with."""
    keep_to(task.threads)
    return measure(task)


def _outcome(future: Any, task: Task, address: str) -> Outcome:
    """What a worker found; where it died before the rows were fetched, this waits for the next one."""
    try:
        return future.result()
    except Exception as error:
        if future.status == "error":
            return died(task, _first_line(error))
        raise DataError(
            f"the cluster at {address} was lost; cells that have ended are safe: mend that, and type the same command again."
        ) from None


def _connected(address: str, patience: float) -> Any:
    """Connect to a scheduler whose workers run the same code."""
    if find_spec("distributed") is None:
        raise DataError("--backend is dask and it is not installed; expected the extra: pip install 'eigenscape[dask]'.")
    from distributed import Client

    try:
        client = Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise DataError(
            f"no Dask scheduler answers at {address!r} ({_first_line(error)}); expected its address, as tcp://host:8786, which "
            "`dask scheduler` prints."
        ) from None
    try:
        client.wait_for_workers(1, timeout=patience)
        _same_code(client, address)
    except TimeoutError:
        client.close()
        raise DataError(f"the cluster at {address} has no worker; expected at least one: dask worker {address}") from None
    except BaseException:
        client.close()
        raise
    return client


def _same_code(client: Any, address: str) -> None:
    ours = versions()
    for worker, theirs in client.run(versions).items():
        for name, version in ours.items():
            if theirs.get(name) != version:
                came = f"the worker {worker} of {address} has {name} {theirs.get(name)}"
                raise DataError(f"{came}; expected {version}, as in this process: install the same there.")


def _first_line(error: Any) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
