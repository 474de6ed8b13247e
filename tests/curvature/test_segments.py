"""Programs in segments: the same products, one function for equal segments, aligned matrix products, fewer constants."""

import pytest
import torch
import torch._inductor
from models import build
from torch import nn

import eigenscape as es
from eigenscape.curvature import plan, products, segments, tape
from eigenscape.curvature.segments import segmented
from eigenscape.curvature.tape import record, without_writes
from eigenscape.experiments.bench.workloads import GPT

MAKERS = {"hessian": es.hessian, "ggn": es.ggn}


@pytest.fixture
def small(monkeypatch):
    """Every tensor counts as large, and nothing is compiled."""
    for module in (tape, plan, segments):
        monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(torch._inductor, "compile", lambda segment, arguments: segment)


def gap(a, b):
    return float((a - b).norm() / b.norm().clamp_min(1e-300))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", ["mlp-ce", "mlp-bce", "cnn", "groupnorm", "attention", "encoder", "recurrent", "gpt2"])
def test_products_in_segments_are_double_backward_products(small, name, make):
    case = build(name)
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=3)
    compiled, reverse = (MAKERS[make](obj, engine=e) for e in ("compiled", "reverse"))
    V = torch.randn(compiled.n, 6, generator=torch.Generator().manual_seed(0), dtype=compiled.dtype)
    expected = reverse @ V
    compiled._engine.batched = True  # as on a GPU
    for _ in range(2):
        assert gap(compiled @ V, expected) <= 1e-12
        assert gap(compiled @ V[:, 0], expected[:, 0]) <= 1e-12
    assert compiled._engine.batched
    for program in compiled._engine.programs.held:
        assert program.run.trusted, program.run.note


def recorded(depth, make=es.hessian, vocabulary=51):
    """A frugal recording of a small GPT's product, and a vector."""
    torch.manual_seed(0)
    model = GPT(vocabulary, length=16, width=32, depth=depth, heads=2)
    tokens = torch.randint(0, vocabulary, (4, 16))
    obj = es.Objective(model, es.losses.next_token, (tokens, tokens), check=False)
    H = make(obj, engine="recorded")
    H._engine.transform = lambda program: program
    v = torch.randn(H.n, generator=torch.Generator().manual_seed(1))
    H @ v
    return H._engine.programs.held[0].tape, v


@pytest.mark.parametrize("make", MAKERS)
def test_a_deeper_network_of_equal_blocks_has_no_more_functions(small, make):
    counts = []
    for depth in (3, 5):
        program, _ = recorded(depth, MAKERS[make])
        compiled = []
        segmented(program.program, lambda segment, into=compiled: into.append(segment) or segment)
        counts.append(len(compiled))
    assert counts[0] == counts[1] < 40


@pytest.mark.parametrize("make", MAKERS)
def test_matrix_products_of_odd_sizes_are_widened_and_stay_the_same(small, make):
    program, v = recorded(2, MAKERS[make])
    plain = program.program(v)[0]
    wide = segmented(program.program, lambda segment: segment, align=True)
    called = [node.target for node in wide.graph.nodes]
    assert products.wide_product in called
    assert products.wide_accumulate in called
    assert gap(wide(v)[0], plain) < 1e-5
    together = program.batched()
    rows = torch.stack([v, v.flip(0)])
    several = record(lambda x: {"Av": together(x["v"])[0]}, {"v": rows}, frugal=True)
    wide = segmented(without_writes(several, {"v": rows}).program, lambda segment: segment, align=True)
    assert gap(wide(rows)[0], torch.stack([program.program(row)[0] for row in rows])) < 1e-5


def test_constants_that_follow_from_others_are_not_kept(small):
    x, y = (torch.randn(300, 200, dtype=torch.float64) for _ in range(2))

    def function(v):
        a = x.tanh() @ torch.eye(200, dtype=torch.float64)
        total = torch.zeros(200, dtype=torch.float64)
        for power in range(1, 6):  # five constants from two
            total = total + ((a**power * y + power) * v["x"]).sum(0)
        return {"z": total + (a * v["x"]).sum(0) + (y * v["x"]).sum(0)}

    program = record(function, {"x": torch.ones(200, dtype=torch.float64)}, frugal=True)
    assert program.nbytes < 2.1 * x.nbytes
    v = {"x": torch.randn(200, dtype=torch.float64)}
    assert gap(program(v)["z"], function(v)["z"]) <= 1e-13


def test_results_that_a_view_flattens_keep_their_rows_together(small):
    a, b = torch.randn(30, 40), torch.randn(40, 33)

    def function(v):
        return {"y": ((v["x"] * a) @ b).view(-1)}

    program = record(function, {"x": torch.ones(40)}, frugal=True).program
    x = torch.randn(40)
    assert gap(segmented(program, lambda segment: segment, align=True)(x)[0], function({"x": x})["y"]) < 1e-6


def test_a_sum_of_products_is_added_up_where_the_first_lies(small):
    a, b, c = torch.randn(2, 5, 6), torch.randn(7, 33), torch.randn(33, 33)

    def function(v):
        total = (v["x"] @ b).view(2, 5, 33) + torch.bmm(a, v["y"])
        return {"y": (total * 2.0).view(10, 33) @ c}

    given = {"x": torch.randn(10, 7), "y": torch.randn(2, 6, 33)}
    program = record(function, given, frugal=True).program
    for align in (False, True):
        joined = segmented(program, lambda segment: segment, align=align)
        assert {products.accumulate, products.wide_accumulate} & {node.target for node in joined.graph.nodes}
        assert gap(joined(*given.values())[0], function(given)["y"]) < 1e-6


def test_what_one_kept_tensor_gives_again_is_not_kept_beside_it(small):
    a, b = torch.randn(30, 30), torch.randn(30, 30)
    c = [torch.randn(20, 30) for _ in range(4)]

    def function(v):
        x = v["x"] @ a
        early = [x * factor for factor in c[1:]]
        return {"y": sum(early, (x * c[0]) @ b)}

    given = {"x": torch.randn(20, 30)}
    program = record(function, given, frugal=True).program
    cut = segmented(program, lambda segment: segment)
    kept = [len(node.users) for node in cut.graph.nodes if node.op == "call_module"]
    assert kept == [1, 1]  # the factor of the second product, and the sum
    assert gap(cut(given["x"])[0], program(given["x"])[0]) < 1e-6


def test_a_long_way_of_elementwise_operations_is_gone_once(small):
    a, c = torch.randn(20, 20), 1 + 0.01 * torch.randn(20, 20)

    def function(v):
        x = v["x"] @ a
        for _ in range(1500):  # more than Python's stack is deep
            x = x * c
        return {"y": (x @ a) + x}

    given = {"x": torch.randn(20, 20)}
    cut = segmented(record(function, given, frugal=True).program, lambda segment: segment)
    first, last = (cut.get_submodule(n.target).call[0].graph.nodes for n in cut.graph.nodes if n.op == "call_module")
    assert len(first) > 1500
    assert len(last) < 200
    assert gap(cut(given["x"])[0], function(given)["y"]) < 1e-5


def test_what_follows_from_constants_is_computed_where_it_is_multiplied(small):
    x, a = torch.randn(30, 30), torch.randn(30, 30)

    def function(v):
        h = x @ a
        first = (v["x"] * 2.0) @ h.tanh()
        return {"y": ((first * 2.0) @ a * 3.0) @ h.tanh()}

    given = {"x": torch.randn(20, 30)}
    program = record(function, given, frugal=True).program
    cut = segmented(program, lambda segment: segment)
    assert gap(cut(given["x"])[0], function(given)["y"]) < 1e-6
    tanh = [
        node for node in cut.graph.nodes if node.op == "call_module" and "tanh" in cut.get_submodule(node.target).call[0].code
    ]
    assert len(tanh) == 2


@pytest.mark.slow
def test_compiled_segments_agree_with_their_programs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 10))
    obj = es.Objective(model, nn.CrossEntropyLoss(), (torch.randn(400, 300), torch.randint(0, 10, (400,))))
    compiled, reverse = es.hessian(obj, engine="compiled"), es.hessian(obj, engine="reverse")
    v = torch.randn(compiled.n)
    for _ in range(2):
        assert gap(compiled @ v, reverse @ v) < 1e-5
    (program,) = compiled._engine.programs.held
    assert program.run.trusted or "failed" in program.run.note  # a machine may have no compiler
