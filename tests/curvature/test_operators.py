"""Every operator times every kind of model, against brute force in float64."""

import pytest
import torch
from models import NAMES, build, dense_ggn, dense_hessian, dense_jacobian

import eigenscape as es
from eigenscape.curvature.nested import cut

CE = [n for n in NAMES if n not in ("mlp-custom", "mlp-huber")]


def full(op):
    return op @ torch.eye(op.n, dtype=op.dtype)


def close(a, b, tol=1e-11):
    assert a.shape == b.shape
    assert (a - b).abs().max() <= tol * max(1.0, b.abs().max().item())


def precision(name):
    """The Llama of transformers normalises in float32 whatever its dtype."""
    return 1e-5 if name == "llama" else 1e-11


def pieces(case, sizes):
    """Cut a case's data into uneven batches."""
    n, start, out = case.targets.shape[0], 0, []
    for size in sizes:
        part = slice(start, start + size)
        out.append((cut(case.inputs, n, part), cut(case.targets, n, part)))
        start += size
    assert start >= n
    return out


@pytest.mark.parametrize("name", NAMES)
def test_hessian_is_the_double_backward_hessian(name):
    case = build(name)
    H = full(es.hessian(es.Objective(case.model, case.criterion, (case.inputs, case.targets))))
    close(H, dense_hessian(case), precision(name))
    close(H, H.T, precision(name))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "frozen"])
def test_ggn_plus_functional_hessian_is_the_hessian(name):
    case = build(name)
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets))
    G, R, H = (full(make(obj)) for make in (es.ggn, es.functional_hessian, es.hessian))
    close(G, dense_ggn(case), precision(name))
    close(G + R, H, precision(name))
    close(full(es.hessian(obj) - es.ggn(obj)), R, precision(name))
    close(full(es.fisher(obj)), G)


@pytest.mark.parametrize("name", ["mlp-ce", "mlp-ce-weighted-smooth", "mlp-custom", "tied-ignored", "gpt2", "mlp-half-mse"])
@pytest.mark.parametrize("make", [es.hessian, es.ggn, es.functional_hessian, es.fisher])
def test_uneven_batches_and_ignored_targets_are_the_whole_set_mean(name, make):
    case = build(name)
    whole = es.Objective(case.model, case.criterion, (case.inputs, case.targets))
    n = case.targets.shape[0]
    weight = (lambda t: t.shape[0]) if name == "mlp-custom" else None
    batches = es.Objective(case.model, case.criterion, pieces(case, [1, n - 2, 1]), weight=weight)
    micro = es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=2, weight=weight)
    reference = full(make(whole))
    close(full(make(batches)), reference)
    close(full(make(micro)), reference)
    close(batches.loss(), whole.loss())
    close(micro.gradient(), whole.gradient())


def test_streaming_graphs_give_the_same_product_as_kept_ones():
    case = build("mlp-ce")
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=2)
    kept, streamed, some = es.hessian(obj), es.hessian(obj, memory=0), es.hessian(obj, memory=1200)
    close(full(kept), full(streamed), 1e-14)
    close(full(kept), full(some), 1e-14)
    assert "kept for 5 of 5" in kept.engine
    assert "kept for 0 of 5" in streamed.engine
    assert "kept for 3 of 5" in some.engine
    kept.release()
    assert "not built" in kept.engine
    close(full(kept), full(streamed), 1e-14)


def test_ntk_is_the_gram_matrix_of_output_gradients():
    case = build("mlp-ce")
    _, J = dense_jacobian(case)
    for micro in (None, 2):
        K = es.ntk(es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=micro))
        close(full(K), J @ J.T)


def test_empirical_fisher_is_the_mean_outer_product_of_sample_gradients():
    for name in ("mlp-ce", "mlp-half-mse", "mlp-mse", "mlp-custom"):
        case = build(name)
        obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=4)
        rows = []
        for x, y in zip(case.inputs, case.targets):
            rows.append(es.Objective(case.model, case.criterion, (x[None], y[None])).gradient())
        g = torch.stack(rows)
        close(full(es.fisher(obj, "empirical")), g.T @ g / len(rows))


def test_empirical_fisher_counts_tokens():
    case = build("tied-ignored")
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets))
    kept = [(i, j) for i, j in torch.cartesian_prod(torch.arange(4), torch.arange(5)).tolist() if case.targets[i, j] >= 0]
    rows = []
    for i, j in kept:
        alone = torch.full_like(case.targets, -100)
        alone[i, j] = case.targets[i, j]
        rows.append(es.Objective(case.model, case.criterion, (case.inputs, alone)).gradient())
    g = torch.stack(rows)
    close(full(es.fisher(obj, "empirical")), g.T @ g / len(kept))


@pytest.mark.parametrize(
    "name",
    ["mlp-ce-weighted-smooth", "mlp-mse", "mlp-bce", "tied-ignored"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("mlp-ce", "mlp-half-mse", "gpt2")],
)
def test_sampled_fisher_tends_to_the_exact_one(name):
    """The mean over 4,000 draws is within six standard errors, entry by entry, of the exact matrix (none of <1e4 entries)."""
    case = build(name)
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets))
    n = obj.layout.size
    V = torch.linalg.qr(torch.randn(n, min(n, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    exact = V.T @ (es.fisher(obj) @ V)
    batches = [V.T @ (es.fisher(obj, "sampled", draws=50, generator=torch.Generator().manual_seed(s)) @ V) for s in range(40)]
    samples = torch.stack(batches)
    stderr = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - exact).abs() <= 6 * stderr + 1e-12).all()
    assert (samples[0] - samples[1]).abs().max() > 0


def test_sampled_fisher_is_one_fixed_matrix():
    case = build("mlp-ce")
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=4)
    make = lambda: es.fisher(obj, "sampled", generator=torch.Generator().manual_seed(5), memory=0)  # noqa: E731
    F = make()
    assert torch.equal(full(F), full(F))
    assert torch.equal(full(F), full(make()))


@pytest.mark.parametrize("make", [es.hessian, es.ggn, es.functional_hessian])
def test_blocks_are_the_diagonal_blocks(make):
    case = build("mlp-ce")
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets), micro_batch=4)
    op = make(obj)
    dense = full(op)
    for name, block in es.blocks(op).items():
        part = op.layout.slice(name)
        close(full(block), dense[part, part])
    index = op.layout.indices(op.layout.select("2.*"))
    close(full(op.block("2.*")), dense[index][:, index])
    own = es.Objective(case.model, case.criterion, (case.inputs, case.targets), params="2.*")
    close(full(make(own)), dense[index][:, index])
    groups = es.blocks(op, ["0.*", "2.*"])
    vectors = {k: torch.randn(b.n, dtype=op.dtype) for k, b in groups.items()}
    for key, product in groups.products(vectors).items():
        close(product, groups[key] @ vectors[key])


def test_product_follows_the_weights_however_they_are_changed():
    case = build("mlp-ce")
    obj = es.Objective(case.model, case.criterion, (case.inputs, case.targets))
    H = es.hessian(obj)
    before = full(H)
    case.model[0].weight.data.mul_(1.5)  # behind autograd's back
    close(full(H), dense_hessian(case))
    with torch.no_grad():
        case.model[0].weight.copy_(case.model[0].weight / 1.5)
    close(full(H), before, 1e-12)


def test_products_work_under_no_grad_and_inference_mode():
    case = build("attention")
    H = es.hessian(es.Objective(case.model, case.criterion, (case.inputs, case.targets), weight=lambda t: t.numel()))
    v = torch.randn(H.n, dtype=H.dtype)
    reference = H @ v
    with torch.no_grad():
        close(H @ v, reference)
    with torch.inference_mode():
        close(H @ v, reference)


def test_batchnorm_in_training_mode_is_right_when_asked_for():
    case = build("batchnorm-eval")
    case.model.train()
    oracle = dense_hessian(case)
    state = {k: v.clone() for k, v in case.model.state_dict().items()}
    H = es.hessian(es.Objective(case.model, case.criterion, (case.inputs, case.targets), check=False))
    close(full(H), oracle)
    assert all(torch.equal(v, state[k]) for k, v in case.model.state_dict().items() if "running" not in k)


def test_scaling_the_loss_scales_the_operator_exactly():
    case = build("mlp-ce")
    base = full(es.hessian(es.Objective(case.model, case.criterion, (case.inputs, case.targets))))
    for power in (-24, 24):  # powers of two: no rounding at all
        scaled = es.Objective(
            case.model, lambda f, t, s=2.0**power: s * case.criterion(f, t), (case.inputs, case.targets), weight=len
        )
        assert torch.equal(full(es.hessian(scaled)), 2.0**power * base)
