"""What two hundred networks cost: trained and measured as one stacked computation, against a plain loop over the same networks.

Both ways start from the same weights, meet the same minibatches and compute in float64, so that every weight and every
sharpness can be compared. The loop is measured on some of the networks, before and after the stack, and scaled to all. Times
are processor time on one thread: small matrices gain nothing from more, and a busy machine does not decide.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from scipy.sparse.linalg import eigsh as arpack
from torch import Tensor, nn

from ...curvature import Objective
from ...ensembles import Ensemble, Run, initialise, sharpness, train
from ..machine.tasks import computing_on
from ..synthetic import teacher
from . import peers
from .clock import failure, timed
from .plain import Problem
from .suite import Bars, Row, Say, Suite

D, WIDTH, SAMPLES, BATCH, LR, TOL = 10, 100, 1024, 128, 0.05, 1e-6
MEMBERS, STEPS, LOOPED = 200, 2000, 8
ITERATIONS = 30  # of hessian-eigenthings, which does not stop by itself: enough for six digits here
RIGHT = 1e-5  # relative error up to which a sharpness counts as the same
TARGET = 20  # how many times faster the stack has to be

Measure = Callable[[Problem], float]


def by_eigenthings(problem: Problem) -> float:
    """Sharpness by hessian-eigenthings' Lanczos."""
    from hessian_eigenthings import lanczos

    found = lanczos(peers.eigenthings(problem), k=1, max_iter=ITERATIONS, tol=TOL, which="LA", seed=0)
    return float(found.eigenvalues[0])


def by_curvlinops(problem: Problem) -> float:
    """Sharpness by SciPy's ARPACK on the operator of curvlinops."""
    tolerance: Any = TOL
    return float(arpack(peers.curvlinops(problem).to_scipy(), 1, which="LA", tol=tolerance, return_eigenvectors=False)[0])


@dataclass
class Loop:
    """What the plain loop has spent, and what it found, member by member."""

    training: list[float] = field(default_factory=list)
    measuring: dict[str, list[float]] = field(default_factory=lambda: {"hessian-eigenthings": [], "curvlinops + ARPACK": []})
    weights: dict[int, Tensor] = field(default_factory=dict)
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def go(self, member: int, start: Ensemble, X: Tensor, Y: Tensor, steps: int, seed: int) -> None:
        """Train one network and let everybody measure it."""
        model = nn.Sequential(*(nn.Linear(W.shape[2], W.shape[1], bias=False).double() for W in start.weights))
        with torch.no_grad():
            for parameter, W in zip(model.parameters(), start.weights):
                parameter.copy_(W[member])
        lap, _ = timed(partial(by_hand, model, X, Y, steps, seed))
        self.training.append(lap.cost)
        self.weights[member] = torch.cat([p.detach().flatten() for p in model.parameters()])
        criterion = nn.MSELoss()
        problem = Problem(Objective(model, criterion, (X, Y)), model, criterion, [(X, Y)])
        measures: dict[str, Measure] = {"hessian-eigenthings": by_eigenthings, "curvlinops + ARPACK": by_curvlinops}
        for name, measure in measures.items():
            try:
                lap, value = timed(partial(measure, problem))
            except Exception as error:  # whatever another library may raise
                self.notes[name] = failure(error)
                continue
            self.measuring[name].append(lap.cost)
            self.values.setdefault(name, {})[member] = value


def by_hand(model: nn.Module, X: Tensor, Y: Tensor, steps: int, seed: int) -> None:
    """Train as a tutorial does."""
    criterion, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=LR)
    stream, done = torch.Generator().manual_seed(seed), 0
    while done < steps:
        for rows in torch.randperm(len(X), generator=stream).split(BATCH)[: steps - done]:
            optimizer.zero_grad()
            criterion(model(X[rows]), Y[rows]).backward()
            optimizer.step()
            done += 1


def run(say: Say, brief: bool) -> list[Row]:
    """Half of the loop, the stack, the other half."""
    members, steps, looped = (6, 40, 2) if brief else (MEMBERS, STEPS, LOOPED)
    g = torch.Generator().manual_seed(0)
    nets, _ = initialise("sp", [D, WIDTH, D], members, g)
    X, Y = teacher("linear", SAMPLES, D, D, g)
    seeds, loop = torch.randint(2**62, (members,), generator=g).tolist(), Loop()
    chosen = range(0, members, members // looped)
    with computing_on(1):
        Loop().go(0, nets, X, Y, 2, seeds[0])  # so that nobody pays for what starts once
        sharpness(train(nets.select(0), X, Y, steps=2, lr=LR, batch=BATCH, seeds=seeds[:1]).ensemble, X, Y)
        for member in chosen[: looped // 2]:
            say(f"the loop: network {member} of {members}")
            loop.go(member, nets, X, Y, steps, seeds[member])
        say(f"the stack: {members} networks, {steps} steps")
        taught, done = timed(lambda: train(nets, X, Y, steps=steps, lr=LR, batch=BATCH, loss="mse", seeds=seeds))
        measured, top = timed(lambda: sharpness(done.ensemble, X, Y, loss="mse", tol=TOL, verify=False).values[:, 0])
        for member in chosen[looped // 2 :]:
            say(f"the loop: network {member} of {members}")
            loop.go(member, nets, X, Y, steps, seeds[member])
    ours = {"training": taught.cost, "measuring": measured.cost, "seconds": taught.cost + measured.cost}
    rows = [{"contestant": "eigenscape, stacked", "networks": members, **ours, "right": True, "note": done.status}]
    return rows + list(_loops(loop, done, top, members, ours["seconds"]))


def _loops(loop: Loop, done: Run, top: Tensor, members: int, ours: float) -> Iterator[Row]:
    """The loop with either library, scaled to all members, and how far its numbers are from ours."""
    flat = done.ensemble.flat()
    weights = max(float((flat[i] - w).abs().max() / w.abs().max()) for i, w in loop.weights.items())
    for name, laps in loop.measuring.items():
        row: Row = {"contestant": f"torch loop, {name}", "networks": len(loop.weights)}
        if not laps:
            yield row | {"note": loop.notes[name]}
            continue
        training, measuring = (members * sum(part) / len(part) for part in (loop.training, laps))
        error = max(abs(float(top[i]) / value - 1) for i, value in loop.values[name].items())
        times = (training + measuring) / ours
        yield row | {
            "training": training,
            "measuring": measuring,
            "seconds": training + measuring,
            "times": times,
            "weights": weights,
            "sharpness": error,
            "right": weights < 1e-9 and error < RIGHT,
            "note": f"scaled to {members} networks; the aim, {TARGET} times, is {'met' if times >= TARGET else 'missed'}",
        }


SUITE = Suite(
    name="ensembles",
    title=f"{MEMBERS} networks as one",
    run=run,
    columns=("contestant", "networks", "training", "measuring", "seconds", "times", "weights", "sharpness", "right", "note"),
    notes=(
        f"Two linear layers of width {WIDTH}, D = K = {D}, {STEPS:,} steps of SGD on minibatches of {BATCH} of {SAMPLES:,} "
        "samples, then the sharpness on all of them; float64.",
        "training, measuring, seconds: processor time on one thread for all networks; the loop is measured on some of them, "
        "half before and half after the stack, and scaled. times: over the stack.",
        f"weights, sharpness: largest relative distance between loop and stack; right: below 1e-9 and {RIGHT:g}. Neither way "
        "searches for eigenvalues that a random start could have missed.",
        f"Predicted: at least {TARGET} times faster, as a step of one small network is mostly the cost of calling, and two "
        "wide linear layers cost what D + K neurons cost.",
    ),
    bars=Bars("seconds", f"{MEMBERS} networks trained and measured, in seconds of one processor", panels=()),
)
