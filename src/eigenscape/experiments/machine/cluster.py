"""Cells on a Dask cluster that is there already."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from ...analysis.provenance import versions
from ...core import DataError
from .local import died
from .tasks import Measured, Task, measure

PATIENCE = 60  # seconds for the scheduler to answer, and for a first worker to come


def on_cluster(tasks: Sequence[Task], address: str, patience: float = PATIENCE) -> Measured:
    """Measure on the workers of a Dask scheduler; cells come as they end.

    A worker that dies loses nothing: the scheduler gives its cells to the others. A cell whose workers die again and again
    has failed.
    """
    from distributed import as_completed

    with _connected(address, patience) as client:
        run = uuid4().hex  # so that nothing is taken from an earlier run's memory
        asked = {client.submit(measure, task, key=f"{task.experiment.name}-{task.key}-{run}"): task for task in tasks}
        for future in as_completed(asked):
            task = asked.pop(future)
            if future.status in ("cancelled", "lost"):
                raise DataError(
                    f"the cluster at {address} was lost; cells that have ended are safe: mend that, and type the same command "
                    "again."
                )
            yield task, future.result() if future.status == "finished" else died(task, _first_line(future.exception()))
            future.release()


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
