"""Benchmarks: who is wrong is marked, who fails or is missing gets a row, and results can be read and drawn again."""

import sys
from dataclasses import replace

import pytest
import torch

from eigenscape.experiments.bench import clock, memory, peers, plain, products
from eigenscape.experiments.bench.drawing import draw
from eigenscape.experiments.bench.plain import Problem
from eigenscape.experiments.bench.products import Way
from eigenscape.experiments.bench.record import measure, page, read, write
from eigenscape.experiments.bench.registry import BenchError, select, suites
from eigenscape.experiments.bench.suite import Bars, Suite
from eigenscape.experiments.bench.table import markdown
from eigenscape.experiments.bench.workloads import brief_workload

WORKS = {"H v": 1, "H V": 3}


def scaled(factor):
    def build(problem):
        product = plain.kept(problem)
        return lambda V: factor * product(V)

    return build


def rows_of(*ways, network="mlp"):
    objective = brief_workload(network)
    return products.compare(objective, list(ways), plain.exact(objective, "Hessian"), WORKS, rounds=1)


def a_suite(rows):
    return Suite(
        "small", "A small one", lambda say, brief: rows, ("work", "contestant", "gradients", "right", "note"), bars=Bars()
    )


def test_a_wrong_answer_is_marked_everywhere():
    rows = rows_of(Way("torch, right", scaled(1)), Way("torch, wrong", scaled(1.001)))
    assert [row["right"] for row in rows] == [True, False] * 2
    assert rows[1]["error"] == pytest.approx(1e-3, rel=1e-2)
    assert all(row["gradients"] > 0 and row["seconds"] > 0 for row in rows)
    suite = a_suite([{"network": "mlp", **row} for row in rows])
    table = markdown(suite, rows)
    assert table.count("WRONG") == 2
    assert table.count("yes") == 2
    words = [text.get_text() for ax in draw(suite, suite.run(print, True)).axes for text in ax.texts]
    assert [("wrong" in word) for word in words] == [False, True]


def test_everybody_multiplies_by_the_same_hessian():
    pytest.importorskip("curvlinops")
    ways = products.ways("Hessian", brief=True)
    for row in rows_of(*ways):
        assert row["right"], row
    judge = plain.exact(brief_workload("gpt"), "GGN")
    for row in products.compare(brief_workload("gpt"), products.ways("GGN", brief=True), judge, {"G v": 1}, 1):
        assert row["right"], row


def test_forward_over_jacrev_is_caught_on_a_transformer():
    pytest.importorskip("curvlinops")
    rows = rows_of(Way("curvlinops", peers.curvlinops_product), Way("torch", plain.fresh), network="gpt")
    assert [row["right"] for row in rows] == [False, True] * 2


def test_the_judge_agrees_with_central_differences():
    objective = brief_workload("mlp")
    v = torch.randn(objective.layout.size, generator=torch.Generator().manual_seed(0))
    problem, h = Problem.of(objective, torch.float64), 1e-5 / float(v.norm())
    slopes = []
    for side in (h, -h):
        with torch.no_grad():
            for p, d in zip(problem.parameters, problem.cut(v.double())):
                p.add_(d, alpha=side)
        slopes.append(plain.flat(torch.autograd.grad(problem.loss(), problem.parameters)))
        with torch.no_grad():
            for p, d in zip(problem.parameters, problem.cut(v.double())):
                p.sub_(d, alpha=side)
    difference = (slopes[0] - slopes[1]) / (2 * h)
    truth = plain.exact(objective, "Hessian")(v)
    assert float((difference - truth).norm() / truth.norm()) < 1e-6


def test_who_is_missing_or_fails_gets_a_row(monkeypatch):
    monkeypatch.setitem(sys.modules, "curvlinops", None)

    def stumbles(problem):
        calls = iter(range(3))

        def product(V):
            if next(calls, None) is None:
                raise RuntimeError("out of breath")
            return plain.fresh(problem)(V)

        return product

    rows = rows_of(Way("curvlinops", peers.curvlinops_product), Way("tired", stumbles))
    assert {row["note"] for row in rows[:2]} == {"not installed: import of curvlinops halted; None in sys.modules"}
    assert {row["note"] for row in rows[2:]} == {"raises RuntimeError: out of breath"}
    assert all("gradients" not in row for row in rows)
    assert "halted" in markdown(a_suite(rows), rows)
    assert draw(a_suite(rows), rows) is None


def test_times_are_medians_in_units_measured_between():
    clicks = iter(range(100))

    def sleepy():
        if next(clicks) == 1:
            sum(range(2_000_000))  # one slow round of five changes nothing
        return sum(range(200_000))

    rows = clock.race([clock.Entry({}, sleepy)], lambda: sum(range(100_000)), rounds=5)
    assert 1.2 < rows[0]["gradients"] < 4


def grow(megabytes):
    held = []
    return lambda: None, lambda: held.append(torch.ones(megabytes * 2**18))


@pytest.mark.skipif(memory.peak() is None, reason="this system does not tell the peak memory of a process")
def test_memory_is_what_the_work_adds():
    assert memory.beyond(grow, 64) == pytest.approx(64, abs=8)


def test_records_are_read_as_they_were_written(tmp_path):
    rows = [{"network": "mlp", "contestant": "a|b", "gradients": 1.5, "right": False, "note": None, "n": torch.tensor(3)}]
    record = measure(a_suite(rows), print, brief=True)
    assert record.rows == [{"network": "mlp", "contestant": "a|b", "gradients": 1.5, "right": False, "n": 3}]
    paths = write(record, a_suite(rows), tmp_path)
    assert [p.name for p in paths] == ["small.json", "small.md", "small.svg", "small.png"]
    assert all(p.stat().st_size for p in paths)
    assert read(paths[0]) == record
    text = page(record, a_suite(rows))
    assert "a\\|b" in text
    assert "times mean nothing" in text
    assert record.versions["torch"] == torch.__version__
    with pytest.raises(BenchError, match=r"cannot be read .* expected a file that eigenscape bench has written"):
        read(paths[1])


def test_suites_find_themselves():
    assert {"products", "monitor"} <= set(suites())
    assert [s.name for s in select(["mon*", "products", "products"])] == ["products", "monitor"]
    assert select(["all"]) == list(suites().values())
    with pytest.raises(BenchError, match=r"no suite is called 'product'; expected products"):
        select(["product"])
    with pytest.raises(BenchError, match=r"no suite is called 'x'; expected all, or one of products"):
        select(["x"])
    for suite in suites().values():
        assert suite.bars is None or suite.bars.length in suite.columns
        assert replace(suite, bars=None).name == suite.name
