"""What was committed survives whatever happens next; what is not a store is refused and left as it is."""

import contextlib
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_figure import EXPERIMENT, FIGURE, Troubled, cells, trouble

from eigenscape.core import EigenscapeError
from eigenscape.experiments.machine import Experiment, Plan, Store, measure_missing
from eigenscape.experiments.machine.encoding import rows_from_text, rows_to_text
from eigenscape.experiments.machine.provenance import this_run
from eigenscape.experiments.machine.store import NAME
from eigenscape.experiments.machine.tasks import Outcome, Task, measure

PLAN = Plan([FIGURE], "smoke")


def texts(folder, plan=PLAN):
    """Rows of every cell as they lie in the store, bit by bit."""
    with Store.reading(folder) as store:
        return {key: kept.rows for key, kept in store.kept(plan.tasks.values()).items() if kept.rows is not None}


def fill(folder, plan=PLAN):
    with Store.writing(folder) as store:
        measure_missing(plan, store)
    return texts(folder, plan)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    fill(folder)
    return folder


def test_every_bit_of_every_number_is_kept():
    rng = random.Random(0)
    values = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-320, 300) for _ in range(2000)]
    values += [-0.0, 5e-324, math.nextafter(1, 2), 1.7976931348623157e308, math.inf, -math.inf]
    cell = Troubled("fine")
    back = [row["v"] for row in rows_from_text(rows_to_text([{"v": v} for v in values], cell), cell)]
    assert [v.hex() for v in back] == [v.hex() for v in values]
    (row,) = rows_from_text(rows_to_text(trouble(cell, None), cell), cell)
    assert math.isnan(row.pop("nan"))
    assert row == {"what": "fine", "number": 0, "value": 0.0, "inf": -math.inf, "zero": 0.0, "none": None}


def test_rows_hold_plain_values_and_agree_with_their_config():
    with pytest.raises(TypeError, match="'v' of a row is a list; expected a number, a text, a truth value or None"):
        rows_to_text([{"v": [1]}], Troubled("fine"))
    with pytest.raises(ValueError, match="a row has 'number' = 3, its config 0; expected another name"):
        rows_to_text([{"number": 3}], Troubled("fine"))


def test_everything_about_a_cell_lies_beside_its_rows(filled):
    with Store.reading(filled) as store:
        (run,) = store.runs().values()
        kept = store.kept(PLAN.tasks.values())
    assert run.versions["torch"]
    assert (run.profile, run.seed) == ("smoke", 0)
    assert list(kept) == list(PLAN.tasks)
    assert all(k.seconds > 0 and k.machine["threads"] == 1 and k.machine["cores"] > 0 for k in kept.values())
    with sqlite3.connect(filled / NAME) as connection:  # for readers that know nothing of this package
        names = connection.execute("SELECT experiment, version, config FROM cells").fetchall()
        tops = connection.execute("SELECT json_extract(rows, '$[0].top') FROM cells").fetchall()
    assert {(e, v) for e, v, _ in names} == {("small/descent", 1)}
    assert {tuple(json.loads(c).items()) for *_, c in names} == {tuple(vars(cell).items()) for cell in cells("smoke")}
    assert sorted(t for (t,) in tops) == sorted(json.loads(rows)[0]["top"] for rows in texts(filled).values())


def test_rows_of_another_version_or_seed_are_not_used(filled):
    newer = Experiment("small/descent", cells, EXPERIMENT.measure, version=2)
    with Store.reading(filled) as store:
        assert not store.kept([Task(newer, cell) for cell in cells("smoke")])
        assert not store.kept(Plan([FIGURE], "smoke", seed=1).tasks.values())
        assert len(store.kept(Plan([FIGURE], "quick").tasks.values())) == 8  # what profiles share is measured once


def test_a_seed_draws_everything_afresh_and_is_kept_apart(tmp_path, filled):
    shutil.copy(filled / NAME, tmp_path / NAME)
    other = fill(tmp_path, Plan([FIGURE], "smoke", seed=1))
    assert texts(tmp_path) == texts(filled)
    assert not set(other.values()) & set(texts(filled).values())
    assert fill(tmp_path / "again", Plan([FIGURE], "smoke", seed=1)) == other


def test_rows_are_never_replaced_and_failures_are(tmp_path):
    task = Task(EXPERIMENT, cells("smoke")[0])
    good, bad = measure(task), Outcome(None, "broken", 0.0, {})
    with Store.writing(tmp_path) as store:
        run = store.begin(this_run("smoke", 0))
        for outcome, expected in ((bad, None), (good, good.rows), (bad, good.rows)):
            store.put(run, task, outcome)
            kept = store.kept([task])[task.key]
            assert kept.rows == expected
            assert kept.error == ("broken" if expected is None else None)


# killed ---------------------------------------------------------------------------------------------------------------

WRITER = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from small_figure import EXPERIMENT, FIGURE
from eigenscape.experiments.machine import Plan, Store
from eigenscape.experiments.machine.provenance import this_run
from eigenscape.experiments.machine.tasks import measure, Outcome

folder, plan = Path(sys.argv[1]), Plan([FIGURE], "quick")


def write():
    with Store.writing(folder) as store:
        run = store.begin(this_run("quick", 0))
        for task in plan.missing(store):
            outcome = measure(task)
            store.put(run, task, Outcome(outcome.rows, None, outcome.seconds, dict(outcome.machine, ballast="x" * 2_000_000)))
            print(task.key, flush=True)


print("ready", flush=True)
for line in sys.stdin:  # a process of its own for each, without the cost of importing again
    child = os.fork()
    if child == 0:
        write()
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


def test_a_kill_at_any_moment_loses_the_cell_in_flight_at_most(tmp_path):
    """Each record is padded to two megabytes, and every other kill comes when a transaction is seen to have begun."""
    plan, rng, folder = Plan([FIGURE], "quick"), random.Random(1), tmp_path / "killed"
    expected = fill(tmp_path / "whole", plan)
    announced, hot, journal = set(), 0, folder / f"{NAME}-journal"
    process = subprocess.Popen([sys.executable, "-c", WRITER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "ready\n"
        for attempt in range(60):
            process.stdin.write("go\n")
            process.stdin.flush()
            lines = [process.stdout.readline()]
            while not lines[-1].strip().isdecimal() or len(lines[-1]) > 60:  # keys may come before the number
                lines.append(process.stdout.readline())
            if attempt % 2:
                late = time.monotonic() + 1
                while not journal.exists() and time.monotonic() < late:
                    pass
            elif attempt:
                time.sleep(rng.uniform(0, 0.06))
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(int(lines[-1]), signal.SIGKILL)
            while lines[-1] != "ended\n":
                lines.append(process.stdout.readline())
            announced |= {line.strip() for line in lines if len(line) == 65}
            hot += journal.exists()
            if (folder / NAME).exists():
                there = texts(folder, plan)  # opens, which mends it
                assert announced <= set(there)  # nothing that had ended is lost
                assert all(expected[key] == rows for key, rows in there.items())  # and nothing is half there
                if len(there) == len(expected):
                    break
        process.stdin.close()
    assert hot > 0  # at least one kill came in the middle of a transaction
    assert fill(folder, plan) == expected


def test_one_process_measures_in_a_folder_and_a_dead_one_holds_nothing(tmp_path):
    code = WRITER.replace('run = store.begin(this_run("quick", 0))', 'print("inside", flush=True); time.sleep(60)')
    code = code[: code.index('print("ready"')] + "write()\n"
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "inside\n"
        sentence = "another process is measuring in .*; wait for it, look at what it has with --redraw, or use another --out"
        with pytest.raises(EigenscapeError, match=sentence), Store.writing(tmp_path):
            pass
        with Store.reading(tmp_path) as store:  # looking is allowed
            assert store.runs() == {}
        process.kill()
    assert len(fill(tmp_path)) == 8


# not ours -------------------------------------------------------------------------------------------------------------


def foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE wages (x)")
    connection.close()


def newer(path):
    fill(path.parent)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()


def cut(path):
    fill(path.parent)
    path.write_bytes(path.read_bytes()[:-5000])


def doctored(path):
    fill(path.parent)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET rows = replace(rows, '1', '2')")
    connection.close()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (foreign, "is a database of another program; expected one that eigenscape wrote: use another --out"),
        (lambda path: path.write_bytes(b"notes, not rows\n" * 100), "is damaged .file is not a database.; expected rows that"),
        (newer, "has format 7, this release reads 1; use another --out, or that release"),
        (cut, "is damaged .*; expected rows that eigenscape wrote: delete it, or use another --out"),
        (doctored, "is damaged .a record does not match its digest."),
        (lambda path: path.mkdir(), "cannot be opened .unable to open database file.; expected a file that may be written to"),
    ],
)
def test_what_is_not_a_store_is_refused_and_left_alone(tmp_path, make, sentence):
    make(tmp_path / NAME)
    before = (tmp_path / NAME).read_bytes() if (tmp_path / NAME).is_file() else None
    with pytest.raises(EigenscapeError, match=sentence):
        fill(tmp_path)
    if before is not None:
        assert (tmp_path / NAME).read_bytes() == before


def test_an_empty_file_is_a_store_that_was_killed_at_birth(tmp_path):
    (tmp_path / NAME).touch()
    assert len(fill(tmp_path)) == 8


def test_a_folder_without_a_store_says_what_to_type(tmp_path):
    sentence = "holds no rows.sqlite; expected the folder of a run: eigenscape reproduce NAME --out "
    with pytest.raises(EigenscapeError, match=sentence), Store.reading(tmp_path):
        pass


def looked_at(folder):
    """Rows, or the sentence that refuses them."""
    try:
        return texts(folder), ""
    except EigenscapeError as error:
        return {}, str(error)


def test_no_flipped_bit_changes_a_number_unnoticed(tmp_path, filled):
    data, expected, rng = (filled / NAME).read_bytes(), texts(filled), random.Random(2)
    noticed = 0
    for _ in range(300):
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        (tmp_path / NAME).write_bytes(damaged)
        there, said = looked_at(tmp_path)
        noticed += bool(said)
        assert "expected" in said or "reads 1" in said if said else there.items() <= expected.items()
    assert noticed > 50  # most bits are padding
