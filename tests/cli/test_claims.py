"""The command tries the claims, writes what it saw, and fails if a verdict is not supported."""

import json
from dataclasses import replace

import pytest

from eigenscape.cli import claims as command
from eigenscape.cli.app import main
from eigenscape.experiments.ledger.core import Ledger, Profile
from eigenscape.experiments.ledger.registry import LEDGER


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(command.PROFILES, "quick", Profile("quick", 1))


def run(*arguments):
    with pytest.raises(SystemExit) as end:
        main(["claims", *map(str, arguments)])
    return end.value.code or 0


def test_supported_claims_end_well(tiny, tmp_path, capsys):
    assert run("--only", "D*", "--only", "L5", "--out", tmp_path) == 0
    text = capsys.readouterr().out
    assert "every verdict is supported" in text
    assert "7 claims (3 holds, 2 holds under, 2 corrected)" in text
    assert [r["id"] for r in json.loads((tmp_path / "claims.json").read_text())["rows"]] == [
        "L5", "D1", "D2", "D3", "D3a", "D4", "D5",
    ]  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["claims.json"]  # pages show the whole ledger or nothing


def test_a_verdict_that_is_not_supported_ends_with_exit_code_1(tiny, tmp_path, monkeypatch, capsys):
    rows = LEDGER.select(["D1", "D2"])
    monkeypatch.setattr(command, "LEDGER", Ledger(replace(r, verdict="holds") for r in rows))
    assert run("--out", tmp_path) == 1
    text = capsys.readouterr().out
    assert "not supported by this run: D2 (holds, but seen: corrected) (" in text
    assert json.loads((tmp_path / "claims.json").read_text())["agree"] is False


def test_json_is_all_there_is_on_standard_output(tiny, tmp_path, capsys):
    assert run("--only", "D1", "--json", "--seed", 3, "--out", tmp_path) == 0
    text = capsys.readouterr().out
    assert json.loads(text) == json.loads((tmp_path / "claims.json").read_text())
    assert json.loads(text)["seed"] == 3


def test_a_whole_run_writes_both_pages(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "LEDGER", LEDGER.select(["D*"]))
    assert run("--out", tmp_path) == 0
    assert (tmp_path / "claims.md").read_text().count('<a id="') == 6
    assert (tmp_path / "what-the-papers-get-wrong.md").read_text().count("(claims.md#D") == 3


def test_a_row_that_does_not_exist_is_one_sentence(tmp_path, capsys):
    assert run("--only", "Z9", "--out", tmp_path) == 2
    assert capsys.readouterr().err.startswith("eigenscape: no row is called 'Z9'; expected an id such as L1")
    assert not list(tmp_path.iterdir())
