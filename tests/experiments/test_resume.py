"""`eigenscape reproduce` in a process that is killed again and again: it goes on, and ends with the very same rows."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from small_figure import slowly

from eigenscape.cli import main
from eigenscape.experiments.machine import Plan, Store, measure_missing
from eigenscape.experiments.machine.store import NAME
from eigenscape.experiments.papers import registry

COUNT, SECONDS = 60, 0.02

SERVER = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from small_figure import slowly
from eigenscape.cli import main
from eigenscape.experiments.papers import registry

folder, journal, workers = sys.argv[1:]
registry.figures = lambda: (slowly({COUNT}, {SECONDS}, journal),)
print("ready", flush=True)
for line in sys.stdin:  # a process of its own for each run, without the cost of importing again
    child = os.fork()
    if child == 0:
        os.setsid()
        main(["reproduce", "small/slow", "--out", folder, "--workers", workers])
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Runs:
    """Starts of the command line, one after the other."""

    def __init__(self, folder, journal, workers):
        words = (sys.executable, "-c", SERVER, str(folder), str(journal), str(workers))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.server = subprocess.Popen(words, **pipes | {"stderr": subprocess.DEVNULL})
        self._until("ready")

    def _until(self, *wanted):
        while (line := self.server.stdout.readline().strip()) not in wanted:
            assert line or self.server.poll() is None, "it ended"
            if not wanted and line.lstrip("-").isdecimal():
                break
        return line

    def start(self):
        self.server.stdin.write("go\n")
        self.server.stdin.flush()
        return int(self._until())

    def end(self):
        """Exit code of the run, negative where a signal ended it."""
        return int(self._until())

    def close(self):
        self.server.kill()
        self.server.wait()
        self.server.stdin.close()
        self.server.stdout.close()


@contextmanager
def runs(*words):
    server = Runs(*words)
    try:
        yield server
    finally:
        server.close()


def rows(folder, plan):
    if not (folder / NAME).is_file():
        return {}
    with Store.reading(folder) as store:
        return {key: kept.rows for key, kept in store.kept(plan.tasks.values()).items()}


def whole(folder, plan):
    """Every row, from one run that nothing disturbs."""
    with Store.writing(folder) as store:
        measure_missing(plan, store)
    return rows(folder, plan)


def ended(journal):
    """Numbers of the cells whose measurement came to its end, as often as it did."""
    return [int(line) for line in journal.read_text().split()] if journal.exists() else []


@pytest.mark.parametrize(("workers", "most", "cells"), [(1, 6, 15), (2, 2, 30)])
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_rows(tmp_path, workers, most, cells):
    folder, journal, rng = tmp_path / "killed", tmp_path / "journal", random.Random(workers)
    plan = Plan([slowly(COUNT, SECONDS, journal)])
    expected = whole(tmp_path / "whole", plan)
    journal.unlink()
    before = {}
    with runs(folder, journal, workers) as server:
        for kills in range(1, most + 1):
            seen, process = len(ended(journal)), server.start()
            enough = min(seen + rng.randrange(cells), COUNT - 1)  # cells of this run to wait for, and then a moment
            patience = time.monotonic() + 300
            while len(ended(journal)) < enough:
                assert time.monotonic() < patience, "it measures nothing"
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 1.5 * SECONDS))
            os.killpg(process, signal.SIGKILL) if kills % 2 else os.kill(process, signal.SIGKILL)  # and its workers, or not
            assert server.end() == -signal.SIGKILL
            settle(journal)
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            there = rows(folder, plan)
            assert before.items() <= there.items() <= expected.items()  # nothing lost, nothing half there
            assert len(ended(journal)) - len(there) <= kills * workers  # of each run, at most the cells in flight
            before = there
    assert before
    assert whole(folder, plan) == expected


def settle(journal):
    """Wait until no orphan of the run measures any more."""
    while (size := len(ended(journal))) != (time.sleep(3 * SECONDS), len(ended(journal)))[1]:
        assert size < 20 * COUNT


def test_what_is_stopped_by_hand_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    figure = slowly(20, 0.0, tmp_path / "journal")
    monkeypatch.setattr(registry, "figures", lambda: (figure,))
    monkeypatch.setattr("eigenscape.cli.reproduce.Cells", Stopping)
    words = ["reproduce", "small/slow", "--out", str(tmp_path / "it's"), "--workers", "1"]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 130
    said = capsys.readouterr().err
    assert "stopped: 7 of 20 cells are safe in " in said
    assert "eigenscape reproduce --redraw --profile quick --out " in said
    monkeypatch.undo()
    monkeypatch.setattr(registry, "figures", lambda: (figure,))
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert not stop.value.code
    assert sorted(ended(tmp_path / "journal")) == list(range(20))  # each was measured once


class Stopping:
    """Progress in the middle of which somebody presses Ctrl-C."""

    def __init__(self, quiet):
        self.told = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, standing):
        if standing.done == 7:
            raise KeyboardInterrupt
