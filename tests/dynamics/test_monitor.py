"""Measuring never touches training; records, budget, resuming and errors."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from eigenscape.core import CurvatureError, TrainingModeError
from eigenscape.curvature import Objective, ggn, hessian
from eigenscape.dynamics import Monitor, read
from eigenscape.dynamics.instruments import MEASURES, critical, flat

X = torch.randn(96, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 4, (96,), generator=torch.Generator().manual_seed(1))


def hazardous():
    """A model with everything that a measurement could disturb: dropout, batch norm with running statistics, random streams."""
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(144, 8),
        nn.Tanh(),
        nn.Linear(8, 4),
    )


def batches(steps):
    """Batches drawn from the global random streams, as an augmenting loader would."""
    for _ in range(steps):
        noise = random.random() + float(np.random.rand())  # noqa: NPY002
        index = torch.randint(0, len(X), (32,))
        yield X[index] * (1 + 0.01 * noise), Y[index]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def train(optimizer, watched, steps=12, **options):
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    model = hazardous()
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    monitor = None
    if watched:
        obj = Objective(model.eval(), nn.CrossEntropyLoss(), (X, Y))
        monitor = Monitor(obj, optimizer, **options)
    model.train()
    torch.manual_seed(4)
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if monitor is not None:
            monitor.step()
    return model, optimizer, monitor


def bits(tree):
    if isinstance(tree, dict):
        return [x for k, v in tree.items() for x in [k, *bits(v)]]
    if isinstance(tree, list | tuple):
        return [x for v in tree for x in bits(v)]
    return [tree.detach().numpy().tobytes()] if isinstance(tree, torch.Tensor) else [tree]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_bitwise_the_same_with_and_without(name):
    options = {"every": 3, "k": 2, "smallest": 1, "measures": "all"}
    model, optimizer, monitor = train(name, True, **options)
    streams = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    other, without, _ = train(name, False)
    assert bits(model.state_dict()) == bits(other.state_dict())
    assert bits(optimizer.state_dict()) == bits(without.state_dict())
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters()))
    assert [m.training for m in model.modules()] == [m.training for m in other.modules()]
    assert torch.equal(streams[0], torch.get_rng_state())
    assert streams[1] == random.getstate()
    assert (streams[2] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert len(monitor.history) == 4
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("options", [{"overhead": 5.0, "every": 1}, {"every": 2, "engine": "difference"}], ids=str)
def test_a_budget_and_other_engines_touch_training_as_little(options):
    model, optimizer, monitor = train("adam", True, **options)
    other, without, _ = train("adam", False)
    assert bits(model.state_dict()) == bits(other.state_dict())
    assert bits(optimizer.state_dict()) == bits(without.state_dict())
    assert len(monitor.history) > 0


def test_records_are_the_same_inside_no_grad_and_inference_mode():
    found = []
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        monitor, model, optimizer = plain()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        with mode():
            monitor.step()
            found.append(monitor.measure()["sharpness"])
    assert found[0] == found[1] == found[2] > 0


def test_groups_are_told_one_by_one():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters(), "lr": 0.5, "momentum": 0.6}]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    obj = Objective(model, nn.MSELoss(), (torch.ones(4, 3), torch.zeros(4, 1)))
    row = Monitor(obj, optimizer).measure()
    assert [g["lr"] for g in row["groups"]] == [0.1, 0.5]
    assert [g["threshold"] for g in row["groups"]] == pytest.approx([2 * 1.9 / 0.1, 2 * 1.6 / 0.5])
    assert row["two_over_lr"] == 20


def test_the_critical_rate_costs_fewer_than_ten_forward_passes():
    """Counted at the model, for updates that are far too short, right, and far too long."""
    for lr in (1e-4, 0.05, 1.0, 30.0):
        torch.manual_seed(0)
        calls = [0]
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).double()
        x, y = torch.randn(20, 6).double(), torch.randn(20, 2).double()

        def forward(model, inputs, calls=calls):
            calls[0] += 1
            return model(inputs)

        obj = Objective(model, nn.MSELoss(), (x, y), forward=forward, check=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        before = flat(obj)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        loss = float(obj.loss())
        calls[0] = 0
        row = critical(obj, before, flat(obj) - before, loss, lr)
        assert calls[0] + 1 < 10  # with the pass that the loss itself took
        assert row["critical_low"] <= (row["critical_lr"] or row["critical_high"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_number_of_a_record_against_dense_algebra(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 14), nn.Tanh(), nn.Linear(14, 3)).double()
    x, y = torch.randn(40, 6).double(), torch.randn(40, 3).double()
    optimizer = OPTIMIZERS[name](model.parameters())
    obj = Objective(model, nn.MSELoss(), (x, y))
    monitor = Monitor(obj, optimizer, every=4, k=3, smallest=2, measures="all", tol=1e-9)
    tops = []
    for _ in range(8):
        before = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        monitor.step()
        tops.append(torch.linalg.eigh(hessian(obj) @ torch.eye(obj.layout.size).double()).eigenvectors[:, -1])
    row = monitor.history[-1]
    H, G = (op(obj) @ torch.eye(obj.layout.size).double() for op in (hessian, ggn))
    values, vectors = torch.linalg.eigh((H + H.T) / 2)
    now = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    u, g = now - before, obj.gradient()
    top = vectors[:, -3:]

    def near(name, value, rel=1e-6):
        assert row[name] == pytest.approx(float(value), rel=rel), name

    near("loss", obj.loss())
    near("gradient_norm", g.norm())
    near("sharpness", values[-1])
    assert row["eigenvalues"] == pytest.approx(values[-3:].flip(0).tolist(), rel=1e-6)
    assert ((torch.tensor(row["smallest"]) - values[:2]).abs() <= torch.tensor(row["smallest_errors"])).all()
    assert max(row["smallest_errors"]) < 0.02 * float(values[-1])
    near("gradient_share", (top.T @ g).square().sum() / g.square().sum(), 1e-5)
    near("update_share", (top.T @ u).square().sum() / u.square().sum(), 1e-5)
    near("update_norm", u.norm())
    near("directional", u @ H @ u / (u @ u))
    assert abs(row["trace"] - float(H.trace())) <= 5 * row["trace_stderr"]
    near("ggn", torch.linalg.eigvalsh((G + G.T) / 2)[-1], 1e-5)
    assert math.cos(row["angle"]) == pytest.approx(abs(float(tops[3] @ tops[7])), abs=1e-6)
    assert row["ggn_gap"] == pytest.approx(abs(row["sharpness"] - row["ggn"]))
    assert row["two_over_lr"] == 2 / row["lr"]
    assert row["critical_passes"] <= 9
    if row["critical_lr"] is not None:
        old = {n: p.detach().clone() for n, p in model.named_parameters()}

        def at(s):
            torch.nn.utils.vector_to_parameters(before + s * u, model.parameters())
            value = float(obj.loss())
            model.load_state_dict(old)
            return value

        start = at(0.0)
        assert at(row["critical_low"] / row["lr"]) <= start * (1 + 1e-12)
        if row["critical_high"] < math.inf:
            assert at(row["critical_high"] / row["lr"]) >= start * (1 - 1e-12)
    if name == "adagrad":
        assert row["threshold"] is None
        return
    D = torch.ones(obj.layout.size).double()
    if name in ("adam", "adamw"):
        v = torch.cat([optimizer.state[p]["exp_avg_sq"].reshape(-1) for p in model.parameters()])
        D = 1 / ((1 - 0.9**8) * ((v / (1 - 0.999**8)).sqrt() + 1e-8))
        near("threshold", (2 + 2 * 0.9) / ((1 - 0.9) * 3e-3))
    if name == "rmsprop":
        states = [optimizer.state[p] for p in model.parameters()]
        D = 1 / torch.cat([((s["square_avg"] - s["grad_avg"] ** 2).sqrt() + 1e-8).reshape(-1) for s in states])
        near("threshold", 2 / 1e-3)
    shift = {"sgd": 1e-3, "adamw": 0.01 * 1.9 / 0.1}.get(name, 0.0)
    felt = D.sqrt()[:, None] * H * D.sqrt()
    near("effective_sharpness", torch.linalg.eigvalsh((felt + felt.T) / 2)[-1] + shift)
    near("ratio", row["effective_sharpness"] / row["threshold"])


def test_a_function_measures_the_batch_at_hand():
    model = hazardous()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = {}
    monitor = Monitor(
        lambda: Objective(model, nn.CrossEntropyLoss(), (batch["x"], batch["y"])), optimizer, every=2, model=model
    )
    torch.manual_seed(4)
    found = []
    for x, y in batches(6):
        batch.update(x=x, y=y)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if monitor.step():
            model.eval()
            found.append(float(Objective(model, nn.CrossEntropyLoss(), (x, y)).loss()))
            model.train()
    assert monitor.history["loss"].tolist() == pytest.approx(found, rel=1e-5)
    assert model.training
    with pytest.raises(TrainingModeError):
        Objective(model, nn.CrossEntropyLoss(), (X, Y))


def run(steps, monitor, model, optimizer):
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        monitor.step()


def plain(folder=None, **options):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh(), nn.Linear(10, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    monitor = Monitor(Objective(model, nn.CrossEntropyLoss(), (X, Y)), optimizer, every=2, run=folder, **options)
    return monitor, model, optimizer


def without_clock(rows):
    return [{k: v for k, v in row.items() if k not in ("time", "seconds")} for row in rows]


def test_a_resumed_run_makes_the_same_records(tmp_path):
    whole, *rest = plain(tmp_path / "whole")
    run(20, whole, *rest)
    first, model, optimizer = plain(tmp_path / "parts")
    run(11, first, model, optimizer)
    saved = copy.deepcopy({"m": model.state_dict(), "o": optimizer.state_dict(), "w": first.state_dict()})
    run(4, first, model, optimizer)  # lost work, already on disk
    again, model, optimizer = plain(tmp_path / "parts")
    model.load_state_dict(saved["m"])
    optimizer.load_state_dict(saved["o"])
    again.load_state_dict(saved["w"])
    run(9, again, model, optimizer)
    assert without_clock(again.history) == without_clock(whole.history)
    assert without_clock(read(tmp_path / "parts")) == without_clock(read(tmp_path / "whole"))


def test_state_goes_through_torch_save(tmp_path):
    monitor, *rest = plain()
    run(6, monitor, *rest)
    torch.save(monitor.state_dict(), tmp_path / "state.pt")
    other, *_ = plain()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert other.steps == 6
    assert other.history.rows == monitor.history.rows


def test_a_second_run_in_a_folder_keeps_the_first(tmp_path):
    for _ in range(2):
        monitor, *rest = plain(tmp_path)
        run(4, monitor, *rest)
        monitor.close()
    assert len(read(tmp_path)) == len(read(tmp_path / "history-1.jsonl")) == 2
    assert '"finished": true' in (tmp_path / "run.json").read_text()


def test_writers_get_every_record_and_are_closed():
    class Writer(list):
        closed = False

        def __call__(self, row):
            self.append(row)

        def close(self):
            self.closed = True

    writer = Writer()
    monitor, *rest = plain(writers=[writer])
    run(6, monitor, *rest)
    monitor.close()
    assert writer == monitor.history.rows
    assert writer.closed


def test_a_budget_chooses_and_tells(monkeypatch):
    """With a clock that only training and measuring advance, the share spent is within the budget at every record."""
    now = [0.0]
    monkeypatch.setattr("eigenscape.dynamics.budget.time.perf_counter", lambda: now[0])
    torch.manual_seed(5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh(), nn.Linear(10, 4))

    def slow(model, inputs):
        now[0] += 1e-3 * len(inputs)
        return model(inputs)

    big = (X.repeat(20, 1, 1, 1), Y.repeat(20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(Objective(model, nn.CrossEntropyLoss(), big, forward=slow), optimizer, every=5, overhead=0.1)
    for _ in range(1500):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()
        now[0] += 1.0
        row = monitor.step()
        if row:
            assert monitor.budget.spent <= 0.1 * monitor.trained + 0.5 * row["seconds"]
    assert len(monitor.history) > 20
    assert monitor.samples < len(big[0])
    assert all(row["samples"] == monitor.samples for row in monitor.history)
    steps = monitor.history["step"]
    assert (np.diff(steps) >= 5).all()
    assert f"on {monitor.samples} of 1920 samples" in monitor.chosen
    assert "% of the training time" in monitor.chosen


def test_divergence_is_recorded_and_raises_nothing():
    monitor, model, optimizer = plain()
    run(4, monitor, model, optimizer)
    with torch.no_grad():
        model[1].weight.fill_(float("nan"))
    monitor.steps += 1
    row = monitor.measure()
    assert row["phase"] == "diverged"
    assert math.isnan(row["loss"])


def test_errors_say_what_to_type():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    obj = Objective(model, nn.MSELoss(), (torch.ones(2, 2), torch.ones(2, 1)))
    with pytest.raises(
        CurvatureError, match=r"objective is a Linear|a Tensor came|objective is a Tensor; expected es\.Objective"
    ):
        Monitor(torch.ones(2), optimizer)
    with pytest.raises(CurvatureError, match="every is 0; expected a whole number of at least 1"):
        Monitor(obj, optimizer, every=0)
    with pytest.raises(CurvatureError, match=r"optimizer is a Linear; expected a torch\.optim\.Optimizer"):
        Monitor(obj, model)
    with pytest.raises(CurvatureError, match="'sharp' is not a measure; expected \"all\" or some of"):
        Monitor(obj, optimizer, measures=("sharp",))
    with pytest.raises(CurvatureError, match="overhead is -1; expected a share of the training time"):
        Monitor(obj, optimizer, overhead=-1)
    with pytest.raises(CurvatureError, match=r"the function returned a int; expected es\.Objective"):
        Monitor(lambda: 3, optimizer).measure()


def test_measures_are_what_their_names_say():
    assert MEASURES == ("effective", "directional", "critical", "ggn", "trace")
    monitor, *rest = plain(measures=())
    run(2, monitor, *rest)
    assert not {"effective_sharpness", "directional", "critical_lr", "ggn", "trace"} & set(monitor.history[0])
