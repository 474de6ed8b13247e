"""Where curvature tools go wrong: the same small problems through four of them, each against brute force in float64.

Run `python benchmarks/pitfalls.py` (extra `bench`); it writes `results/pitfalls.json` and `results/pitfalls.md`.
"""

import contextlib
import io
import json
import warnings
from pathlib import Path

import curvlinops
import hessian_eigenthings as eigenthings
import pyhessian
import torch
from curvlinops import HessianLinearOperator
from pyhessian.utils import hessian_vector_product
from scipy.sparse.linalg import eigsh as arpack
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import eigenscape as es

OUT = Path(__file__).parent / "results"
SEEDS = 20


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def classes(n, k, seed=1):
    return torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))


def trained(model, scale=1.0):
    """Random weights that do not depend on a global seed."""
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(scale * draw(*p.shape, seed=100 + i) / max(1, p.shape[-1] if p.ndim > 1 else 1) ** 0.5)
    return model.double()


def cut(v, like):
    parts = v.split([p.numel() for p in like])
    return [part.view_as(p) for part, p in zip(parts, like)]


def ours(model, criterion, data):
    H = es.hessian(es.Objective(model, criterion, data))
    return lambda v: H @ v


def by_curvlinops(model, criterion, data):
    H = HessianLinearOperator(model, criterion, list(model.parameters()), data)
    return lambda v: H @ v


def by_eigenthings(model, criterion, data):
    H = eigenthings.HessianOperator(model, data, eigenthings.supervised_loss(criterion))
    return H.matvec


def by_pyhessian(model, criterion, data):
    if len(data) == 1:
        H = pyhessian.hessian(model, criterion, data=data[0], cuda=False)
        return lambda v: flat(hessian_vector_product(H.gradsH, H.params, cut(v, H.params)))
    H = pyhessian.hessian(model, criterion, dataloader=data, cuda=False)
    return lambda v: flat(H.dataloader_hv_product(cut(v, list(model.parameters())))[1])


TOOLS = {
    "eigenscape": ours,
    "curvlinops 3.0.1": by_curvlinops,
    "hessian-eigenthings 1.0.0a5": by_eigenthings,
    "PyHessian 0.1": by_pyhessian,
}


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def oracle(model, whole_loss, v):
    """Double backward of the mean over the whole set: the formulation that is right for every layer."""
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH):
        options = {"allow_unused": True, "materialize_grads": True}
        g = flat(torch.autograd.grad(whole_loss(), parameters, create_graph=True, **options))
        return flat(torch.autograd.grad(g @ v, parameters, **options)).detach()


def error(make, problem):
    """Relative error of one product with the Hessian of the whole-set mean."""
    model, criterion, data, whole_loss = problem()
    v = draw(sum(p.numel() for p in model.parameters()), seed=7)
    exact = oracle(model, whole_loss, v)
    off = float((make(model, criterion, data)(v).detach() - exact).norm() / exact.norm())
    return f"off by {off:.1%}" if off > 1e-9 else "right"


def layer_norm():
    model = trained(nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 4)))
    X, y = draw(40, 6), classes(40, 4)
    return model, nn.CrossEntropyLoss(), [(X, y)], lambda: F.cross_entropy(model(X), y)


def uneven():
    model = trained(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)))
    X, y = draw(100, 6), classes(100, 4)
    X[96:] *= 3
    data = [(X[i : i + 32], y[i : i + 32]) for i in range(0, 100, 32)]
    return model, nn.CrossEntropyLoss(), data, lambda: F.cross_entropy(model(X), y)


def ignored():
    model = trained(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)))
    X, y = draw(64, 6), classes(64, 4)
    y[:28] = -100  # the first batch has 4 targets that count, the second 32
    data = [(X[:32], y[:32]), (X[32:], y[32:])]
    return model, nn.CrossEntropyLoss(), data, lambda: F.cross_entropy(model(X), y)


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).mean(1))


def attention():
    model = trained(Attending())
    X, y = draw(10, 5, 8), classes(10, 4)
    return model, nn.CrossEntropyLoss(), [(X, y)], lambda: F.cross_entropy(model(X), y)


class Spare(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = nn.Linear(6, 4), nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x).tanh()


def unused():
    model = trained(Spare())
    X, y = draw(20, 6), classes(20, 4)
    return model, nn.CrossEntropyLoss(), [(X, y)], lambda: F.cross_entropy(model(X), y)


def dropout(make):
    """Difference of two products with the same vector, in training mode."""
    model = trained(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4))).train()
    product = make(model, nn.CrossEntropyLoss(), [(draw(40, 6), classes(40, 4))])
    v = draw(sum(p.numel() for p in model.parameters()), seed=7)
    one, other = product(v).detach(), product(v).detach()
    gap = float((one - other).norm() / one.norm())
    return f"two products differ by {gap:.0%}" if gap else "switches the model to eval mode"


def mlp():
    model = trained(nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 4)), 1.5).float()
    X, y = draw(200, 10).float(), classes(200, 4)
    return model, nn.CrossEntropyLoss(), [(X, y)]


def dense(model, criterion, data):
    wide = [(X.double(), y) for X, y in data]
    values = es.dense(es.hessian(es.Objective(model.double(), criterion, wide))).expand()
    model.float()
    return values


def worst(errors):
    errors = sorted(errors)
    return f"median {errors[len(errors) // 2]:.1%}, worst {errors[-1]:.1%}"


def top_by_default(name):
    """Relative error of the largest eigenvalue as shipped, over seeds."""
    model, criterion, data = mlp()
    true = float(dense(model, criterion, data)[-1])
    flags = []

    def value(seed):
        torch.manual_seed(seed)
        if name == "eigenscape":
            H = es.hessian(es.Objective(model, criterion, data))
            return float(es.eigsh(H, 1, generator=torch.Generator().manual_seed(seed)).values)
        if name.startswith("PyHessian"):
            return pyhessian.hessian(model, criterion, data=data[0], cuda=False).eigenvalues()[0][0]
        if name.startswith("hessian"):
            H = eigenthings.HessianOperator(model, data, eigenthings.supervised_loss(criterion))
            found = eigenthings.lanczos(H, k=1, seed=seed)
            flags.append(bool(found.converged.all()))
            return float(found.eigenvalues[0])
        H = HessianLinearOperator(model, criterion, list(model.parameters()), data)
        return float(arpack(H.to_scipy(), 1, which="LA", return_eigenvectors=False)[0])

    text = worst([abs(value(seed) - true) / true for seed in range(SEEDS)])
    return text + (f"; {sum(flags)} of {len(flags)} called converged" if flags else "")


def trace_by_default(name):
    """Relative error of the trace as shipped (100 products where the caller must say), over seeds."""
    model, criterion, data = mlp()
    true = float(dense(model, criterion, data).sum())

    def value(seed):
        torch.manual_seed(seed)
        if name == "eigenscape":
            H = es.hessian(es.Objective(model, criterion, data))
            return float(es.trace(H, torch.Generator().manual_seed(seed)))
        if name.startswith("PyHessian"):
            samples = pyhessian.hessian(model, criterion, data=data[0], cuda=False).trace()
            return sum(samples) / len(samples)
        if name.startswith("hessian"):
            H = eigenthings.HessianOperator(model, data, eigenthings.supervised_loss(criterion))
            return float(eigenthings.trace(H, seed=seed).estimate)
        H = HessianLinearOperator(model, criterion, list(model.parameters()), data)
        return float(curvlinops.hutchpp_trace(H, num_matvecs=99))

    return worst([abs(value(seed) - true) / true for seed in range(SEEDS)])


OUTLIERS = torch.cat([torch.tensor([100.0, 50.0, 20.0, 10.0, 5.0]), torch.linspace(0, 1, 395)])


def copies(name):
    """Which eight largest eigenvalues come out of at least 60 products."""
    called = ""
    if name == "eigenscape":
        found = es.eigsh(es.as_operator(lambda v: OUTLIERS * v, n=400), 8).values
    elif name.startswith("hessian"):
        operator = eigenthings.LambdaOperator(lambda v: OUTLIERS * v, size=400, device="cpu", dtype=torch.float32)
        result = eigenthings.lanczos(operator, k=8, max_iter=60, seed=0)
        called, found = "; all called converged" if bool(result.converged.all()) else "", result.eigenvalues
    elif name.startswith("curvlinops"):
        found = torch.tensor(arpack(es.as_operator(lambda v: OUTLIERS * v, n=400).to_scipy(), 8, which="LA")[0]).flip(0)
    else:
        return "power iteration: no Lanczos"
    return ", ".join(f"{float(x):.4g}" for x in found) + called


def rows():
    cases = {
        "LayerNorm": lambda name: error(TOOLS[name], layer_norm),
        "uneven last batch (32, 32, 32, 4)": lambda name: error(TOOLS[name], uneven),
        "ignored targets, unequal per batch": lambda name: error(TOOLS[name], ignored),
        "`scaled_dot_product_attention` on a CPU": lambda name: error(TOOLS[name], attention),
        "a parameter the loss does not use": lambda name: error(TOOLS[name], unused),
        "dropout in training mode": lambda name: dropout(TOOLS[name]),
        "largest eigenvalue, defaults, error over 20 seeds": top_by_default,
        "trace, defaults, error over 20 seeds": trace_by_default,
        "eight largest of 100, 50, 20, 10, 5, 1, 0.9975, 0.9949, ...": copies,
    }
    return [{"case": case, **{name: tried(measure, name) for name in TOOLS}} for case, measure in cases.items()]


def tried(measure, name):
    """A cell of the table: what came out, or the error."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return measure(name)
        except Exception as problem:
            return f"raises {type(problem).__name__}"


def main():
    table = rows()
    names = ["case", *TOOLS]
    lines = [" | ".join(names), " | ".join(["---"] * len(names)), *(" | ".join(row[n] for n in names) for row in table)]
    text = "\n".join(f"| {line} |" for line in lines)
    OUT.mkdir(exist_ok=True)
    (OUT / "pitfalls.json").write_text(json.dumps({"torch": torch.__version__, "rows": table}, indent=1) + "\n")
    (OUT / "pitfalls.md").write_text(f"{text}\n\n*Written by `python benchmarks/pitfalls.py`, torch {torch.__version__}.*\n")
    print(text)


if __name__ == "__main__":
    main()
