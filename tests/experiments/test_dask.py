"""A Dask cluster of real processes: whichever of them dies, nothing is lost and nothing doubled."""

import json
import os
import platform
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from small_figure import FIGURE, slowly, troubled

pytest.importorskip("distributed")

from eigenscape.core import DataError
from eigenscape.experiments.machine import Backend, Plan, Store, cluster, measure_missing
from eigenscape.experiments.machine.store import NAME

BESIDE, HERE = Path(__file__).parent, Backend()


class Cluster:
    """A scheduler and its workers, each a process."""

    def __init__(self, folder):
        self.file, self.workers = folder / "scheduler.json", []
        path = os.pathsep.join(filter(None, (str(BESIDE), os.environ.get("PYTHONPATH"))))
        self.environment = os.environ | {"PYTHONPATH": path}
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        wait_for(self.file.exists)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, what, *words):
        command = [sys.executable, "-W", "ignore", "-m", "dask", what, "--scheduler-file", str(self.file), *words]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def with_workers(self, *threads):
        """Start what is missing of so many workers, without nannies: what dies stays dead; wait until all are there."""
        words = ("--no-nanny", "--no-dashboard", "--local-directory", str(self.file.parent))
        alive = [worker for worker in self.workers if worker.poll() is None]
        self.workers = alive + [self._start("worker", *words, "--nthreads", str(n)) for n in threads[len(alive) :]]
        with self.client() as client:
            wait_for(lambda: len(client.scheduler_info()["workers"]) == len(self.workers))
        return Backend(address=self.address)

    def client(self):
        from distributed import Client

        return Client(self.address, set_as_default=False)

    def allow(self, failures):
        """Set how often a cell may lose its worker."""
        with self.client() as client:
            client.run_on_scheduler(set_allowed_failures, failures=failures)

    def kill(self):
        """Kill a worker as a machine that loses its power would."""
        self.workers[0].send_signal(signal.SIGKILL)
        self.workers[0].wait()

    def close(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def set_allowed_failures(dask_scheduler, failures):
    dask_scheduler.allowed_failures = failures


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with closing(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


def wait_for(condition, patience=300.0):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def rows(folder, plan):
    with Store.reading(folder) as store:
        return {key: kept.rows for key, kept in store.kept(plan.tasks.values()).items()}


def measured(plan, folder, backend=HERE, tell=lambda standing: None):
    with Store.writing(folder) as store:
        failed = measure_missing(plan, store, backend, tell)
    return rows(folder, plan), failed


def records(folder):
    """How many records there are, and of how many cells."""
    with sqlite3.connect(folder / NAME) as connection:
        return connection.execute("SELECT count(*), count(DISTINCT key) FROM cells").fetchone()


def refused(sentence, plan, folder, address):
    with pytest.raises(DataError, match=sentence):
        measured(plan, folder / "refused", Backend(address=address))


def test_a_worker_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(tmp_path, workers):
    backend, journal, told = workers.with_workers(1, 1), tmp_path / "journal", []
    plan = Plan([slowly(40, 0.05, journal)], "smoke")

    def tell(standing):
        told.append(standing.done)
        if standing.done == 5:  # while this process waits, both workers go on, and keep what they have for it
            wait_for(lambda: len(journal.read_text().split()) >= 25)
            workers.kill()

    found, failed = measured(plan, tmp_path / "cluster", backend, tell)
    assert workers.workers[0].returncode == -signal.SIGKILL
    assert len(journal.read_text().split()) > 40  # the rows that it held were measured again
    assert not failed
    assert told == list(range(41))
    assert records(tmp_path / "cluster") == (40, 40)
    assert found == measured(plan, tmp_path / "here")[0]


@pytest.mark.slow
def test_workers_with_any_number_of_threads_give_the_same_rows(tmp_path, workers):
    backend = workers.with_workers(1, 1, 4)
    plan = Plan([slowly(20, 0.05, tmp_path / "journal"), FIGURE], "smoke")
    assert measured(plan, tmp_path / "cluster", backend) == measured(plan, tmp_path / "here")


def test_a_cell_that_kills_its_workers_fails_and_ends_nothing_else(tmp_path, workers):
    backend = workers.with_workers(1, 1)
    plan = Plan([troubled(*["fine"] * 5, "dies", "raises", *["fine"] * 5)], "smoke")
    workers.allow(0)  # with none, whatever is queued on a worker that dies fails with it
    try:
        found, failed = measured(plan, tmp_path / "cluster", backend)
    finally:
        workers.allow(3)
    assert 2 <= len(failed) <= 4
    assert any("the process that measured it ended: " in sentence for sentence in failed)
    sentences = (
        "the process that measured it ended: ",
        "ZeroDivisionError: no number",
    )  # the second cell may die with the first
    assert all(any(words in sentence for words in sentences) for sentence in failed)
    assert list(found.values())[5:7] == [None, None]
    mended = Plan([troubled(*["fine"] * 12)], "smoke")
    whole, failed = measured(mended, tmp_path / "cluster", backend)
    assert not failed
    assert whole == measured(mended, tmp_path / "here")[0]


@pytest.mark.slow
def test_a_cluster_that_is_lost_leaves_what_has_ended(tmp_path, monkeypatch):
    plan = Plan([slowly(30, 0.05, tmp_path / "journal")], "smoke")
    with closing(Cluster(tmp_path)) as lost:
        monkeypatch.setattr(cluster, "PATIENCE", 2.0)
        refused("has no worker; expected at least one: dask worker tcp://", plan, tmp_path, lost.address)
        monkeypatch.undo()
        backend = lost.with_workers(1)
        sentence = (
            "the cluster at tcp://.* was lost; cells that have ended are safe: mend that, and type the same command again"
        )
        with pytest.raises(DataError, match=sentence):
            measured(plan, tmp_path / "cluster", backend, lambda s: lost.scheduler.kill() if s.done == 10 else None)
    safe = rows(tmp_path / "cluster", plan)
    assert 10 <= len(safe) < 30
    whole, failed = measured(plan, tmp_path / "cluster")  # the rest here
    assert not failed
    assert whole == measured(plan, tmp_path / "here")[0]
    assert safe.items() <= whole.items()


def test_a_cluster_that_cannot_be_used_says_why(tmp_path, monkeypatch, workers):
    plan, address = Plan([FIGURE], "smoke"), workers.with_workers(1, 1).address
    monkeypatch.setattr(platform, "python_version", lambda: "2.7")
    refused("has python .*; expected 2.7, as in this process: install the same there", plan, tmp_path, address)
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    refused("no Dask scheduler answers at 'tcp://127.0.0.1:1' .*; expected its address", plan, tmp_path, "tcp://127.0.0.1:1")
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    refused("it is not installed; expected the extra: pip install 'eigenscape.dask.'", plan, tmp_path, address)
