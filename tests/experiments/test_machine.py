"""Cells become rows in one or several processes; rows become a figure, verdicts, a page and files, the same on every way."""

import csv
import importlib
import json
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from small_figure import EXPERIMENT, FIGURE, claims, draw, troubled

from eigenscape import experiments
from eigenscape.core import DataError
from eigenscape.experiments.machine import Agreement, Backend, Experiment, Plan, Rows, Standing, Store, local, measure_missing
from eigenscape.experiments.machine import export as exporting
from eigenscape.experiments.machine.export import export
from eigenscape.experiments.machine.files import shown_in
from eigenscape.experiments.machine.provenance import commit
from eigenscape.experiments.machine.reproduce import publish, reproduce
from eigenscape.experiments.machine.run import Clock
from eigenscape.experiments.machine.tasks import Outcome

PLAN = Plan([FIGURE], "smoke")
BOTH = [
    FIGURE,
    replace(FIGURE, id="small/fig2", experiments=[EXPERIMENT], select={"small/descent": lambda cell: cell.seed == 1}),
]


def kept(folder, plan=PLAN):
    with Store.reading(folder) as store:
        return {key: (k.rows, k.error) for key, k in store.kept(plan.tasks.values()).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    reproduce([FIGURE], folder, profile="smoke")
    return folder


# measured --------------------------------------------------------------------------------------------------------------


def test_two_processes_give_the_rows_of_one(tmp_path, folder):
    told = []
    reproduce([FIGURE], tmp_path, profile="smoke", backend=Backend(workers=2), tell=told.append)
    assert kept(tmp_path) == kept(folder)
    assert [s.done for s in told] == list(range(9))
    assert {s.total for s in told} == {8}


def test_what_a_process_takes_with_it_is_its_own_cell(tmp_path):
    """One cell kills its process always, one the first time only, one raises: the others are as if nothing had been."""
    once = tmp_path / "tried"
    plan = Plan([troubled("fine", "dies", "fine", f"once {once}", "raises", "tensor", "fine", "fine")], "smoke")
    with Store.writing(tmp_path) as store:
        failed = measure_missing(plan, store, Backend(workers=2))
    rows, errors = zip(*kept(tmp_path, plan).values())
    assert [text is not None for text in rows] == [True, False, True, True, False, False, True, True]
    assert [json.loads(text)[0]["value"] for text in rows if text] == [0.0, 2.0, 3.0, 6.0, 7.0]
    assert errors[1] == "the process that measured it ended: killed by the system, for example for want of memory"
    assert re.fullmatch(r"ZeroDivisionError: no number \(small_figure.py:\d+\)", errors[4])
    assert "'values' of a row is a tensor of shape (3,); expected a number, a text" in errors[5]
    assert len(failed) == 3
    assert all(sentence.startswith("small/trouble: ") for sentence in failed)


def test_what_failed_is_tried_again_and_nothing_else(tmp_path):
    file, plan = tmp_path / "file", None
    plan = Plan([troubled("fine", f"unless {file}")], "smoke")
    with Store.writing(tmp_path) as store:
        assert len(measure_missing(plan, store)) == 1
        file.touch()
        told: list[Standing] = []
        assert measure_missing(plan, store, tell=told.append) == []
        assert [(s.done, s.total) for s in told] == [(1, 2), (2, 2)]
        assert measure_missing(plan, store, tell=told.append) == []
        assert len(told) == 2  # nothing is left to do


def test_without_joblib_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with (
        Store.writing(tmp_path) as store,
        pytest.raises(DataError, match="--workers is 2 and joblib is not installed; expected"),
    ):
        measure_missing(PLAN, store, Backend(workers=2))


def test_figures_share_cells(tmp_path):
    plan = Plan(BOTH, "smoke")
    assert len(plan.tasks) == 8
    assert [len(plan.of(figure)) for figure in BOTH] == [8, 4]
    calls = []

    def counted(cell, device):
        calls.append(cell)
        return EXPERIMENT.measure(cell, device)

    experiment = replace(EXPERIMENT, measure=counted)
    shown = reproduce([replace(figure, experiments=[experiment]) for figure in BOTH], tmp_path, profile="smoke")
    assert len(calls) == 8
    assert [s.record.cells for s in shown] == [8, 4]


def test_the_time_left_is_what_cells_of_the_same_experiment_cost(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("eigenscape.experiments.machine.run.time.perf_counter", lambda: now[0])
    other = Experiment("small/other", EXPERIMENT.cells, EXPERIMENT.measure)
    tasks = Plan([replace(FIGURE, experiments=[EXPERIMENT, other])], "smoke").tasks.values()
    mine = [task for task in tasks if task.experiment is EXPERIMENT]
    clock = Clock(list(tasks), {"small/other": [10.0]})
    for task in mine[:3]:
        clock.tick(task, Outcome("[]", None, 2.0, {}))
    assert clock.left() is None  # too few to tell
    clock.tick(mine[3], Outcome("[]", None, 2.0, {}))
    now[0] = 4.0  # eight seconds of cells in four: two processes
    assert clock.left() == pytest.approx((4 * 2.0 + 8 * 10.0) / 2)


# shown -----------------------------------------------------------------------------------------------------------------


def test_a_folder_has_pictures_verdicts_and_one_page(folder):
    stem = folder / "figures" / "small" / "fig1"
    record = json.loads(stem.with_suffix(".json").read_text())
    assert (record["profile"], record["cells"], record["measured"], record["problem"]) == ("smoke", 8, 8, "")
    assert record["methods"][0]["configs"] == "rate 0.05, 0.1, 0.15, 0.2; seed 0, 1; steps 60"
    assert record["methods"][0]["doing"].startswith("Train a network of width 5 by gradient descent")
    assert record["versions"]["torch"]
    assert matplotlib.image.imread(stem.with_suffix(".png")).std() > 0.01
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert verdicts["verdicts"] == {"agrees": 1, "cannot be judged": 1}
    page = (folder / "index.html").read_text()
    assert "8 of 8" in page
    assert "a claim &lt;without&gt; numbers" in page
    assert not re.search(r'(src|href)="(http|//)|<script', page)  # it needs no network
    assert page.count("<svg") == 1
    assert 'href="figures/small/fig1.svg"' in page


def test_figures_are_drawn_again_from_the_store_alone(tmp_path, folder):
    (tmp_path / "rows.sqlite").write_bytes((folder / "rows.sqlite").read_bytes())

    def refuse(cell, device):
        raise AssertionError("nothing is measured")

    figure = replace(FIGURE, experiments=[replace(EXPERIMENT, measure=refuse)])
    with Store.reading(tmp_path) as store:
        (shown,) = publish(Plan([figure], "smoke"), store, tmp_path)
    assert shown.record.verdicts == tuple(claims(table(folder)))
    for name in ("figures/small/fig1.svg", "figures/small/fig1.png"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def table(folder):
    with Store.reading(folder) as store:
        found = store.kept(PLAN.tasks.values())
    return Rows([row for key, task in PLAN.tasks.items() for row in found[key].table(task.cell)])


def test_what_is_missing_or_broken_is_said_and_the_rest_shown(tmp_path):
    def broken(rows):
        raise ValueError("no picture")

    plans = Plan([replace(FIGURE, draw=broken)], "smoke"), Plan([FIGURE], "quick"), Plan([troubled("fine", "raises")], "smoke")
    with Store.writing(tmp_path) as store:
        for plan in (plans[0], plans[2]):
            measure_missing(plan, store)
        records = [publish(plan, store, tmp_path)[0].record for plan in plans]
    assert records[0].problem.startswith("Drawing ended with ValueError: no picture (test_machine.py:")
    assert [v.agreement for v in records[0].verdicts] == [Agreement.AGREES, Agreement.OPEN]
    assert records[1].problem == (
        "8 of 24 cells are measured; to measure the others: eigenscape reproduce small/fig1 --profile quick"
    )
    assert not records[1].verdicts
    assert re.match(
        r"1 of 2 cells failed and are left out, the first with ZeroDivisionError: no number .* at ", records[2].problem
    )
    assert [s.has_picture for s in shown_in(tmp_path, [])] == [False, True]  # the failed picture of fig1 was taken away


def test_a_record_that_cannot_be_read_is_refused(tmp_path, folder):
    path = tmp_path / "figures" / "small" / "fig1.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(DataError, match=r"fig1.json is no record of a figure; expected one that this release wrote: delete it"):
        shown_in(tmp_path, [])


def test_the_commit_is_that_of_the_source(tmp_path):
    assert re.fullmatch(r"([0-9a-f]{12}\+?)?", commit())
    assert commit(tmp_path) == ""


# rows ------------------------------------------------------------------------------------------------------------------


def test_rows_are_columns():
    rows = Rows([{"net": net, "seed": s, "top": float(s)} for net in "ab" for s in range(3)] + [{"net": "c"}])
    assert rows["top"][:6].tolist() == [0.0, 1.0, 2.0] * 2
    assert np.isnan(rows["top"][6])
    assert rows.where(lambda row: row.get("top", 0) > 1, net="a")["seed"].tolist() == [2]
    assert [(key, len(part)) for key, part in rows.by("net", "seed")][-1] == (("c", None), 1)
    with pytest.raises(KeyError, match="no row has a column 'tip'; there are: net, seed, top"):
        rows["tip"]


def test_every_format_has_every_row(tmp_path, folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    with Store.reading(folder) as store:
        paths = export(PLAN, store, tmp_path)
        before = [path.read_bytes() for path in paths]
        assert [path.read_bytes() for path in export(PLAN, store, tmp_path)] == before
    assert [str(path.relative_to(tmp_path)) for path in paths] == ["small/descent.parquet", "small/descent.csv"]
    expected = list(table(folder))
    found = parquet.read_table(paths[0])
    assert found.to_pylist() == expected  # to the last bit
    assert [str(found.schema.field(name).type) for name in ("rate", "seed", "top")] == ["double", "int64", "double"]
    assert found.schema.metadata[b"experiment"] == b"small/descent"
    with paths[1].open(newline="") as file:
        assert [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)] == expected


def test_columns_of_mixed_kinds_and_gaps(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    plan = Plan([troubled("fine", "fine")], "smoke")
    with Store.writing(tmp_path) as store:
        measure_missing(plan, store)
        path, _ = export(plan, store, tmp_path)
    (first, _) = parquet.read_table(path).to_pylist()
    assert first["inf"] == -np.inf
    assert np.isnan(first["nan"])
    assert first["none"] is None


def test_without_pyarrow_parquet_is_refused_and_csv_is_not(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with Store.reading(folder) as store:
        with pytest.raises(DataError, match="Parquet files need pyarrow, which is not installed; expected: pip install"):
            export(PLAN, store, tmp_path)
        assert len(export(PLAN, store, tmp_path, ["csv"])) == 1


def test_drawing_and_judging_compute_nothing_again(folder):
    assert draw(table(folder)).axes[0].get_xlabel() == "learning rate"
    assert claims(table(folder))[0].ours.endswith("of 8")


# the guide -------------------------------------------------------------------------------------------------------------


def test_the_guides_figure_of_thirty_lines_works_as_it_stands(tmp_path, monkeypatch):
    guide = (Path(experiments.__file__).parent / "README.md").read_text(encoding="utf-8")
    figure, use = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len([line for line in figure.splitlines() if line.strip()]) <= 32
    (tmp_path / "guides_figure.py").write_text(figure, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    module = importlib.import_module("guides_figure")
    names = {"FIGURES": module.FIGURES}
    exec(use.replace("workers=2", "workers=1"), names)
    assert len(names["rows"]) == 6
    (shown,) = shown_in(tmp_path / "out/mine", [])
    assert shown.has_picture
    assert [v.agreement for v in shown.record.verdicts] == [Agreement.AGREES]
    assert shown.record.methods[0].doing == "The largest eigenvalue of `X^T X / n`."
