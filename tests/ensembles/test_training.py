"""Many networks trained as one take the steps that each takes alone, in plain torch."""

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from eigenscape import CurvatureError
from eigenscape.ensembles import Ensemble, Plateau, initialise, train

CASES = [
    ("sp", "linear", (3, 12, 2)),
    ("ntp", "linear", (2, 5, 4, 2)),
    ("mup", "linear", (4, 30, 3)),
    ("sp", "relu", (3, 8, 2)),
    ("ntp", "relu", (3, 6, 5, 2)),
    ("orthogonal", "tanh", (3, 6, 6, 1)),
]


def data(widths, n=50, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, widths[0], generator=g, dtype=torch.float64)
    return X, X @ torch.randn(widths[0], widths[-1], generator=g, dtype=torch.float64)


def alone(net, X, Y, steps, lr, batch, momentum, rates, seed, loss="half_mse", plateau=None, mean_of_all=None):
    """One member in plain torch: modules, autograd, `torch.optim.SGD` and the data order of its stream."""
    layers = [nn.Parameter(W[0].clone()) for W in net.weights]
    act = {"linear": lambda z: z, "relu": torch.relu, "tanh": torch.tanh}[net.activation]

    def forward(x):
        for l, (W, c) in enumerate(zip(layers, net.multipliers)):
            x = c * nn.functional.linear(x, W)
            x = act(x) if l < len(layers) - 1 else x
        return x

    def criterion(f, y):
        return nn.functional.mse_loss(f, y) if loss == "mse" else (f - y).square().sum() / (2 * len(y))

    optimizer = torch.optim.SGD([{"params": [W], "lr": lr * r} for W, r in zip(layers, rates)], momentum=momentum)
    scheduler = None if plateau is None else ReduceLROnPlateau(optimizer, **plateau)
    stream, n, done = torch.Generator().manual_seed(seed), len(X), 0
    while done < steps:
        order = torch.randperm(n, generator=stream) if batch else torch.arange(n)
        for rows in order.split(batch or n)[: steps - done]:
            optimizer.zero_grad()
            criterion(forward(X[rows]), Y[rows]).backward()
            optimizer.step()
            done += 1
        if scheduler is not None:
            scheduler.step(criterion(forward(X), Y).item())
    return [W.detach() for W in layers], [g["lr"] for g in optimizer.param_groups]


@pytest.mark.parametrize(("scheme", "activation", "widths"), CASES)
@pytest.mark.parametrize(("batch", "momentum", "loss"), [(None, 0.0, "half_mse"), (16, 0.9, "mse")])
def test_company_changes_nothing(scheme, activation, widths, batch, momentum, loss):
    nets, rates = initialise(scheme, widths, 4, activation=activation, gain=0.7)
    X, Y = data(widths)
    run = train(nets, X, Y, steps=61, lr=0.01, batch=batch, momentum=momentum, rates=rates, loss=loss, record=[7])
    for i in range(4):
        seed = run.seeds[i] if batch else 0
        weights, _ = alone(nets.select(i), X, Y, 61, 0.01, batch, momentum, rates, seed, loss)
        for ours, theirs in zip(run.ensemble.weights, weights):
            assert (ours[i] - theirs).abs().max() <= 1e-11 * theirs.abs().max()
    assert run.steps.tolist() == [0, 7, 61]
    torch.testing.assert_close(run.losses[:, -1], run.ensemble.losses(X, Y, loss), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(run.losses[:, 0], nets.losses(X, Y, loss), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_own_data_and_own_rates(activation):
    nets, _ = initialise("sp", (3, 9, 2), 3, activation=activation)
    samples = [data((3, 2), seed=s) for s in range(3)]
    X, Y = torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])
    lr = torch.tensor([0.01, 0.02, 0.03], dtype=torch.float64)
    run = train(nets, X, Y, steps=40, lr=lr, batch=20, seeds=[5, 6, 7])
    for i in range(3):
        weights, _ = alone(nets.select(i), X[i], Y[i], 40, lr[i].item(), 20, 0.0, (1.0, 1.0), 5 + i)
        for ours, theirs in zip(run.ensemble.weights, weights):
            torch.testing.assert_close(ours[i], theirs, rtol=1e-11, atol=1e-13)


def test_each_plateau_is_that_of_torch():
    nets, _ = initialise("sp", (3, 6, 2), 5, activation="relu", gain=2.0)
    X, Y = data((3, 2))
    rule = {"factor": 0.3, "patience": 2, "threshold": 0.02, "cooldown": 1, "min_lr": 1e-3}
    run = train(nets, X, Y, steps=400, lr=0.12, batch=10, plateau=Plateau(**rule))
    found = []
    for i in range(5):
        weights, rates = alone(nets.select(i), X, Y, 400, 0.12, 10, 0.0, (1.0, 1.0), run.seeds[i], plateau=rule)
        found.append(rates[0])
        for ours, theirs in zip(run.ensemble.weights, weights):
            torch.testing.assert_close(ours[i], theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(run.rates, torch.tensor(found, dtype=torch.float64))
    assert len(set(found)) > 1, "the members fall at different times"


def test_a_finished_member_leaves_and_the_others_go_on():
    nets, _ = initialise("sp", (2, 40, 1), 6)
    X, Y = data((2, 1))
    rule = Plateau(patience=3, threshold=1e-3, final=1e-3)
    run = train(nets, X, Y, steps=4000, lr=0.1, batch=25, plateau=rule)
    assert run.taken.max() < 4000
    assert run.taken.unique().numel() > 1
    torch.testing.assert_close(run.rates, torch.full_like(run.rates, 1e-3))
    for i in (0, 4):
        again = train(nets.select(i), X, Y, steps=4000, lr=0.1, batch=25, plateau=rule, seeds=[run.seeds[i]])
        assert again.taken[0] == run.taken[i]
        torch.testing.assert_close(again.ensemble.weights[0][0], run.ensemble.weights[0][i], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
@pytest.mark.parametrize("batch", [None, 10])
def test_divergence_is_recorded_and_stays_alone(activation, batch):
    nets, _ = initialise("sp", (3, 9, 2), 4, activation=activation)
    X, Y = data((3, 2))
    lr = torch.tensor([0.02, 50.0, 0.02, 3.0], dtype=torch.float64)
    run = train(nets, X, Y, steps=3000, lr=lr, batch=batch, seeds=range(4) if batch else None, record=[20, 2000])
    assert run.diverged.tolist() == [False, True, False, True]
    assert (run.taken == torch.where(run.diverged, run.diverged_at - 1, 3000)).all()
    assert run.losses[run.diverged, -1].isinf().all()
    assert all(W.isfinite().all() for W in run.ensemble.weights), "the last finite parameters are kept"
    calm = train(nets.select([0, 2]), X, Y, steps=3000, lr=0.02, batch=batch, seeds=[0, 2] if batch else None)
    for ours, theirs in zip(run.ensemble.weights, calm.ensemble.weights):
        torch.testing.assert_close(ours[[0, 2]], theirs, rtol=1e-11, atol=1e-13)
    for i in (1, 3):
        t = int(run.diverged_at[i])
        weights, _ = alone(nets.select(i), X, Y, t, lr[i].item(), batch, 0.0, (1.0, 1.0), i)
        assert not all(W.isfinite().all() for W in weights), "one more step is not finite in plain torch either"


def test_stops_at_a_loss_or_a_gradient():
    nets, _ = initialise("sp", (2, 6, 2), 3)
    X, Y = data((2, 2))
    run = train(nets, X, Y, steps=100_000, lr=0.1, stop_loss=1e-6, look=10)
    assert (run.taken % 10 == 0).all()
    assert (run.ensemble.losses(X, Y) <= 1e-6).all()
    run = train(nets, X, Y, steps=100_000, lr=0.1, stop_gradient=1e-8, look=10)
    norms = torch.stack([g.square().sum((-2, -1)) for g in run.ensemble.gradients(X, Y)]).sum(0).sqrt()
    assert (norms <= 1.01e-8).all()
    assert (norms > 1e-10).all()


def test_a_run_can_be_watched():
    nets, _ = initialise("sp", (2, 30, 1), 3)
    X, Y = data((2, 1))
    seen = {}
    run = train(nets, X, Y, steps=30, lr=0.05, record=10, watch=seen.__setitem__)
    assert list(seen) == run.steps.tolist() == [0, 10, 20, 30]
    for column, net in zip(run.losses.T, seen.values()):
        torch.testing.assert_close(net.losses(X, Y), column, rtol=1e-9, atol=1e-25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0; expected at least 1"),
        ({"batch": 51}, "batch is 51 for 50 samples"),
        ({"rates": [1.0]}, "1 rates came with 2 layers"),
        ({"batch": 5, "seeds": [1]}, "1 seeds came with 3 members"),
        ({"loss": "l1"}, "loss is 'l1'; expected one of half_mse, mse"),
    ],
)
def test_refusals(change, message):
    nets, _ = initialise("sp", (2, 4, 1), 3)
    with pytest.raises(CurvatureError, match=message):
        train(nets, *data((2, 1)), **({"steps": 5, "lr": 0.1} | change))


def test_refuses_data_that_does_not_fit():
    nets = Ensemble((torch.ones(2, 3, 2), torch.ones(2, 1, 3)))
    with pytest.raises(CurvatureError, match=r"X has shape \(5, 3\)"):
        nets.outputs(torch.ones(5, 3))
    with pytest.raises(CurvatureError, match=r"X is torch\.float64 on cpu, the weights torch\.float32"):
        nets.outputs(torch.ones(5, 2, dtype=torch.float64))
    with pytest.raises(CurvatureError, match="weight 2 has shape"):
        Ensemble((torch.ones(2, 3, 2), torch.ones(2, 1, 4)))
