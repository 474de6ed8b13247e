"""Progress is a bar on a terminal and one line per stage elsewhere, without colour codes."""

import io

import pytest
from rich.console import Console

from eigenscape.cli.progress import Reporter


def told(**options):
    stream = io.StringIO()
    with Reporter(Console(file=stream, **options), quiet=options.get("quiet", False)) as progress:
        for done in range(3):
            progress("first stage", done, 2)
        progress("second stage", 5, None)
    return stream.getvalue()


def test_a_file_gets_one_line_per_stage():
    first, second = told().splitlines()
    assert first.startswith("first stage: ")
    assert first.endswith(" s, 2 done")
    assert second.startswith("second stage: ")
    assert second.endswith(" s, 5 done")


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    text = told(force_terminal=True)
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text


def test_a_terminal_gets_a_bar():
    text = told(force_terminal=True, width=100)
    assert "first stage" in text
    assert "2/2" in text
    assert "5/5" in text


def test_quiet_is_silent():
    stream = io.StringIO()
    with Reporter(Console(file=stream), quiet=True) as progress:
        progress("stage", 1, 1)
    assert stream.getvalue() == ""


def fail(reporter):
    with reporter as progress:
        progress("stage", 1, 2)
        raise ValueError("stop")


def test_a_stage_that_fails_is_not_reported_as_finished():
    stream = io.StringIO()
    with pytest.raises(ValueError, match="stop"):
        fail(Reporter(Console(file=stream)))
    assert stream.getvalue() == ""
