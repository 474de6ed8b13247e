"""A figure that takes milliseconds: the scalar net's sharpness where gradient descent ends, over the learning rate."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from eigenscape.experiments.machine import Agreement, Experiment, Figure, Verdict, stream
from eigenscape.report.style import canvas, styled
from eigenscape.theory import scalar_linear


@dataclass(frozen=True)
class Run:
    rate: float
    seed: int
    steps: int = 60


def cells(profile):
    return [Run(i / 20, seed) for i in range(1, 1 + {"smoke": 4, "quick": 12, "paper": 60}[profile]) for seed in range(2)]


def measure(cell, device):
    """Train a network of width 5 by gradient descent; one row per ten steps."""
    x, y, w, v = (torch.randn(n, generator=stream(cell, name), dtype=torch.float64) for n, name in zip((20, 20, 5, 5), "xywv"))
    rows = []
    for step in range(cell.steps + 1):
        if step % 10 == 0:
            rows.append({"step": step, "top": scalar_linear(w, v, x, y).max, "loss": 0.5 * ((w @ v) * x - y).square().mean()})
        slope = (x * ((w @ v) * x - y)).mean()
        w, v = w - cell.rate * slope * v, v - cell.rate * slope * w
    return rows


EXPERIMENT = Experiment("small/descent", cells, measure)


@styled
def draw(rows):
    fig = canvas(4, 3)
    ax = fig.subplots()
    last = rows.where(step=60)
    ax.scatter(last["rate"], last["top"], s=9)
    ax.set(xlabel="learning rate", ylabel="sharpness")
    return fig


def claims(rows):
    stable = rows.where(step=60)["top"] <= 2 / rows.where(step=60)["rate"]
    return [
        Verdict("ends below 2 / learning rate", "ours", "always", f"{stable.sum()} of {stable.size}", Agreement.AGREES),
        Verdict("a claim <without> numbers", "[small] Sec. 1", "", "", Agreement.OPEN, "nothing is said"),
    ]


FIGURE = Figure("small/fig1", "Sharpness at the end", "[small] Fig. 1", [EXPERIMENT], draw, claims, "Dots are networks.")


@dataclass(frozen=True)
class Troubled:
    what: str
    number: int = 0


def trouble(cell, device):
    if cell.what == "raises":
        raise ZeroDivisionError("no\nnumber")
    if cell.what == "tensor":
        return [{"values": torch.zeros(3)}]
    if cell.what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.what.startswith("once"):  # its file says that it has been tried
        path = Path(cell.what.removeprefix("once "))
        if not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if cell.what.startswith("unless") and not Path(cell.what.removeprefix("unless ")).exists():
        raise FileNotFoundError("not yet")  # works as soon as there is a file
    return [{"value": float(cell.number), "nan": float("nan"), "inf": -float("inf"), "zero": -0.0, "none": None}]


def troubled(*whats):
    """A figure whose cells have these troubles."""
    experiment = Experiment("small/trouble", lambda profile: [Troubled(w, i) for i, w in enumerate(whats)], trouble)
    return Figure("small/trouble", "Trouble", "ours", [experiment], draw_values, lambda rows: [])


@styled
def draw_values(rows):
    fig = canvas(4, 3)
    fig.subplots().plot(rows["value"])
    return fig


@dataclass(frozen=True)
class Slow:
    number: int
    seconds: float
    journal: str


def slow(cell, device):
    """Take a while, and note in a file of one's own that the measurement has ended."""
    draws = torch.randn(50, generator=stream(cell), dtype=torch.float64).cumsum(0)
    time.sleep(cell.seconds)
    note(cell.journal, f"{cell.number}\n")
    return [{"step": step, "value": value, "threads": torch.get_num_threads()} for step, value in enumerate(draws)]


def note(journal, line):
    """Add a line to a file in one step, whoever else does the same."""
    file = os.open(journal, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, line.encode())
    os.close(file)


def slowly(count, seconds, journal):
    """A figure of so many cells, each with fifty random numbers; `journal` has a line for each that was measured."""
    experiment = Experiment("small/slow", lambda profile: [Slow(i, seconds, str(journal)) for i in range(count)], slow)
    return Figure("small/slow", "Slowly", "ours", [experiment], draw_values, lambda rows: [])
