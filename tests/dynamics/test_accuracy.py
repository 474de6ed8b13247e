"""At every recorded step of three runs, the tracked sharpness stands up to a fresh, tight computation."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from eigenscape.curvature import Objective, hessian
from eigenscape.dynamics import Monitor, view
from eigenscape.solvers import eigsh


def mlp():
    """Full-batch gradient descent to the edge of stability, float64."""
    torch.manual_seed(0)
    x = torch.randn(100, 10).double()
    y = torch.tanh(x @ torch.randn(10, 2).double()) + 0.1 * torch.randn(100, 2).double()
    model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 2)).double()
    return model, nn.MSELoss(), x, y, torch.optim.SGD(model.parameters(), lr=0.7), len(x)


def cnn():
    """Minibatches with momentum and batch norm, float32."""
    torch.manual_seed(1)
    x, y = torch.randn(120, 1, 8, 8), torch.randint(0, 3, (120,))
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3)
    )
    return model, nn.CrossEntropyLoss(), x, y, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), 40


def adam():
    """Adam, float32, cross-entropy."""
    torch.manual_seed(2)
    x = torch.randn(150, 12)
    y = (x[:, :4] ** 2).argmax(1)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))
    return model, nn.CrossEntropyLoss(), x, y, torch.optim.Adam(model.parameters(), lr=5e-3), len(x)


@pytest.mark.parametrize("task", [mlp, cnn, adam], ids=lambda f: f.__name__)
def test_every_record_is_right(task):
    model, criterion, x, y, optimizer, batch = task()
    obj = Objective(model.eval(), criterion, (x, y))
    model.train()
    monitor = Monitor(obj, optimizer, every=8, k=2)
    worst, products = 0.0, []
    for _ in range(96):
        index = torch.randperm(len(x))[:batch]
        optimizer.zero_grad()
        criterion(model(x[index]), y[index]).backward()
        optimizer.step()
        row = monitor.step()
        if row is None:
            continue
        model.eval()
        fresh = eigsh(hessian(obj, check=False), k=2, tol=1e-5)
        model.train()
        slack = float(fresh.residual_norms.max())
        top, second = fresh.values.tolist()
        assert row["sharpness_low"] - slack <= top <= row["sharpness_high"] + slack, row["step"]
        assert row["eigenvalues"][1] <= second + slack, row["step"]  # Ritz values lie below, one by one
        if row.get("effective_sharpness") is not None:
            seen = view(optimizer, dict(model.named_parameters()), obj.layout)
            model.eval()
            felt = eigsh(seen.operator(hessian(obj, check=False)), k=1, tol=1e-5)
            model.train()
            edge, slack = float(felt.values[0]), float(felt.residual_norms[0])
            assert row["effective_low"] - slack <= edge <= row["effective_high"] + slack, row["step"]
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        worst = max(worst, abs(row["sharpness"] / top - 1))
        products.append(row["products"])
    assert len(products) == 12
    assert worst < 0.02
    assert sorted(products)[6] <= 10  # two pairs, their guard, a residual; the optimizer's view; the update


def test_the_edge_is_reached():
    model, criterion, x, y, optimizer, _ = mlp()
    optimizer.param_groups[0]["lr"] = 0.5
    monitor = Monitor(Objective(model, criterion, (x, y)), optimizer, every=50)
    for _ in range(4000):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        monitor.step()
    ratio = monitor.history["ratio"]
    assert ratio[0] < 0.9
    assert 0.9 < sorted(ratio[-20:])[10] < 1.15
    assert monitor.history[-1]["phase"] == "edge of stability"
    assert "progressive sharpening" in set(monitor.history["phase"])
