"""Write the documentation's page of benchmarks from the results that are committed: computes nothing.

Run `eigenscape bench all --out benchmarks/results`, then `python benchmarks/page.py`; it writes `docs/bench.md` and the figures
`docs/img/bench-*.svg`.
"""

import json
import shutil
from pathlib import Path

from eigenscape.experiments.bench.record import read
from eigenscape.experiments.bench.registry import suites
from eigenscape.experiments.bench.table import markdown

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"

OPENING = """# Benchmarks

The same work, in one run, with Eigenscape and with what one would use instead: plain PyTorch,
[curvlinops](https://github.com/f-dangel/curvlinops),
[hessian-eigenthings](https://github.com/noahgolmant/pytorch-hessian-eigenthings) and
[PyHessian](https://github.com/amirgholami/PyHessian). Every cost is in **gradients**: of the same loss, on the same data,
measured in between. Every answer is checked in float64, by code that none of the contestants use, and marked where it is wrong.
The networks: an MLP 784-256-256-10 on 2,000 samples, a CNN of 98,000 parameters on 500 images, and a GPT of 4 blocks and
width 128 on 8 sequences of 64 tokens.

```sh
python -m venv .venv-bench
.venv-bench/bin/pip install -c constraints.txt '.[bench]'
.venv-bench/bin/eigenscape bench --list
.venv-bench/bin/eigenscape bench products --out out/bench      # rows as JSON, a table, a figure
```

The other tools get an environment of their own because curvlinops brings BackPACK, and BackPACK brings torchvision. No suite
uses it, but it has to be built for the very PyTorch beside it: PyPI's build fails beside a CPU build of PyTorch from elsewhere
(`operator torchvision::nms does not exist`), and so then do `import lightning` and the `Trainer` of transformers. For a CPU
build, install `torch==2.13.0 torchvision==0.28.0` from PyTorch's own index for CPUs before the others.

Without the extra the suites run too: each tool that is missing gets a row that says so.

What was predicted before measuring, and what did not pay, is kept in `benchmarks/NOTES.md`.
"""


def section(name, suite):
    record = read(RESULTS / f"{name}.json")
    text = f"\n## {suite.title}\n\n"
    if (RESULTS / f"{name}.svg").is_file():
        shutil.copyfile(RESULTS / f"{name}.svg", DOCS / "img" / f"bench-{name}.svg")
        text += f"![{suite.title}: bars by contestant and network](img/bench-{name}.svg)\n\n"
    notes = "".join(f"- {note}\n" for note in suite.notes)
    table = f'<div class="results" markdown>\n\n{markdown(suite, record.rows)}\n</div>\n'
    return f"{text}{table}\n{notes}\n*{record.about()}*\n"


GPU = """
## GPT-2 on one GPU

`benchmarks/gpt2_gpu.py`: 124M parameters, 8 sequences of 1,024 tokens, TF32, on one {device}, PyTorch {torch}. The unit is an
eager gradient with fused attention: {ms:.0f} ms, {GiB:.1f} GiB.

| product | ms | gradients | ms each, four at once | peak GiB | peak GiB of the first |
| --- | --- | --- | --- | --- | --- |
{table}

- Double backward keeps its graph; compiled programs run as CUDA graphs. The first compiled H v takes {cold:.0f} s in a process
  of its own with empty caches, which includes recording and compiling.
- Relative distance from double backward in float64 on two layers: {errors}.
- Five largest eigenvalues to 1e-2: of H in {H:.1f} s, of G in {G:.1f} s; a density of H with 100 steps: {density:.1f} s.
- Length 8,192, one sequence: {long:.0f} ms and {room:.0f} GiB, where the scores of one layer alone are 3 GiB; two layers of it
  are within {gap:.0e} of float64.
"""


def gpu():
    """GPT-2's numbers, if they are there."""
    path = RESULTS / "gpt2_gpu.json"
    if not path.is_file():
        return ""
    found = json.loads(path.read_text())
    rows = {row["what"]: row for row in found["rows"]}
    unit = rows["gradient, eager, fused attention"]
    products = [(f"{kind} v, {engine}", rows[f"{kind} v, {engine}"]) for kind in "HG" for engine in ("reverse", "compiled")]
    table = "\n".join(
        f"| {name} | {r['ms']:.1f} | {r['gradients']:.2f} | {r['four_ms_each']:.1f} | {r['peak_GiB']:.1f} "
        f"| {r['peak_building_GiB']:.1f} |"
        for name, r in products
    )
    errors = ", ".join(
        f"{rows[f'check {kind} compiled {precision}']['error']:.0e} for {kind} {words} TF32"
        for precision, words in (("high", "with"), ("highest", "without"))
        for kind in "HG"
    )
    far = rows["H v, length 8192, uncached"]
    return GPU.format(
        device=found["device"],
        torch=found["torch"],
        ms=unit["ms"],
        GiB=unit["GiB"],
        table=table,
        errors=errors,
        cold=rows["first H v, compiled, empty caches"]["seconds"],
        H=rows["top 5 of H"]["seconds"],
        G=rows["top 5 of G"]["seconds"],
        density=rows["density of H, 100 steps, 1 probe"]["seconds"],
        long=far["ms"],
        room=far["peak_GiB"],
        gap=rows["two layers, length 8192, against float64"]["error"],
    )


def main():
    found = {name: suite for name, suite in suites().items() if (RESULTS / f"{name}.json").is_file()}
    text = OPENING + "".join(section(name, suite) for name, suite in found.items()) + gpu()
    (DOCS / "bench.md").write_text(text, encoding="utf-8")
    print(f"docs/bench.md: {', '.join(found) or 'no results'}")


if __name__ == "__main__":
    main()
