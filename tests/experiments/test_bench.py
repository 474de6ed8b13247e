"""Benchmarks: who is wrong is marked, who fails or is missing gets a row, and results can be read and drawn again."""

import sys
from dataclasses import replace

import pytest
import torch

from eigenscape.experiments.bench import clock, density, eigenpairs, loader, memory, peers, plain, products, trace
from eigenscape.experiments.bench.contest import Solver, Watched, contest
from eigenscape.experiments.bench.drawing import draw
from eigenscape.experiments.bench.plain import Problem
from eigenscape.experiments.bench.products import Way
from eigenscape.experiments.bench.record import measure, page, read, write
from eigenscape.experiments.bench.registry import BenchError, select, suites
from eigenscape.experiments.bench.suite import Bars, Suite
from eigenscape.experiments.bench.table import filled, markdown
from eigenscape.experiments.bench.workloads import brief_workload, workload

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


def objective_and_product(network="mlp"):
    objective = brief_workload(network)
    return objective, plain.exact(objective, "Hessian")


def diagonal_problem():
    """A stand-in whose Hessian is a known diagonal matrix."""
    values = torch.cat([torch.linspace(1, 10, 190), torch.linspace(20, 40, 10)]).double()
    return values, lambda V: values * V if V.ndim == 1 else values[:, None] * V


def test_eigenpairs_are_judged_by_their_residuals_and_by_what_is_missing():
    values, product = diagonal_problem()
    largest = eigenpairs.truth(product, 200, 3)
    assert torch.allclose(largest, values.flip(0)[:3])
    eye = torch.eye(200, dtype=torch.float64)
    top = (values[-3:], eye[:, -3:], 7)
    assert eigenpairs.judged(product, largest, top) == {
        "products": 7, "residual": 0.0, "value error": pytest.approx(0, abs=1e-6), "right": True,
    }  # fmt: skip
    wrong = {
        "a missed eigenvalue": (values[[196, 198, 199]], eye[:, [196, 198, 199]], 7),
        "one thrice": (values[[199, 199, 199]], eye[:, [199, 199, 199]], 7),
        "values that are off": (values[-3:] * 1.01, eye[:, -3:], 7),
        "vectors that are off": (values[-3:], eye[:, -3:] + 0.01, 7),
    }
    for what, pairs in wrong.items():
        assert not eigenpairs.judged(product, largest, pairs)["right"], what


def test_a_solver_with_a_wrong_operator_is_marked():
    objective, product = objective_and_product("gpt")
    largest = eigenpairs.truth(product, objective.layout.size, 2)

    def judge(pairs):
        return eigenpairs.judged(product, largest, pairs)

    def scaled_by(factor):
        def build(problem):
            right = plain.kept(problem)
            return lambda V: factor * right(V)

        return lambda problem, tol: eigenpairs.by_arpack(build, problem, tol, k=2)

    ways = [Solver("right", scaled_by(1.0), (0.5, 1e-3)), Solver("wrong", scaled_by(1.01), (1e-2, 1e-3), shown=1e-3)]
    right, wrong = contest("gpt", Problem.of(objective), ways, judge, 1, print)
    assert right["right"]
    assert (right["setting"], right["note"]) in [(0.5, right.get("note")), (1e-3, "1 looser settings failed")]
    assert not wrong["right"]
    assert wrong["setting"] == 1e-3
    assert wrong["note"] == "no setting up to 0.001 suffices"
    assert wrong["gradients"] > 0


def test_a_solver_that_takes_too_long_says_so():
    objective = brief_workload("mlp")

    def endless(problem, _):
        watched = Watched(plain.kept(problem), problem.size, limit=3)
        while True:
            _ = watched @ torch.ones(problem.size)

    (row,) = contest("mlp", Problem.of(objective), [Solver("endless", endless)], lambda answer: {"right": True}, 1, print)
    assert row == {"network": "mlp", "contestant": "endless", "note": "did not finish within 3 products"}


def test_densities_are_judged_by_moments_and_by_the_largest_node():
    values, product = diagonal_problem()
    start = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = (start / start.norm()).square()
    assert density.judged(product, 40.0, density.Rule(values, weights, start, 5))["right"]
    assert not density.judged(product, 40.0, density.Rule(1.01 * values, weights, start, 5))["right"]
    assert not density.judged(product, 40.0, density.Rule(values[:-1], weights[:-1], start, 5))["right"]
    assert not density.judged(product, 40.0, density.Rule(values, weights.flip(0), start, 5))["right"]


def test_everybody_has_the_same_density():
    pytest.importorskip("curvlinops")
    objective, product = objective_and_product()
    largest = float(eigenpairs.truth(product, objective.layout.size, 1)[0])
    problem = Problem.of(objective)
    for solver in density.solvers(True, 30, (-largest, largest)):
        row = density.judged(product, largest, solver.solve(problem, None))
        assert row["right"], (solver.name, row)
        assert row["products"] == 30 or solver.name == "curvlinops"


def test_traces_are_judged_by_their_spread_and_bias():
    known = trace.Known(trace=100.0, sigma=30.0, count=900)
    assert known.enough == 100
    stream = torch.Generator().manual_seed(0)
    noise = torch.randn(16, generator=stream).double()
    noise = (noise - noise.mean()) / noise.std()
    row = known.judged([(float(100 + 3 * e), 25) for e in noise])
    assert row["error"] == pytest.approx(0.03)
    assert row["saved"] == pytest.approx(4.0)  # 100 samples of plain Hutchinson instead of 25 products
    assert row["right"]
    assert not known.judged([(float(100 + 6 * e), 25) for e in noise])["right"]
    assert not known.judged([(float(110 + 3 * e), 25) for e in noise])["right"]


def test_a_loader_costs_what_its_batches_cost_and_has_their_hessian():
    way = loader.ways()[0]

    def only_the_first(problem):
        first = next(iter(problem.data))
        return plain.kept(Problem(problem.objective, problem.model, problem.criterion, [first]))

    ways = [way, loader.Way("torch, of one batch only", only_the_first)]
    rows = loader.compare(workload("cnn", training=0), ways, 3, 4, 1, print)
    assert [row["right"] for row in rows] == [True, False]
    assert "3 of 3" in rows[0]["engine"]
    assert all(row["ratio"] == pytest.approx(row["gradients"] / row["alone"]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(suites()))
def test_every_suite_runs_in_brief(name, tmp_path):
    suite = suites()[name]
    record = measure(suite, print, brief=True)
    assert record.rows
    assert any("note" not in row or len(row) > 3 for row in record.rows)
    assert filled(suite, record.rows)
    assert len(write(record, suite, tmp_path)) == (2 if suite.bars is None else 4)
    assert read(tmp_path / f"{name}.json") == record
