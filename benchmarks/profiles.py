"""What each profile of `eigenscape reproduce` costs, from a few cells of every experiment, each in a process of its own.

    python benchmarks/profiles.py --profile smoke quick paper --cells 2 --most 20

Cells are spread evenly over an experiment's list, and are given so many seconds of processor time at most; one that needs more
counts as that much, and its total is marked as a lower bound. Writes benchmarks/results/profiles.md and .json.
"""

import argparse
import json
import os
import resource
import signal
import time
from fnmatch import fnmatchcase
from pathlib import Path

from eigenscape.experiments.machine import PROFILES, Plan
from eigenscape.experiments.machine.page import PAPERS
from eigenscape.experiments.machine.tasks import measure
from eigenscape.experiments.papers import registry
from eigenscape.report.numbers import duration

WARM = 3  # seconds; a cell that takes less is measured twice, since what is loaded at first use is no part of its cost
RESULTS = Path(__file__).parent / "results"


def spread(tasks, count):
    """Some tasks of a list: one in the middle of each of so many equal parts."""
    count = min(count, len(tasks))
    return [tasks[int((i + 0.5) * len(tasks) / count)] for i in range(count)]


def cost(task, most):
    """Seconds of processor time of a cell, and whether it came to its end within them."""
    results, into = os.pipe()
    child = os.fork()
    if child == 0:
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + most, used + most + 5))
        os.write(into, repr(timed(task) if (first := timed(task)) < WARM else first).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(results) as answer:
        told = answer.read()
    _, status = os.waitpid(child, 0)
    if not told and os.waitstatus_to_exitcode(status) not in (-signal.SIGXCPU, -signal.SIGKILL):
        raise SystemExit(f"{task.experiment.name} failed at {task.cell}; does it need data? See: eigenscape data")
    return (float(told), True) if told else (float(most), False)


def timed(task):
    start = time.process_time()
    if measure(task).error is not None:
        os._exit(1)
    return time.process_time() - start


def sampled(profile, args):
    """Cost of every experiment of a profile, one after the other."""
    for experiment, tasks in Plan(registry.figures(), profile).experiments():
        if fnmatchcase(experiment.name, args.only):
            costs = [cost(task, args.most) for task in spread(tasks, args.cells)]
            mean = sum(seconds for seconds, _ in costs) / len(costs)
            whole = all(ended for _, ended in costs)
            print(
                f"{profile:6} {experiment.name:32} {len(tasks):6} cells, {'' if whole else '> '}{mean:8.2f} s each", flush=True
            )
            yield profile, experiment.name, len(tasks), mean * len(tasks), whole


def table(costs, about):
    """Lay out papers by profiles: cells and hours of one processor core."""
    papers = dict.fromkeys(name.partition("/")[0] for _, name, *_ in costs)
    lines = ["| paper | " + " | ".join(PROFILES) + " |", "|---|" + "---:|" * len(PROFILES)]
    for paper in [*papers, "all"]:
        cells = [_told([c for c in costs if c[0] == p and paper in ("all", c[1].partition("/")[0])]) for p in PROFILES]
        lines.append(f"| {PAPERS.get(paper, paper)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", about, ""])


def _told(costs):
    if not costs:
        return ""
    whole = all(c[4] for c in costs)
    return f"{sum(c[2] for c in costs)} cells, {'' if whole else 'over '}{duration(sum(c[3] for c in costs))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", nargs="+", default=PROFILES, choices=PROFILES)
    parser.add_argument("--only", default="*", help="a glob of names of experiments")
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--most", type=int, default=20)
    args = parser.parse_args()
    path = RESULTS / "profiles.json"
    order = [e.name for figure in registry.figures() for e in figure.experiments]
    before = json.loads(path.read_text()) if path.exists() else []
    known = {(p, name): (p, name, *rest) for p, name, *rest in before if name in order}
    about = (
        f"Time of one processor core without a GPU, extrapolated from {args.cells} of the cells of every experiment; 'over' "
        f"where one of them was stopped after {args.most} s. Divide by the number of workers."
    )
    for found in (found for profile in args.profile for found in sampled(profile, args)):
        known[found[:2]] = found
        costs = sorted(known.values(), key=lambda c: (PROFILES.index(c[0]), order.index(c[1])))
        path.write_text(json.dumps(costs, indent=1) + "\n")
        (RESULTS / "profiles.md").write_text(table(costs, about), encoding="utf-8")


if __name__ == "__main__":
    main()
