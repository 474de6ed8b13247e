"""Blockwise attention on one GPU: right first, then its price beside plain and fused attention.

    PYTHONPATH=src python benchmarks/attention_gpu.py --out out/attention [--sweep tf32:64 ...] [--skip-checks]

`--sweep` times every kernel with many block sizes and prints the best (about four minutes of
compilation each). Everything fails softly, case by case.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import multiprocessing
import time
import traceback
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from eigenscape.curvature.attention import attention, launch
from eigenscape.curvature.attention.formulas import FORMULAS
from eigenscape.curvature.attention.tiles import tiled

TOLERANCE = {"ieee": 1e-5, "tf32": 4e-3, "bf16": 3e-2, "fp16": 5e-3}
DTYPES = {"ieee": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MASKS = ("none", "causal", "bool", "float")
DEVICE = "cpu" if launch.interpreted() else "cuda"
Report = list[str]


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def allow(precision: str) -> None:
    """Let float32 products use the matrix units, or not."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def make_mask(kind: str, lead: tuple[int, ...], L: int, W: int) -> torch.Tensor | None:
    """A mask that all heads of a batch entry share, with a row that sees nothing."""
    if kind in ("none", "causal"):
        return None
    mask = torch.rand(lead[0], 1, L, W, device=DEVICE) < 0.7
    mask[:, :, 1] = False
    return mask if kind == "bool" else torch.randn(lead[0], 1, L, W, device=DEVICE).masked_fill(~mask, -torch.inf)


def arguments(which: str, q, k, v, O, l, M, batch: int = 0) -> list[torch.Tensor]:
    """Fresh arguments of a formula; tangents have one more axis if batched."""
    more = (batch,) if batch else ()

    def like(t: torch.Tensor) -> torch.Tensor:
        return torch.randn(*more, *t.shape, device=t.device, dtype=t.dtype)

    D, G = torch.randn_like(l), torch.randn_like(O)
    qt, kt, vt, lt, Dt, Gt = (like(t) for t in (q, k, v, l, D, G))
    shared = [t.unsqueeze(0) if batch else t for t in (q, k, v, O, l, M, D, G)]
    q, k, v, O, l, M, D, G = shared
    return {
        "forward": [q, k, v],
        "forward_tangent": [q, O, l, M, qt, k, v, kt, vt],
        "backward": [q, l, M, D, G, k, v],
        "backward_tangent": [q, l, M, D, G, qt, lt, Dt, Gt, k, v, kt, vt],
        "backward_cotangent": [q, l, M, D, G, qt, k, v, kt, vt],
    }[which]


def check_formulas(precision: str, kind: str, E: int, V: int, L: int, W: int, batch: int = 0) -> Report:
    """Every kernel against the formulas in float64 and plain PyTorch."""
    torch.manual_seed(E + L)
    allow(precision)
    lead, dtype, lines = (2, 3), DTYPES[precision], []
    q, k, v = (torch.randn(*lead, n, d, device=DEVICE, dtype=dtype) for n, d in ((L, E), (W, E), (W, V)))
    mask = make_mask(kind, lead, L, W)
    exact_mask = mask.double() if mask is not None and mask.is_floating_point() else mask
    scale, causal = E**-0.5, kind == "causal"
    O, l, M = tiled("forward", [t.double() for t in (q, k, v)], exact_mask, causal, scale)
    O, l, M = O.to(dtype), l.float(), M.float()
    if batch:
        mask = None if mask is None else mask[None]
        exact_mask = None if exact_mask is None else exact_mask[None]
    for which in FORMULAS:
        given = arguments(which, q, k, v, O, l, M, batch)
        started = time.perf_counter()
        found = launch.fused(which, given, mask, causal, scale)
        synchronize()
        seconds = time.perf_counter() - started
        exact = tiled(which, [t.double() for t in given], exact_mask, causal, scale)
        worst = 0.0
        for a, b in zip(found, exact, strict=True):
            finite = b.isfinite()
            agree = a.shape == b.shape and bool((a.isfinite() == finite).all())
            error = float((a.double() - b)[finite].norm() / (b[finite].norm() + 1e-30)) if agree else float("nan")
            worst = max(worst, error) if error == error else float("nan")
        good = worst < TOLERANCE[precision]
        name = f"{precision} {kind} E{E} V{V} {L}x{W}{f' batch {batch}' if batch else ''}"
        lines.append(f"{'ok  ' if good else 'BAD '} {name:34s} {which:20s} {worst:.1e}  first call {seconds:5.1f} s")
    return lines


def plain(q, k, v, mask=None, *, causal=False):
    """Torch's own formula."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal)


def check_modes(precision: str, kind: str) -> Report:
    """Second derivatives in every mode of differentiation against float64 plain attention."""
    torch.manual_seed(1)
    allow(precision)
    shape, dtype, lines = (2, 3, 77, 64), DTYPES[precision], []
    x, t = ([torch.randn(shape, device=DEVICE, dtype=dtype) for _ in range(3)] for _ in range(2))
    weights = torch.randn(shape, device=DEVICE, dtype=dtype)
    mask, causal = make_mask(kind, (2, 3), 77, 77), kind == "causal"

    def loss(f):
        def value(*at):
            B = mask.to(at[0].dtype) if mask is not None and mask.is_floating_point() else mask
            return (f(*at, B, causal=causal).sin() * weights.to(at[0].dtype)).sum()

        return value

    def double_backward(f, x, t):
        at = [a.clone().requires_grad_() for a in x]
        g = torch.autograd.grad(loss(f)(*at), at, create_graph=True)
        return g, torch.autograd.grad(g, at, t, retain_graph=True), at

    _, exact, _ = double_backward(plain, [a.double() for a in x], [a.double() for a in t])
    gradient = torch.func.grad(loss(attention), (0, 1, 2))
    block = tuple(torch.stack([a, 2 * a]) for a in t)
    g, product, at = double_backward(attention, x, t)
    half = [2 * a for a in exact]
    found = {
        "double backward": (product, exact),
        "jvp of gradient": (torch.func.jvp(gradient, tuple(x), tuple(t))[1], exact),
        "vjp of gradient": (torch.func.vjp(gradient, *x)[1](tuple(t)), exact),
        "linearised": (torch.func.linearize(gradient, *x)[1](*t), exact),
        "block of jvp": ([a[1] for a in torch.func.vmap(lambda *v: torch.func.jvp(gradient, tuple(x), v)[1])(*block)], half),
        "block of backward": ([a[1] for a in torch.autograd.grad(g, at, block, is_grads_batched=True)], half),
    }
    for name, (ours, theirs) in found.items():
        error = max(float((a.double() - b).norm() / b.norm()) for a, b in zip(ours, theirs))
        good = error < 3 * TOLERANCE[precision]
        lines.append(f"{'ok  ' if good else 'BAD '} {precision} {kind:8s} {name:20s} {error:.1e}")
    return lines


def guarded(function, *args) -> Report:
    """The lines of a check, or its whole error."""
    try:
        return function(*args)
    except Exception:
        return [f"FAIL {function.__name__}{args}", *traceback.format_exc().splitlines()[-30:]]


def checks(workers: int) -> Report:
    """All checks, in as many processes, since compilation takes longest."""
    cases = [(check_formulas, "ieee", kind, 64, 64, 203, 203) for kind in MASKS]
    cases += [(check_formulas, p, "causal", E, E, 203, 203) for p in ("ieee", "tf32", "bf16") for E in (16, 32, 128)]
    cases += [(check_formulas, "tf32", kind, 64, 64, 203, 331) for kind in ("none", "causal")]
    cases += [(check_formulas, "tf32", "causal", 64, 64, 331, 203), (check_formulas, "tf32", "none", 40, 72, 33, 65)]
    cases += [(check_formulas, "bf16", "causal", 64, 64, 1024, 1024), (check_formulas, "fp16", "bool", 64, 64, 129, 129)]
    cases += [(check_formulas, "tf32", kind, 64, 64, 130, 127, 3) for kind in MASKS]
    cases += [(check_modes, p, kind) for p, kind in (("ieee", "causal"), ("ieee", "float"), ("tf32", "bool"), ("bf16", "none"))]
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return [line for future in [pool.submit(guarded, *case) for case in cases] for line in future.result()]


def milliseconds(function, repeat: float = 200.0) -> float:
    """Median time of a call."""
    from triton.testing import do_bench

    return float(do_bench(function, warmup=50, rep=int(repeat), return_mode="median"))


CONFIGURATIONS = [
    (rows, columns, warps, stages)
    for rows, columns, warps, stages in itertools.product((32, 64, 128), (32, 64, 128), (4, 8), (1, 2, 3))
    if rows * columns <= 64 * 128 and (warps == 4 or rows * columns >= 64 * 64) and (stages < 3 or rows * columns <= 64 * 64)
]


def launches(precision: str, E: int, length: int, batch: int) -> list[tuple]:
    """The arguments of every kernel launch at one size."""
    allow(precision)
    dtype = DTYPES[precision]
    q, k, v = (torch.randn(batch, 12, length, E, device=DEVICE, dtype=dtype) for _ in range(3))
    O, l, M = launch.fused("forward", [q, k, v], None, True, E**-0.5)
    calls, real = [], launch.launch
    launch.launch = lambda *a: calls.append(a)
    for which in FORMULAS:
        launch.fused(which, arguments(which, q, k, v, O, l, M), None, True, E**-0.5)
    launch.launch = real
    return calls


def try_rung(call: tuple, rung: tuple) -> None:
    """Launch with given blocks."""
    launch.CHOSEN.clear()
    launch.LADDERS = {call[1]: (rung,)}
    launch.launch(*call)
    synchronize()


def compile_rungs(precision: str, E: int, rungs: list[tuple]) -> Report:
    """Compile every kernel with some blocks, into the cache that all processes share."""
    torch.cuda.set_device(0)
    for call, rung in itertools.product(launches(precision, E, 256, 1), rungs):
        with contextlib.suppress(Exception):
            try_rung(call, rung)
    return []


def sweep(precision: str, E: int, workers: int) -> Report:
    """Time all kernels with all blocks at 8 x 12 heads of 1024 and say which are best."""
    shares = [CONFIGURATIONS[i::workers] for i in range(workers)]
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_rungs, [precision] * workers, [E] * workers, shares))
    lines, ladder = [], launch.LADDERS
    for call in launches(precision, E, 1024, 8):
        times = {}
        for rung in CONFIGURATIONS:
            with contextlib.suppress(Exception):
                try_rung(call, rung)
                times[rung] = milliseconds(lambda call=call: launch.launch(*call), 20)
        best = sorted(times, key=times.__getitem__)[:6]
        lines.append(
            f"sweep {precision} E{E} {call[0]:20s} {call[1]:8s} "
            + "  ".join(f"{'/'.join(map(str, r))}: {times[r]:.3f}" for r in best)
        )
        print(lines[-1], flush=True)
    launch.LADDERS = ladder
    launch.CHOSEN.clear()
    return lines


def work(f, q, k, v, G):
    """What is timed, by name: a call, its gradient, products with the second derivative."""
    t = tuple(torch.randn_like(x) for x in (q, k, v))

    def value(*at):
        return (f(*at) * G).sum()

    def grad():
        at = [x.clone().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(value(*at), at)

    at = [x.clone().requires_grad_() for x in (q, k, v)]
    kept = []

    def backward():
        if not kept:
            kept.append(torch.autograd.grad((f(*at).square() * G).sum(), at, create_graph=True))
        return torch.autograd.grad(kept[0], at, t, retain_graph=True)

    gradient = torch.func.grad(value, (0, 1, 2))
    block = tuple(torch.stack([x] * 4) for x in t)
    return {
        "forward": lambda: f(q, k, v),
        "gradient": grad,
        "jvp(grad)": lambda: torch.func.jvp(gradient, (q, k, v), t)[1],
        "jvp x 4": lambda: torch.func.vmap(lambda *u: torch.func.jvp(gradient, (q, k, v), u)[1])(*block),
        "kept graph": backward,
    }


def fused_torch(q, k, v):
    """Torch's fused attention, which has no second derivative."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def prices(precision: str, lengths: list[int], tokens: int = 8192, heads: int = 12, E: int = 64) -> list[dict]:
    """Times and peak memory at equal numbers of tokens."""
    allow(precision)
    rows = []
    for length in lengths:
        shape = (max(1, tokens // length), heads, length, E)
        q, k, v, G = (torch.randn(shape, device=DEVICE, dtype=DTYPES[precision]) for _ in range(4))
        ours, theirs = (lambda *a: attention(*a, causal=True)), (lambda *a: plain(*a, causal=True))
        for name, f in {"blockwise": ours, "plain": theirs, "torch fused": fused_torch}.items():
            for what, run in work(f, q, k, v, G).items():
                if name == "torch fused" and what not in ("forward", "gradient"):
                    continue
                torch.cuda.empty_cache()
                base = torch.cuda.memory_allocated()
                try:
                    started = time.perf_counter()
                    run()
                    synchronize()
                    first = time.perf_counter() - started
                    torch.cuda.reset_peak_memory_stats()
                    took = milliseconds(run, 60)
                    peak = (torch.cuda.max_memory_allocated() - base) / 2**30
                    rows.append(
                        {
                            "precision": precision,
                            "length": length,
                            "how": name,
                            "what": what,
                            "ms": took,
                            "GiB": peak,
                            "first_s": first,
                        }
                    )
                except Exception as error:
                    rows.append(
                        {"precision": precision, "length": length, "how": name, "what": what, "error": str(error)[:300]}
                    )
                    if not isinstance(error, torch.cuda.OutOfMemoryError):
                        traceback.print_exc()
    return rows


def table(rows: list[dict]) -> Report:
    """One line per length and way: time and memory of each kind of work."""
    kinds = ["forward", "gradient", "jvp(grad)", "jvp x 4", "kept graph"]
    lines = [f"{'':22s}" + "".join(f"{kind + ' ms|GiB':>20s}" for kind in kinds)]
    for key in dict.fromkeys((r["precision"], r["length"], r["how"]) for r in rows):
        cells = {r["what"]: r for r in rows if (r["precision"], r["length"], r["how"]) == key}
        shown = [
            f"{c['ms']:9.2f}|{c['GiB']:.2f}" if "ms" in (c := cells.get(kind, {})) else "failed" if c else "-" for kind in kinds
        ]
        lines.append(f"{key[0]:5s}{key[1]:6d} {key[2]:10s}" + "".join(f"{cell:>20s}" for cell in shown))
    return lines


def long_product() -> Report:
    """The second derivative at length 8192 in one head group against float64 in plain PyTorch blocks."""
    allow("tf32")
    x, t = ([torch.randn(1, 2, 8192, 64, device=DEVICE) for _ in range(3)] for _ in range(2))

    def product(at, along):
        gradient = torch.func.grad(lambda *a: attention(*a, causal=True).sin().sum(), (0, 1, 2))
        return torch.func.jvp(gradient, tuple(at), tuple(along))[1]

    exact = product([a.double() for a in x], [a.double() for a in t])
    lines = []
    for precision in ("tf32", "ieee"):
        allow(precision)
        error = max(float((a.double() - b).norm() / b.norm()) for a, b in zip(product(x, t), exact))
        lines.append(f"length 8192, {precision}: relative error of jvp(grad) {error:.1e}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/attention"))
    parser.add_argument("--sweep", nargs="*", default=[], help="precision:width, such as tf32:64 bf16:64")
    parser.add_argument("--skip-checks", action="store_true")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096, 8192, 16384])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    import triton

    versions = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    started = time.perf_counter()
    checked = [] if options.skip_checks else checks(options.workers)
    (options.out / "checks.txt").write_text("\n".join(checked))
    print("\n".join(line for line in checked if not line.startswith("ok")), flush=True)
    print(f"checks took {time.perf_counter() - started:.0f} s", flush=True)
    swept: Report = []
    if options.sweep:
        for precision, width in (case.split(":") for case in options.sweep):
            swept += guarded(sweep, precision, int(width), options.workers)
            (options.out / "sweep.txt").write_text("\n".join(swept))
        print(f"until the end of the sweep {time.perf_counter() - started:.0f} s", flush=True)
    rows = prices("tf32", options.lengths)
    (options.out / "prices.json").write_text(json.dumps({"machine": versions, "rows": rows}, indent=1))
    rows += prices("bf16", [n for n in options.lengths if n in (1024, 8192)]) + prices(
        "ieee", [1024] if 1024 in options.lengths else []
    )
    (options.out / "prices.json").write_text(json.dumps({"machine": versions, "rows": rows}, indent=1))
    for row in rows:
        if "error" in row and "memory" not in row["error"]:
            print(row)
    good = sum(line.startswith("ok") for line in checked)
    bad = sum(line.startswith(("BAD", "FAIL")) for line in checked)
    print("\n".join([*swept, *table(rows), *guarded(long_product)]))
    print(f"{versions}: {good} checks passed, {bad} failed, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
