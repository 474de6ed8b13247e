"""The three small networks of `eigenscape bench` on a GPU: products by every engine, checked first, then timed.

PYTHONPATH=src python benchmarks/small_gpu.py --out results
"""

import argparse
import json
import pathlib
import statistics
import time

import torch

import eigenscape as es
from eigenscape.experiments.bench.workloads import WORKLOADS, workload

ENGINES = ("reverse", "recorded", "compiled", "auto")
MAKERS = {"H": es.hessian, "G": es.ggn}


def seconds(work, repeats=9, warm=4):
    times = []
    for _ in range(warm + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[warm:])


def measured(name, kind, make, engine, unit):
    """One engine on one network: its error, milliseconds of one product and of eight at once, in gradients too."""
    op = make(workload(name, device="cuda"), engine=engine)
    exact = make(workload(name, device="cuda", dtype=torch.float64), engine="reverse")
    V = torch.randn(op.n, 8, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
    start = time.perf_counter()
    op @ V[:, 0]
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    for _ in range(30):  # the automatic engine makes up its mind, graphs are captured
        op @ V[:, 0]
    op @ V
    expected = exact @ V.double()
    together = float(((op @ V) - expected).norm() / expected.norm())
    alone = float(((op @ V[:, 0]) - expected[:, 0]).norm() / expected[:, 0].norm())
    one, eight = seconds(lambda: op @ V[:, 0]), seconds(lambda: op @ V) / 8
    return {
        "what": f"{name}, {kind} v, {engine}",
        "error": max(together, alone),
        "ms": 1e3 * one,
        "gradients": one / unit,
        "eight_ms_each": 1e3 * eight,
        "first_s": first,
        "engine": op.engine,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--engines", default=",".join(ENGINES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    rows = []
    for name in WORKLOADS:
        objective = workload(name, device="cuda")
        x, y = next(iter(objective.batches()))
        parameters = list(objective.model.parameters())

        def gradient(objective=objective, x=x, y=y, parameters=parameters):
            return torch.autograd.grad(objective.criterion(objective.model(x), y), parameters)

        unit = seconds(gradient)
        rows.append({"what": f"{name}, gradient", "ms": 1e3 * unit})
        for kind, make in MAKERS.items():
            for engine in options.engines.split(","):
                rows.append(measured(name, kind, make, engine, unit))
                found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
                (options.out / "small_gpu.json").write_text(json.dumps(found, indent=1))
                print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{v}" for k, v in rows[-1].items()), flush=True)
        start = time.perf_counter()
        pairs = es.eigsh(es.hessian(objective), 5, tol=1e-3)
        rows.append({"what": f"{name}, five largest of H to 1e-3", "seconds": time.perf_counter() - start})
        print(rows[-1], pairs.status, flush=True)


if __name__ == "__main__":
    main()
