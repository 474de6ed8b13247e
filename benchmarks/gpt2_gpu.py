"""GPT-2 (124M) on one GPU: products by every engine, correctness first, then seconds and memory; eigenpairs, a density.

    PYTHONPATH=src python benchmarks/gpt2_gpu.py --out results [--only check,products,...] [--engines reverse,recorded,compiled]

The weights are random (no download); the costs do not depend on them.
"""

import argparse
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from functools import partial

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import eigenscape as es
from eigenscape.curvature.losses import next_token

DEVICE = torch.device("cuda")
MAKERS = {"H": es.hessian, "G": es.ggn}


def gpt2(layers=12, length=1024, dtype=torch.float32):
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers, n_positions=length, attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return GPT2LMHeadModel(config).to(DEVICE, dtype).eval()


def objective(model, batch, length, **options):
    tokens = torch.randint(0, 50257, (batch, length), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    return es.Objective(
        model, next_token, (tokens, tokens), forward=lambda m, x: m(x, use_cache=False).logits, check=False, **options
    )


def unit(n, k=None, seed=2, dtype=torch.float32):
    shape = (n,) if k is None else (n, k)
    v = torch.randn(shape, generator=torch.Generator(DEVICE).manual_seed(seed), device=DEVICE, dtype=dtype)
    return v / v.norm(dim=0)


def seconds(work, repeats=5, warm=2):
    for _ in range(warm):
        work()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def once(work):
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def fresh():
    gc.collect()
    torch.cuda.empty_cache()
    torch._dynamo.reset()
    torch.cuda.reset_peak_memory_stats()


def peak():
    return torch.cuda.max_memory_allocated() / 2**30


def gap(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm())


def check(record, engines):
    """Products in single precision (TF32 off and on) against double backward in float64, on two layers."""
    reference_objective = objective(gpt2(2, 256, torch.float64), 2, 256)
    v64 = unit(reference_objective.layout.size, dtype=torch.float64)
    expected = {kind: make(reference_objective, engine="reverse") @ v64 for kind, make in MAKERS.items()}
    del reference_objective
    small = objective(gpt2(2, 256), 2, 256)
    for engine in engines:
        for kind, make in MAKERS.items():
            fresh()
            op = make(small, engine=engine)
            for precision in ("highest", "high"):
                torch.set_float32_matmul_precision(precision)
                for _ in range(2):  # a compiled engine's first product is that of the program it is compared with, its
                    op @ v64.float()  # second is captured as a graph
                numbers = {"error": gap(op @ v64.float(), expected[kind]), "engine": op.engine}
                record(f"check {kind} {engine} {precision}", **numbers)


def products(record, engines):
    """One product, four at once, of H and GGN, on 8 x 1024 tokens with TF32."""
    torch.set_float32_matmul_precision("high")
    model = gpt2()
    obj = objective(model, 8, 1024)
    x, y = next(iter(obj.batches()))
    parameters = list(model.parameters())

    def gradient():
        return torch.autograd.grad(next_token(model(x, use_cache=False).logits, y), parameters)

    fresh()
    base = seconds(gradient)
    record("gradient, eager, fused attention", ms=1e3 * base, GiB=peak())
    for engine in engines:
        for kind, make in MAKERS.items():
            fresh()
            op = make(obj, engine=engine)
            numbers = product(op)
            record(f"{kind} v, {engine}", gradients=numbers["ms"] / 1e3 / base, **numbers)
            if engine == engines[-1]:
                spectrum(record, kind, op)
            op.release()


def first(record, _):
    """The first product of the compiled engine, in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, __file__, "--first-alone"]
        done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=True)
    record("first H v, compiled, empty caches", seconds=float(done.stdout.split()[-1]))


def first_alone():
    """Print its seconds."""
    torch.set_float32_matmul_precision("high")
    op = es.hessian(objective(gpt2(), 8, 1024), engine="compiled")
    v = unit(op.n)
    print(once(lambda: op @ v)[0])


def product(op):
    """Milliseconds and memory of one product and of four at once."""
    v, V = unit(op.n), unit(op.n, 4)
    first, _ = once(lambda: op @ v)
    building = peak()
    torch.cuda.reset_peak_memory_stats()
    single = seconds(lambda: op @ v)
    steady = peak()
    four, apart = float("nan"), float("nan")
    try:
        _, together = once(lambda: op @ V)
        apart = gap(together[:, 0], op @ V[:, 0])
        del together
        four = seconds(lambda: op @ V, 3, 1) / 4
    except torch.OutOfMemoryError:
        pass
    numbers = {
        "ms": 1e3 * single,
        "first_s": first,
        "peak_building_GiB": building,
        "peak_GiB": steady,
        "four_ms_each": 1e3 * four,
        "four_against_one": apart,
        "engine": op.engine,
    }
    return numbers


def long(record, engines):
    """Length 8192, batch 1, and a two-layer cut against float64 in blocks."""
    torch.set_float32_matmul_precision("high")
    fresh()
    obj = objective(gpt2(12, 8192), 1, 8192)
    H = es.hessian(obj, engine="uncached")
    v = unit(H.n)
    first, _ = once(lambda: H @ v)
    record("H v, length 8192, uncached", ms=1e3 * seconds(lambda: H @ v, 3, 0), first_s=first, peak_GiB=peak())
    del H, obj
    fresh()
    torch.set_float32_matmul_precision("highest")
    narrow = objective(gpt2(2, 8192), 1, 8192)
    found = es.hessian(narrow, engine="uncached") @ unit(narrow.layout.size)
    del narrow
    fresh()
    wide = objective(gpt2(2, 8192, torch.float64), 1, 8192)
    expected = es.hessian(wide, engine="uncached") @ unit(wide.layout.size).double()
    record("two layers, length 8192, against float64", error=gap(found, expected))


def spectrum(record, kind, op):
    """Top five eigenpairs to 1e-2, and of H a density of 100 steps."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    taken, pairs = once(partial(es.eigsh, op, k=5, tol=1e-2, generator=generator))
    record(f"top 5 of {kind}", seconds=taken, matvecs=pairs.num_matvecs, values=pairs.values.tolist(), status=pairs.status)
    if kind == "H":
        taken, density = once(partial(es.density, op, steps=100, probes=1, generator=generator))
        record("density of H, 100 steps, 1 probe", seconds=taken, support=list(density.support))


PARTS = {"check": check, "first": first, "products": products, "long": long}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--engines", default="reverse,compiled")
    parser.add_argument("--first-alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_alone:
        first_alone()
        return
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []

    def record(name, **numbers):
        rows.append({"what": name, **numbers})
        (options.out / "gpt2_gpu.json").write_text(
            json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, indent=1)
        )

    for part in options.only.split(","):
        start = time.perf_counter()
        try:
            PARTS[part](record, options.engines.split(","))
        except Exception:
            print(f"--- {part} failed")
            traceback.print_exc()
        print(f"{part}: {time.perf_counter() - start:.0f} s", flush=True)
    for row in rows:
        print(
            ", ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" if k != "what" else f"{v}:" for k, v in row.items()
            )
        )


if __name__ == "__main__":
    main()
