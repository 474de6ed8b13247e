"""A history is a table, and its file loses no record that was made."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from eigenscape.core import DataError
from eigenscape.dynamics.history import Appender, History, read


def test_columns_rows_and_slices():
    h = History([{"step": 1, "loss": 2.0}, {"step": 2, "values": [1.0, 2.0], "loss": None}])
    assert h.columns == ("step", "loss", "values")
    np.testing.assert_array_equal(h["loss"], [2.0, math.nan])
    assert h["values"][1] == [1.0, 2.0]
    assert len(h[1:]) == 1
    assert h[0] == {"step": 1, "loss": 2.0}
    with pytest.raises(DataError, match="no column 'sharpnes'; expected one of step, loss, values"):
        h["sharpnes"]


def test_frame_and_csv(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas makes the frame")
    h = History([{"step": 1, "loss": 2.0, "values": [1.0]}, {"step": 3, "loss": 1.0, "values": [0.5]}])
    frame = h.frame()
    assert list(frame.index) == [1, 3]
    assert frame["loss"].tolist() == [2.0, 1.0]
    again = pandas.read_csv(h.csv(tmp_path / "h.csv"))
    assert again["loss"].tolist() == [2.0, 1.0]
    assert json.loads(again["values"][1]) == [0.5]
    assert "<table" in h._repr_html_()


def test_without_pandas_the_table_is_still_one(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    h = History([{"step": 1, "loss": 2.0}])
    with pytest.raises(DataError, match="pandas is not installed; expected it for a DataFrame: pip install pandas"):
        h.frame()
    assert h._repr_html_() is None
    assert h["loss"].tolist() == [2.0]
    assert h.csv(tmp_path / "h.csv").read_text().split() == ["step,loss", "1,2.0"]


def test_file_round_trip_holds_no_nan(tmp_path):
    append = Appender(tmp_path / "run")
    append({"step": 1, "loss": math.nan, "values": [1.0, math.inf]})
    append({"step": 2, "loss": 0.1})
    text = (tmp_path / "run" / "history.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read(tmp_path / "run").rows == [{"step": 1, "loss": None, "values": [1.0, None]}, {"step": 2, "loss": 0.1}]


def test_a_table_is_saved_and_loaded_whole(tmp_path):
    h = History([{"step": 1, "loss": 2.0, "values": [1.0]}, {"step": 3, "loss": math.inf}])
    assert History.load(h.save(tmp_path / "kept" / "h.jsonl")).rows == [h[0], {"step": 3, "loss": None}]
    Appender(tmp_path / "run")(h[0])
    assert History.load(tmp_path / "run").rows == [h[0]]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["h.jsonl"]


def test_an_unfinished_last_line_is_passed_over_and_rewinding_removes_it(tmp_path):
    append = Appender(tmp_path)
    for step in (1, 2, 3):
        append({"step": step})
    with open(append.path, "a") as file:
        file.write('{"step": 4, "lo')
    assert [row["step"] for row in read(tmp_path)] == [1, 2, 3]
    append.rewind(2)
    append({"step": 3})
    assert [row["step"] for row in read(tmp_path)] == [1, 2, 3]


def test_errors(tmp_path):
    with pytest.raises(DataError, match=r"there is no run at .*; expected a folder with a history\.jsonl"):
        read(tmp_path)
    (tmp_path / "history.jsonl").write_text("what\n")
    with pytest.raises(DataError, match=r"line 1 of .* is not a row"):
        read(tmp_path)


SCRIPT = """
import sys, torch
from torch import nn
import eigenscape.dynamics as d
from eigenscape.curvature import Objective
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = (torch.ones(4, 3), torch.zeros(4, 1))
monitor = d.Monitor(Objective(model, nn.MSELoss(), data), optimizer, every=1, run=sys.argv[1])
while True:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(data[0]), data[1]).backward()
    optimizer.step()
    monitor.step()
    print(monitor.steps, flush=True)
"""


def test_a_killed_process_leaves_every_record(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    told = 0
    deadline = time.monotonic() + 600
    while told < 20 and time.monotonic() < deadline:
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    process.stdout.close()
    told = max([told, *map(int, rest)])
    steps = [row["step"] for row in read(tmp_path)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= told >= 20
    assert all(row["sharpness"] > 0 for row in read(tmp_path))
