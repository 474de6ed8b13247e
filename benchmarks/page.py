"""Write the documentation's page of benchmarks from the results that are committed: computes nothing.

Run `eigenscape bench all --out benchmarks/results`, then `python benchmarks/page.py`; it writes `docs/bench.md` and the figures
`docs/img/bench-*.svg`.
"""

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


def main():
    found = {name: suite for name, suite in suites().items() if (RESULTS / f"{name}.json").is_file()}
    text = OPENING + "".join(section(name, suite) for name, suite in found.items())
    (DOCS / "bench.md").write_text(text, encoding="utf-8")
    print(f"docs/bench.md: {', '.join(found) or 'no results'}")


if __name__ == "__main__":
    main()
