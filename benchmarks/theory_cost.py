"""What exact spectra cost: time and memory against the width, whole spectra of large networks, and batches.

Run it with `python benchmarks/theory_cost.py --threads 2`; it writes `results/theory_cost.json` and `results/theory_cost.md`.
Each measurement runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

import eigenscape as es
from eigenscape.linop import DeepLinear

OUT = Path(__file__).parent / "results"
WIDTHS = [10**3, 10**4, 10**5, 10**6]


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_layer(K, m, D, n):
    """Weights at their usual scale, inputs whose variances decay, and noisy targets."""
    X = normal(1, n, D) * torch.arange(1, D + 1).double().rsqrt()
    return normal(2, K, m) / m**0.5, normal(3, m, D) / D**0.5, X, normal(4, n, K)


def timed(function, at_least=0.5, at_most=7):
    """Best wall time of several runs, after one to warm up unless a run takes long."""
    times, begin = [], time.perf_counter()
    while len(times) < 2 or (len(times) < at_most and time.perf_counter() - begin < at_least):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
        if times[-1] > 20:
            break
    return min(times), result


def scalar(name, m):
    w, v, z = normal(1, m) / m**0.5, normal(2, m), normal(5, 2 * m)
    x, y = normal(3, 100), normal(4, 100)
    closed_form = getattr(es.theory, name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def run():
        spectrum = closed_form(w, v, x, y)
        largest_bulk = int((spectrum.multiplicities * torch.tensor([la == "bulk" for la in spectrum.labels])).argmax())
        return spectrum, spectrum.project(largest_bulk, z)

    seconds, (spectrum, _) = timed(run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "parameters": spectrum.n,
        "seconds": seconds,
        "extra_megabytes": (peak - before) / 1024,
        "sharpness": spectrum.max.item(),
    }


def whole(K, m, D, n):
    W, V, X, Y = two_layer(K, m, D, n)
    seconds, spectrum = timed(lambda: es.theory.two_layer_linear(W, V, X, Y))
    trace = es.theory.two_layer_linear_bounds(W, V, X, Y).trace.item()
    return {
        "parameters": spectrum.n,
        "seconds": seconds,
        "reduced_size": int(spectrum.multiplicities[[i for i, la in enumerate(spectrum.labels) if la != "bulk"]].eq(1).sum()),
        "largest": spectrum.max.item(),
        "smallest": spectrum.min.item(),
        "trace_error": abs(spectrum.trace.item() / trace - 1),
    }


def extremes(K, m, D, n):
    W, V, X, Y = two_layer(K, m, D, n)

    def run():
        operator = DeepLinear.from_data([V, W], X, Y)
        return es.eigsh(operator, k=1, which="both", generator=torch.Generator().manual_seed(0))

    seconds, pairs = timed(run)
    return {
        "seconds": seconds,
        "largest": pairs.values.max().item(),
        "smallest": pairs.values.min().item(),
        "matvecs": int(pairs.num_matvecs),
    }


def batch(networks, K, m, D, n):
    W, V, X, Y = normal(1, networks, K, m), normal(2, networks, m, D), normal(3, networks, n, D), normal(4, networks, n, K)
    seconds, spectrum = timed(lambda: es.theory.two_layer_linear(W, V, X, Y).values)
    loop, _ = timed(lambda: [es.theory.two_layer_linear(*member).values for member in zip(W, V, X, Y)])
    return {"networks": networks, "seconds": seconds, "seconds_one_by_one": loop, "finite": bool(spectrum.isfinite().all())}


def dense(K, m, D, n):
    """The same Hessian formed from its operator, and all its eigenvalues: what the closed form saves."""
    W, V, X, Y = two_layer(K, m, D, n)
    operator = DeepLinear.from_data([V, W], X, Y)
    H = operator @ torch.eye(operator.shape[-1], dtype=torch.float64)
    seconds, values = timed(lambda: torch.linalg.eigvalsh(H))
    exact = es.theory.two_layer_linear(W, V, X, Y).expand()
    error = ((exact - values).abs().max() / values.abs().max()).item()
    return {"parameters": len(values), "seconds": seconds, "relative_error": error}


CASES = {
    **{f"{name} {m}": (scalar, (name, m)) for name in ("scalar_linear", "scalar_relu") for m in WIDTHS},
    "whole D=150 K=1 m=150": (whole, (1, 150, 150, 1000)),
    "dense D=40 K=1 m=40": (dense, (1, 40, 40, 300)),
    "whole D=40 K=1 m=40": (whole, (1, 40, 40, 300)),
    "dense D=60 K=1 m=60": (dense, (1, 60, 60, 300)),
    "batch of 200": (batch, (200, 2, 16, 4, 50)),
    "extremes D=784 K=10 m=64": (extremes, (10, 64, 784, 5000)),
    "whole D=784 K=10 m=64": (whole, (10, 64, 784, 5000)),
}


def one(name):
    function, arguments = CASES[name]
    return function(*arguments)


def table(results):
    """Markdown: what was predicted, and what was found."""
    lines = ["# What exact spectra cost", ""]
    machine = results["machine"]
    lines += [f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}.", ""]
    lines += ["| case | parameters | predicted | found |", "|---|---|---|---|"]
    for name, r in results["cases"].items():
        lines.append(f"| {name} | {r.get('parameters', '')} | {predicted(name, results['cases'])} | {found(r)} |")
    return "\n".join(lines) + "\n"


def predicted(name, cases):
    if name.startswith("scalar"):
        form, m = name.split()
        top = cases.get(f"{form} {WIDTHS[-1]}")
        share = int(m) / WIDTHS[-1]
        return (
            f"linear in the width: {share * top['seconds']:.2g} s from the largest"
            if top and share < 1
            else "linear in the width"
        )
    return {
        "whole D=150 K=1 m=150": "under 0.5 s: a reduced matrix of size 451 at most",
        "extremes D=784 K=10 m=64": "under 2 s",
        "whole D=784 K=10 m=64": "a reduced matrix of size 9020: tens of seconds to minutes",
        "batch of 200": "one call, faster than 200",
    }.get(name, "cubic in the parameters" if name.startswith("dense") else "cubic in the inputs, linear in the width")


def found(r):
    text = f"{r['seconds']:.3g} s"
    for key, sentence in {
        "extra_megabytes": "{:.0f} MB more",
        "reduced_size": "reduced size {}",
        "trace_error": "trace off by {:.0e}",
        "relative_error": "dense and exact differ by {:.0e} of the radius",
        "matvecs": "{} products",
        "seconds_one_by_one": "one by one {:.3g} s",
        "largest": "largest {:.9g}",
        "smallest": "smallest {:.9g}",
    }.items():
        if key in r:
            text += ", " + sentence.format(r[key])
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--case", help="run one case here and print it as JSON")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.case:
        print(json.dumps(one(options.case)))
        return
    path = options.out / "theory_cost.json"
    known = json.loads(path.read_text())["cases"] if options.only and path.exists() else {}
    for name in CASES:
        if options.only not in name:
            continue
        command = [sys.executable, __file__, "--threads", str(options.threads), "--case", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        known[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, found(known[name]), flush=True)
    machine = {
        "processor": _processor(),
        "threads": options.threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    results = {"machine": machine, "cases": {name: known[name] for name in CASES if name in known}}
    options.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    (options.out / "theory_cost.md").write_text(table(results))


def _processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
