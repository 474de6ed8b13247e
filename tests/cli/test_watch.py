"""The terminal view shows a run as it is, ends with it, and writes its page."""

import json
import threading

import pytest
from typer.testing import CliRunner

from eigenscape.cli import app, main
from eigenscape.cli.watch import sparkline
from eigenscape.dynamics.history import Appender


@pytest.fixture
def run(tmp_path):
    append = Appender(tmp_path / "myrun")
    for i in range(1, 21):
        append(
            {
                "step": 10 * i,
                "loss": 1.0 / i,
                "lr": 0.2,
                "sharpness": 0.5 * i,
                "sharpness_low": 0.5 * i,
                "sharpness_high": 0.51 * i,
                "threshold": 10.0,
                "ratio": 0.05 * i,
                "gradient_share": 0.3,
                "gradient_norm": 1.0,
                "update_share": 0.3,
                "critical_lr": 0.4,
                "angle": 0.1,
                "products": 4,
                "phase": "progressive sharpening" if i < 18 else "edge of stability",
            }
        )
    (tmp_path / "myrun" / "run.json").write_text(json.dumps({"finished": True, "chosen": "every 10 steps"}))
    return tmp_path / "myrun"


def test_watch_shows_a_finished_run_and_ends(run):
    result = CliRunner().invoke(app, ["watch", str(run)], env={"COLUMNS": "140"})
    assert result.exit_code == 0
    for words in ("myrun: 20 records, finished", "edge of stability", "the median ratio of sharpness", "every 10 steps"):
        assert words in result.output
    assert "10.00" in result.output


def test_once_shows_a_running_run(run):
    (run / "run.json").write_text(json.dumps({"finished": False, "optimizer": "SGD", "parameters": 12345}))
    result = CliRunner().invoke(app, ["watch", str(run), "--once"], env={"COLUMNS": "140"})
    assert result.exit_code == 0
    for words in ("running, the last record", "s ago", "SGD, 12,345 parameters"):
        assert words in result.output


def test_watching_ends_with_the_run(run):
    about = run / "run.json"
    about.write_text(json.dumps({"finished": False}))
    (run / "ended.json").write_text(json.dumps({"finished": True}))
    ending = threading.Timer(0.5, lambda: (run / "ended.json").replace(about))
    ending.start()
    result = CliRunner().invoke(app, ["watch", str(run), "--refresh", "0.1"], env={"COLUMNS": "140"})
    ending.join()
    assert result.exit_code == 0
    assert "20 records, finished" in result.output


def test_the_page_of_a_run_is_whole(run, tmp_path):
    result = CliRunner().invoke(app, ["watch", str(run), "--report", str(tmp_path / "page.html")])
    assert result.exit_code == 0
    text = (tmp_path / "page.html").read_text()
    for words in (
        "Training run myrun",
        "Loss and sharpness",
        "Learning rates",
        "How the sharpest direction turns",
        "10 to 170",
    ):
        assert words in text
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "")


def test_an_empty_folder_says_what_was_expected(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["watch", str(tmp_path)])
    assert "there is no run at" in capsys.readouterr().err


def test_sparklines_follow_the_numbers():
    assert sparkline([1.0, 10.0, 100.0], log=True) == "▁▅█" or sparkline([1.0, 10.0, 100.0], log=True) == "▁▄█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert len(sparkline(list(map(float, range(500))), width=60)) == 60
