"""`eigenscape reproduce`: what it lists, measures, prints and writes, and one sentence for everything that cannot be done."""

import io
import json
import sqlite3
import time
from dataclasses import replace

import pytest
from rich.console import Console

from eigenscape.cli import main
from eigenscape.cli.cells import Cells
from eigenscape.experiments.machine import PROFILES, Standing
from eigenscape.experiments.papers import registry

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own, when it loads its formulas
SMALL = ("cracking/phases", "spectral-view/critical")


def run(*words):
    """Exit code of the command line."""
    try:
        main(["reproduce", *map(str, words)])
    except SystemExit as stop:
        return stop.code or 0
    return 0


@pytest.fixture
def small(monkeypatch):
    """As if there were two figures only."""
    found = tuple(figure for figure in registry.figures() if figure.id in SMALL)
    monkeypatch.setattr(registry, "figures", lambda: found)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with both figures."""
    folder = tmp_path_factory.mktemp("run")
    assert run(*SMALL, "--profile", "smoke", "--workers", 1, "--out", folder) == 0
    return folder


def test_the_list_has_every_figure_and_its_cells(capsys, tmp_path):
    assert run("--list", "--json", "--out", tmp_path) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in listed] == [figure.id for figure in registry.figures()]
    assert all(0 < row["cells"]["smoke"] <= min(row["cells"]["quick"], row["cells"]["paper"]) for row in listed)
    assert run("--list", "spectral-view", "--profile", "smoke", "--out", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "spectral-view/critical  What a singular Hessian does not say" in shown
    assert "cracking" not in shown
    assert f"4 figures; numbers are cells, 'measured' those of profile smoke in {tmp_path}" in shown


def test_the_list_counts_what_is_measured(capsys, folder):
    assert run("--list", "--json", *SMALL, "--profile", "smoke", "--out", folder) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["measured"] == row["cells"]["smoke"]


def test_all_of_a_profile_is_measured_drawn_and_judged(capsys, tmp_path, small):
    assert run("all", "--profile", "smoke", "--workers", 1, "--out", tmp_path, "--export") == 0
    printed = capsys.readouterr()
    cells = sum(len(figure.cells("smoke")) for figure in small)
    assert f"{cells} of {cells} cells to measure" in printed.err
    assert f"measured all {cells} cells in " in printed.err
    record = json.loads((tmp_path / "verdicts.json").read_text())
    assert f"2 figures, {sum(record['verdicts'].values())} claims judged: " in printed.out
    for figure in record["figures"]:
        assert f"{figure['id']}  {figure['title']}" in printed.out
        for verdict in figure["verdicts"]:
            assert f"  {verdict['agreement']}" in printed.out
    assert f"page    {tmp_path / 'index.html'}" in printed.out
    assert f"rows    {tmp_path / 'rows'}" in printed.out
    page = (tmp_path / "index.html").read_text()
    assert all(f'id="{figure.id.replace("/", "-")}"' in page for figure in small)
    assert {p.suffix for p in (tmp_path / "rows").rglob("*.*")} == {".csv", ".parquet"}
    with sqlite3.connect(tmp_path / "rows.sqlite") as connection:
        (command,) = connection.execute("SELECT command FROM runs").fetchone()
        assert connection.execute("SELECT count(*) FROM cells WHERE error IS NULL").fetchone() == (cells,)
    assert command


def test_a_second_run_measures_nothing_and_redraws(capsys, folder):
    before = (folder / "figures/cracking/phases.svg").read_bytes()
    capsys.readouterr()
    assert run("--redraw", "--json", "--out", folder) == 0
    printed = capsys.readouterr()
    assert [figure["id"] for figure in json.loads(printed.out)["figures"]] == list(SMALL)
    assert "cells to measure" not in printed.err
    assert run("cracking/phases", "--profile", "smoke", "--workers", 1, "--out", folder) == 0
    assert "cells to measure" not in capsys.readouterr().err
    assert (folder / "figures/cracking/phases.svg").read_bytes() == before


def test_a_figure_that_fails_is_said_and_the_exit_code_is_one(capsys, tmp_path, monkeypatch, small):
    def broken(rows):
        raise ValueError("no picture")

    monkeypatch.setattr(registry, "figures", lambda: (replace(small[0], draw=broken),))
    assert run("all", "--profile", "smoke", "--workers", 1, "--out", tmp_path) == 1
    assert "failed: cracking/phases: Drawing ended with ValueError: no picture (test_reproduce.py:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["cracking/fig99"], "no figure is called 'cracking/fig99'; expected cracking/fig9 or "),
        (["crakcing"], "no figure is called 'crakcing'; expected cracking or cracking/"),
        (["fig27"], "no figure is called 'fig27'; expected cracking/fig27"),
        (["zzz"], "expected all, a paper (closed-form, "),
        (["all", "--seed", "-1"], "--seed is -1; expected a whole number from 0 to 2^63 - 1"),
        (["all", "--workers", "0"], "--workers is 0; expected a whole number of at least 1"),
        (["all", "--backend", "dask"], "--backend is dask without --address; expected the scheduler's, as tcp://host:8786"),
        (["all", "--address", "tcp://a:1"], "--address is 'tcp://a:1' without --backend dask; expected both or neither"),
        (
            ["all", "--backend", "dask", "--address", "tcp://a:1", "--workers", "2"],
            "a cluster has its own: leave out --workers",
        ),
        (["all", "--device", "tpu"], "--device 'tpu' cannot be used here"),
        (["--redraw"], "holds no rows.sqlite; expected the folder of a run"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(capsys, tmp_path, words, sentence):
    assert run(*words, "--profile", "smoke", "--out", tmp_path) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.startswith("eigenscape: ")
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_a_profile_that_does_not_exist_names_those_that_do(capsys, tmp_path):
    assert run("all", "--profile", "fast", "--out", tmp_path) == 2
    said = capsys.readouterr().err
    assert "fast" in said
    assert all(name in said for name in PROFILES)


def test_a_foreign_store_is_refused(capsys, tmp_path):
    (tmp_path / "rows.sqlite").write_bytes(b"notes, not rows\n" * 100)
    assert run("cracking/phases", "--profile", "smoke", "--workers", 1, "--out", tmp_path) == 2
    assert "is damaged (file is not a database); expected rows that eigenscape wrote" in capsys.readouterr().err


def test_nothing_complete_to_redraw_says_so(capsys, tmp_path, folder):
    (tmp_path / "rows.sqlite").write_bytes((folder / "rows.sqlite").read_bytes())
    assert run("--redraw", "--seed", 3, "--out", tmp_path) == 2
    assert "holds no figure of profile smoke and seed 3 with all of its cells; expected a run" in capsys.readouterr().err


# progress --------------------------------------------------------------------------------------------------------------

STANDINGS = (
    Standing(2, 6, 0, None, ""),
    Standing(3, 6, 0, None, "a/b"),
    Standing(4, 6, 1, 75.0, "a/c"),
    Standing(6, 6, 1, 0.0, "a/c"),
)


def told(every=0.0, **options):
    stream = io.StringIO()
    with Cells(Console(file=stream, **options), every=every) as progress:
        for standing in STANDINGS:
            progress(standing)
            time.sleep(0.001)
        progress.bar.refresh()
    return stream.getvalue()


def test_a_file_gets_lines_with_the_time_left():
    lines = told().splitlines()
    assert lines[:3] == [
        "4 of 6 cells to measure",
        "3 of 6 cells, last of a/b",
        "4 of 6 cells, 1 min 15 s left, last of a/c, 1 failed",
    ]
    assert lines[3].startswith("measured all 6 cells in ")
    assert lines[3].endswith(" s, 1 failed")
    assert len(told(every=60.0).splitlines()) == 2


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = told(force_terminal=True, width=120)
    assert "6/6" in text
    assert "last of a/c, 1 failed" in text
