"""Every engine computes the same products; each says what it is; the automatic one goes by what it measured."""

import pytest
import torch
import torch._inductor
from models import NAMES, build
from torch import nn
from torch.nn import functional as F

import eigenscape as es
from eigenscape.curvature.engines import automatic
from eigenscape.curvature.tape import NotRecordable, record

MAKERS = {"hessian": es.hessian, "ggn": es.ggn, "functional": es.functional_hessian}


def objective(name, **options):
    case = build(name)
    return es.Objective(case.model, case.criterion, (case.inputs, case.targets), **options)


def vectors(op, k, seed=0):
    return torch.randn(op.n, k, generator=torch.Generator().manual_seed(seed), dtype=op.dtype)


def gap(a, b):
    return float((a - b).norm() / b.norm().clamp_min(1e-300))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", MAKERS)
def test_recorded_products_are_double_backward_products(name, make):
    if name == "frozen" and make != "hessian":
        pytest.skip("the case is about parameters, not matrices")
    if name == "mlp-huber" and make == "hessian":
        pytest.skip("torch does not differentiate the Huber loss's gradient forward")
    obj = objective(name)
    recorded, reverse = (MAKERS[make](obj, engine=e) for e in ("recorded", "reverse"))
    V = vectors(recorded, 2)
    expected = reverse @ V
    bound = 1e-5 if name == "llama" else 1e-12
    assert float((recorded @ V - expected).norm()) <= bound * max(1.0, float(expected.norm()))
    assert "recorded forward over reverse" in recorded.engine


@pytest.mark.parametrize("kind", ["exact", "sampled", "empirical"])
def test_recorded_fisher_is_the_same_matrix(kind):
    obj = objective("mlp-ce")
    a, b = (es.fisher(obj, kind, generator=torch.Generator().manual_seed(3), engine=e) for e in ("recorded", "reverse"))
    V = vectors(a, 3)
    assert gap(a @ V, b @ V) <= 1e-12


@pytest.mark.parametrize("memory", [0.0, 20_000.0, None])
def test_programs_that_do_not_fit_are_differentiated_afresh(memory):
    obj = objective("mlp-ce", micro_batch=2)
    recorded, reverse = es.hessian(obj, engine="recorded", memory=memory), es.hessian(obj, engine="reverse")
    V = vectors(recorded, 2)
    for _ in range(2):
        assert gap(recorded @ V, reverse @ V) <= 1e-12
    kept = int(recorded.engine.split("kept for ")[1].split()[0])
    assert kept == {0.0: 0, None: 5}.get(memory, kept)


@pytest.mark.parametrize("engine", ["reverse", "recorded", "uncached", "auto"])
def test_products_follow_the_parameters(engine):
    obj = objective("mlp-ce")
    H = es.hessian(obj, engine=engine)
    V = vectors(H, 1)
    before = H @ V
    with torch.no_grad():
        next(obj.model.parameters()).data.mul_(1.5)
    after = H @ V
    assert gap(after, es.hessian(obj, engine="reverse") @ V) <= 1e-12
    assert gap(after, before) > 1e-3


def test_what_cannot_be_recorded_is_explained():
    H = es.hessian(objective("mlp-huber"), engine="recorded")
    with pytest.raises(es.CurvatureError, match=r'not been implemented yet.*; expected .* another engine: "reverse"'):
        H @ vectors(H, 1)


def test_frugal_programs_keep_less_and_give_the_same():
    x, W, U = (torch.randn(*s, dtype=torch.float64) for s in ((400, 30), (30, 200), (200, 5)))

    def function(v):
        act = torch.tanh(x @ W)
        return {"y": ((1 - act**2) * (x @ v["W"])) @ U + (act * act.sigmoid() + 1).exp() @ v["U"]}

    example = {"W": torch.randn_like(W), "U": torch.randn_like(U)}
    plain, frugal = record(function, example), record(function, example, frugal=True)
    assert frugal.nbytes < 0.75 * plain.nbytes
    v = {"W": torch.randn_like(W), "U": torch.randn_like(U)}
    assert gap(frugal(v)["y"], function(v)["y"]) <= 1e-13
    assert gap(plain(v)["y"], function(v)["y"]) <= 1e-13


def test_captured_constants_survive_later_writes():
    def function(v):
        scale = torch.full((300, 300), 2.0, dtype=torch.float64)
        first = scale.exp() * v["x"]
        before = scale * v["x"]
        scale.mul_(5)
        return {"y": first + before + scale * v["x"]}

    for frugal in (False, True):
        tape = record(function, {"x": torch.randn(300, dtype=torch.float64)}, frugal=frugal)
        x = torch.randn(300, dtype=torch.float64)
        assert gap(tape({"x": x})["y"], function({"x": x})["y"]) <= 1e-14


def test_uncached_keeps_nothing():
    H = es.hessian(objective("mlp-ce"), engine="uncached")
    H @ vectors(H, 1)
    assert "kept for 0 of 1" in H.engine


def test_differences_are_close_and_say_how_close():
    obj = objective("mlp-ce")
    for make in MAKERS.values():
        near, exact = make(obj, engine="difference"), make(obj, engine="reverse")
        V = vectors(near, 3)
        assert gap(near @ V, exact @ V) <= 1e-7
        assert gap(near @ (1e6 * V), exact @ (1e6 * V)) <= 1e-7
        assert "relative error about" in near.engine
        zero = torch.zeros(near.n, dtype=near.dtype)
        assert torch.equal(near @ zero, zero)


def test_differences_in_single_precision_report_their_error():
    case = build("mlp-ce")
    obj = es.Objective(case.model.float(), case.criterion, (case.inputs.float(), case.targets))
    near, exact = es.hessian(obj, engine="difference"), es.hessian(obj, engine="reverse")
    v = vectors(near, 1)
    true = gap(near @ v, exact @ v)
    stated = float(near.engine.split("about ")[1])
    assert true <= 3e-3
    assert stated <= 0.1
    assert true <= 10 * stated


class FirstOrderOnly(torch.autograd.Function):
    """x^2, with a gradient whose own derivative is refused, as fused kernels do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


class Squares(nn.Module):
    """A model with such a kernel."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 4).double()

    def forward(self, x):
        """Sum of squares."""
        return FirstOrderOnly.apply(self.inner(x)).sum(1, keepdim=True)


def test_differences_work_where_second_derivatives_do_not():
    model, x = Squares(), torch.randn(6, 3, dtype=torch.float64)
    obj = es.Objective(model, es.losses.half_mse, (x, torch.zeros(6, 1, dtype=torch.float64)))
    H = es.hessian(obj, engine="difference")
    v = vectors(H, 1)[:, 0]
    leaves = [p.detach().requires_grad_() for p in model.parameters()]
    out = (x @ leaves[0].T + leaves[1]).square().sum(1, keepdim=True)
    loss = 0.5 * out.square().sum() / 6
    g = torch.autograd.grad(loss, leaves, create_graph=True)
    flat = torch.cat([t.reshape(-1) for t in torch.autograd.grad(g, leaves, [v[:12].view(4, 3), v[12:]])])
    assert gap(H @ v, flat) <= 1e-6


def deep_linear(bias, criterion, **options):
    model = nn.Sequential(*(nn.Linear(a, b, bias=bias) for a, b in [(4, 3), (3, 5), (5, 2)])).double()
    x, y = torch.randn(40, 4, dtype=torch.float64), torch.randn(40, 2, dtype=torch.float64)
    batches = [(x[:7], y[:7]), (x[7:30], y[7:30]), (x[30:], y[30:])]
    return es.Objective(model, criterion, batches, **options)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("criterion", [nn.MSELoss(), es.losses.half_mse])
@pytest.mark.parametrize("make", [es.hessian, es.ggn])
def test_deep_linear_networks_use_moments(bias, criterion, make):
    obj = deep_linear(bias, criterion)
    H, reverse = make(obj), make(obj, engine="reverse")
    V = vectors(H, 4)
    assert gap(H @ V, reverse @ V) <= 1e-12
    assert "second moments" in H.engine
    with torch.no_grad():
        obj.model[0].weight.add_(1.0)
    assert gap(H @ V, make(obj, engine="reverse") @ V) <= 1e-12
    block = H.block("1.weight")
    v = vectors(block, 1)[:, 0]
    assert gap(block @ v, make(obj, engine="reverse").block("1.weight") @ v) <= 1e-12


@pytest.mark.parametrize("change", ["tanh", "subset", "loss", "hook"])
def test_moments_are_refused_for_other_networks(change):
    obj = deep_linear(False, nn.MSELoss())
    data = list(obj.batches())
    if change == "tanh":
        obj = es.Objective(nn.Sequential(*obj.model, nn.Tanh()), nn.MSELoss(), data)
    if change == "subset":
        obj = es.Objective(obj.model, nn.MSELoss(), data, params=["0.weight"])
    if change == "loss":
        obj = es.Objective(obj.model, F.smooth_l1_loss, data)
    if change == "hook":
        obj.model[1].register_forward_hook(lambda m, i, o: 2 * o)
    with pytest.raises(es.CurvatureError, match=r"engine is 'moments'; expected .* nn.Linear with a squared loss"):
        es.hessian(obj, engine="moments")
    auto = es.hessian(obj)
    V = vectors(auto, 2)
    assert gap(auto @ V, es.hessian(obj, engine="reverse") @ V) <= 1e-12
    assert "moments" not in auto.engine


def test_automatic_measures_both_and_keeps_the_faster(monkeypatch):
    obj = objective("mlp-ce")
    clock = {"now": 0.0}
    monkeypatch.setattr(automatic, "_now", lambda device: clock["now"])
    for cost, expected in ((0.5, "recorded forward over reverse"), (2.0, "double backward")):
        H, reference = es.hessian(obj), es.hessian(obj, engine="reverse")
        engine = H._engine
        monkeypatch.setattr(engine.reverse, "matmat", _costing(engine.reverse.matmat, clock, 1.0))
        monkeypatch.setattr(engine.recorded, "matmat", _costing(engine.recorded.matmat, clock, cost))
        for i in range(automatic.PATIENCE + automatic.TRIALS + 4):
            v = vectors(H, 1, seed=i)
            assert gap(H @ v, reference @ v) <= 1e-12
        assert expected in H.engine
        assert f"recorded / double backward = {cost:.2f}" in H.engine


def _costing(matmat, clock, seconds):
    def timed(V):
        clock["now"] += seconds
        return matmat(V)

    return timed


def test_automatic_stays_with_double_backward_where_nothing_can_be_recorded():
    class Unrecordable(nn.Linear):
        def forward(self, x):
            return Backward.apply(super().forward(x))

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, g):
            return g * (1 - ctx.saved_tensors[0].tanh() ** 2)

    obj = es.Objective(Unrecordable(3, 2), nn.MSELoss(), (torch.randn(5, 3), torch.randn(5, 2)))
    H = es.hessian(obj)
    for _ in range(automatic.PATIENCE + 3):
        H @ torch.ones(H.n)
    assert "double backward" in H.engine
    assert "cannot be recorded" in H.engine


def test_an_unknown_engine_is_named():
    with pytest.raises(es.CurvatureError, match="engine is 'fast'; expected one of auto, reverse, recorded"):
        es.hessian(objective("mlp-ce"), engine="fast")


def test_a_compiler_that_fails_is_noted_and_not_needed(monkeypatch):
    def broken(function, arguments):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch._inductor, "compile", broken)
    obj = objective("mlp-ce")
    H = es.hessian(obj, engine="compiled")
    v = vectors(H, 1)
    assert gap(H @ v, es.hessian(obj, engine="reverse") @ v) <= 1e-12
    assert "compilation failed: RuntimeError" in H.engine


def test_writes_into_buffers_are_recorded():
    index = torch.tensor([2, 0])

    def function(v):
        out = torch.ones(4, dtype=torch.float64)
        view = out[1:]
        view[index] = 2 * v["x"]
        view.mul_(3)
        return {"y": out.clone(), "z": view.sum().reshape(1)}

    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    tape = record(function, {"x": torch.zeros(2, dtype=torch.float64)})
    for scale in (1.0, 5.0, 1.0):
        expected, found = function({"x": scale * x}), tape({"x": scale * x})
        assert all(torch.equal(found[k], expected[k]) for k in expected)


def test_numbers_read_out_of_the_argument_are_refused():
    with pytest.raises(NotRecordable, match="reads a number out of the argument"):
        record(lambda v: {"y": v["x"] * float(v["x"].sum())}, {"x": torch.ones(2)})
    with pytest.raises(NotRecordable, match="writes into its argument"):
        record(lambda v: {"y": v["x"].mul_(2)}, {"x": torch.ones(2)})


def test_constant_factors_and_sums_of_products_are_folded():
    x, W = torch.randn(5, 3, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)

    def function(v):
        pre = x @ v["W"] + v["b"]
        once = torch.ops.aten.gelu_backward(pre, x @ W)
        again = torch.ops.aten.gelu_backward(pre, x @ W)
        return {"y": once + again}

    example = {"W": torch.zeros_like(W), "b": torch.zeros(4, dtype=torch.float64)}
    tape = record(function, example)
    v = {"W": torch.randn_like(W), "b": torch.randn(4, dtype=torch.float64)}
    assert gap(tape(v)["y"], function(v)["y"]) <= 1e-14
    names = [str(node.target) for node in tape.program.graph.nodes if node.op == "call_function"]
    assert "aten.addmm.default" in names
    assert not any("backward" in name for name in names)


def test_announced_products_are_recorded_from_the_first():
    H = es.hessian(objective("mlp-ce"))
    (2 * H).shift(1.0).prepare(automatic.MANY)
    v = vectors(H, 1)
    assert gap(H @ v, es.hessian(objective("mlp-ce"), engine="reverse") @ v) <= 1e-12
    assert "recorded forward over reverse" in H.engine
    assert f"{automatic.MANY} products announced" in H.engine


def test_few_announced_products_are_not_recorded():
    H = es.hessian(objective("mlp-ce"))
    H.prepare(automatic.MANY - 1)
    H @ vectors(H, 1)
    assert "double backward" in H.engine


def test_programs_that_have_run_for_long_on_a_gpu_are_compiled(monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda segment, arguments: segment)
    monkeypatch.setattr(automatic, "WORTH", 0.0)
    H, v = es.hessian(objective("mlp-ce")), vectors(es.hessian(objective("mlp-ce")), 1)
    H._engine.compiles = True  # as on a GPU
    H.prepare(automatic.MANY)
    expected = es.hessian(objective("mlp-ce"), engine="reverse") @ v
    for _ in range(4):
        assert gap(H @ v, expected) <= 1e-12
    assert "compiled forward over reverse" in H.engine
    H.release()
    assert gap(H @ v, expected) <= 1e-12


def test_an_announcement_does_not_outlive_the_products_it_was_made_for():
    obj = objective("mlp-ce")
    H, v = es.hessian(obj), vectors(es.hessian(obj), 1)
    for _ in range(2):  # the second is made to an engine that is chosen already
        H.prepare(automatic.MANY)
        H @ v
    with torch.no_grad():
        next(obj.model.parameters()).data.mul_(1.5)
    assert gap(H @ v, es.hessian(obj, engine="reverse") @ v) <= 1e-12
    assert "double backward" in H.engine


@pytest.mark.parametrize("name", ["mlp-ce", "cnn", "gpt2"])
def test_several_vectors_at_once_need_no_loop_inside_vmap(name, capfd):
    obj = objective(name)
    H, reverse = es.hessian(obj, engine="recorded"), es.hessian(obj, engine="reverse")
    V = vectors(H, 4)
    H._engine.batched = True  # as on a GPU
    assert gap(H @ V, reverse @ V) <= 1e-12
    assert H._engine.batched
    assert "performance drop" not in capfd.readouterr().err
