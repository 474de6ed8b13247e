"""`eigenscape bench`: what it prints and writes, and one sentence with exit code 2 for everything that cannot be done."""

import json
from dataclasses import replace

import pytest
import torch

from eigenscape.cli.app import main
from eigenscape.experiments.bench import registry
from eigenscape.experiments.bench.suite import Bars, Suite

ROWS = [
    {"network": "mlp", "contestant": "eigenscape", "gradients": 1.25, "error": 1e-7, "right": True},
    {"network": "mlp", "contestant": "another", "gradients": 2.5, "error": 0.5, "right": False},
    {"network": "mlp", "contestant": "missing", "note": "not installed: No module named 'missing'"},
]


@pytest.fixture
def tiny(monkeypatch):
    def run(say, brief):
        say(f"measuring{', briefly' if brief else ''} on {torch.get_num_threads()} threads")
        return ROWS

    columns = ("network", "contestant", "gradients", "error", "right", "note", "never")
    suite = Suite("tiny", "A tiny one", run, columns, ("What the columns mean.",), Bars())
    monkeypatch.setattr(registry, "suites", lambda: {"tiny": suite})
    monkeypatch.setattr("eigenscape.cli.bench.suites", lambda: {"tiny": suite})


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["bench", *map(str, arguments)])
    printed = capsys.readouterr()
    return end.value.code or 0, printed.out, printed.err


def test_a_suite_is_run_shown_and_written(tiny, tmp_path, capsys):
    code, out, err = call(capsys, "tiny", "--brief", "--out", tmp_path / "a" / "b")
    assert code == 0
    assert err == "measuring, briefly on 1 threads\n"
    for said in ("A tiny one", "eigenscape", "1.25", "WRONG", "No module named 'missing'", "What the columns mean.", "Brief"):
        assert said in out
    assert "never" not in out
    record = json.loads((tmp_path / "a" / "b" / "tiny.json").read_text())
    assert record["rows"] == ROWS
    assert record["brief"] is True
    assert {p.suffix for p in (tmp_path / "a" / "b").iterdir()} == {".json", ".md", ".svg", ".png"}


def test_json_is_all_there_is_on_standard_output(tiny, tmp_path, capsys):
    before = torch.get_num_threads()
    code, out, err = call(capsys, "all", "--json", "--threads", 2, "--out", tmp_path)
    assert (code, err) == (0, "")
    (record,) = json.loads(out)
    assert record == json.loads((tmp_path / "tiny.json").read_text())
    assert record["threads"] == 2
    assert torch.get_num_threads() == before


def test_suites_are_listed(tiny, capsys):
    code, out, _ = call(capsys, "--list")
    assert code == 0
    assert "tiny" in out
    assert "A tiny one" in out
    assert json.loads(call(capsys, "--list", "--json")[1]) == [{"name": "tiny", "title": "A tiny one"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tny"], "eigenscape: no suite is called 'tny'; expected tiny (see: eigenscape bench --list).\n"),
        ([], "eigenscape: no suite is named; expected all, or some of tiny.\n"),
        (["tiny", "--threads", "0"], "eigenscape: --threads is 0; expected a whole number of at least 1.\n"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tiny, arguments, said, tmp_path, capsys):
    code, out, err = call(capsys, *arguments, "--out", tmp_path)
    assert (code, out, err) == (2, "", said)


def test_a_suite_that_is_stopped_keeps_its_rows(tiny, tmp_path, monkeypatch, capsys):
    def run(say, brief):
        yield from ROWS[:2]
        raise KeyboardInterrupt

    stopped = replace(registry.suites()["tiny"], run=run)
    monkeypatch.setattr(registry, "suites", lambda: {"tiny": stopped, "never": replace(stopped, name="never")})
    code, out, _ = call(capsys, "all", "--out", tmp_path)
    assert code == 130
    assert "Stopped before the end." in out
    record = json.loads((tmp_path / "tiny.json").read_text())
    assert (record["rows"], record["whole"]) == (ROWS[:2], False)
    assert not (tmp_path / "never.json").exists()
