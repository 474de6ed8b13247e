"""Blockwise attention equals plain attention with its first and second derivatives, in every mode of differentiation."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from eigenscape.curvature.attention import attention, tiles

# torch itself warns at the first forward-mode derivative, and in every linearisation
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script", "ignore:Attempted to insert a get_attr Node")


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64).to(dtype)


def plain(q, k, v, mask=None, *, causal=False, scale=None, grouped=False):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=grouped)


def seen(*shape, seed=0):
    """Return a random boolean mask with a row that sees nothing."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 1, :] = False
    return mask


def minus_infinity(mask):
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)


LOWEST = torch.full((7, 9), torch.finfo(torch.float64).min, dtype=torch.float64)
PADDED = torch.arange(9) < torch.tensor([9, 4])[:, None, None, None]
CASES = {
    "dense": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {}),
    "causal": ((2, 3, 7, 4), (2, 3, 7, 4), (2, 3, 7, 4), {"causal": True}),
    "causal-more-keys": ((2, 3, 7, 4), (2, 3, 11, 4), (2, 3, 11, 5), {"causal": True}),
    "causal-more-queries": ((2, 1, 11, 4), (2, 1, 6, 4), (2, 1, 6, 3), {"causal": True}),
    "bool": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {"mask": seen(2, 3, 7, 9)}),
    "bool-shared": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {"mask": seen(7, 9)}),
    "bool-padding": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {"mask": PADDED}),
    "float": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {"mask": normal(3, 7, 9)}),
    "float-infinite": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {"mask": minus_infinity(seen(2, 1, 7, 9))}),
    "float-lowest": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 4), {"mask": LOWEST.masked_fill(seen(7, 9), 0.0)}),
    "scale": ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 6), {"scale": 1.3}),
    "grouped": ((2, 6, 7, 4), (2, 2, 7, 4), (2, 2, 7, 5), {"causal": True, "grouped": True}),
    "broadcast": ((3, 7, 4), (2, 1, 9, 4), (1, 3, 9, 4), {}),
    "three-axes": ((3, 7, 4), (3, 9, 4), (3, 9, 4), {"mask": seen(7, 9)}),
    "two-axes": ((7, 4), (9, 4), (9, 4), {}),
    "five-axes": ((2, 1, 2, 7, 1), (2, 1, 2, 5, 1), (2, 1, 2, 5, 2), {"causal": True}),
    "wide-heads": ((1, 2, 5, 128), (1, 2, 5, 128), (1, 2, 5, 128), {"causal": True}),
    "one-row": ((2, 3, 1, 4), (2, 3, 9, 4), (2, 3, 9, 4), {}),
}


@pytest.fixture(params=CASES, name="case")
def _case(request, monkeypatch):
    monkeypatch.setattr(tiles, "ROWS", 3)
    monkeypatch.setattr(tiles, "ENTRIES", 60)
    *shapes, options = CASES[request.param]
    x, t = ([normal(*shape, seed=seed + 5 * i) for i, shape in enumerate(shapes)] for seed in (1, 31))
    weights = normal(*plain(*x, **options).shape, seed=77)

    def loss(f):
        return lambda *at: (f(*at, **options).sin() * weights).sum()

    return x, t, options, loss(attention), loss(plain)


def close(a, b):
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-11)


def leaves(x):
    return [t.clone().requires_grad_() for t in x]


def double_backward(loss, x, t):
    at = leaves(x)
    g = torch.autograd.grad(loss(*at), at, create_graph=True)
    return g, torch.autograd.grad(sum((a * b).sum() for a, b in zip(g, t)), at)


def gradient(loss):
    return torch.func.grad(loss, (0, 1, 2))


def test_value_and_first_and_second_derivatives(case):
    x, t, options, ours, theirs = case
    close([attention(*x, **options)], [plain(*x, **options)])
    (g, h), (g0, h0) = double_backward(ours, x, t), double_backward(theirs, x, t)
    close(g, g0)
    close(h, h0)
    close(torch.func.jvp(gradient(ours), tuple(x), tuple(t))[1], h0)
    close(torch.func.vjp(gradient(ours), *x)[1](tuple(t)), h0)


def test_linearised_gradient_alone_and_in_blocks(case):
    x, t, _, ours, theirs = case
    push = torch.func.linearize(gradient(ours), *x)[1]
    _, h = double_backward(theirs, x, t)
    close(push(*t), h)
    close(torch.func.vmap(push)(*(torch.stack([-a, 2 * a]) for a in t)), [torch.stack([-a, 2 * a]) for a in h])


def test_blocks_of_vectors(case):
    x, t, _, ours, theirs = case
    block = tuple(torch.stack([-a, 2 * a, 0 * a]) for a in t)
    expected = [torch.stack([-a, 2 * a, 0 * a]) for a in double_backward(theirs, x, t)[1]]
    close(torch.func.vmap(lambda *v: torch.func.jvp(gradient(ours), tuple(x), v)[1])(*block), expected)
    pull = torch.func.vjp(gradient(ours), *x)[1]
    close(torch.func.vmap(lambda *v: pull(v))(*block), expected)
    at = leaves(x)
    g = torch.autograd.grad(ours(*at), at, create_graph=True)
    close(torch.func.vmap(lambda *v: torch.autograd.grad(g, at, v, retain_graph=True))(*block), expected)
    close(torch.autograd.grad(g, at, block, retain_graph=True, is_grads_batched=True), expected)


def test_jacobian_both_ways_and_through_a_kept_graph(case):
    x, t, options, _, _ = case
    out, pushed = torch.func.jvp(lambda *a: plain(*a, **options), tuple(x), tuple(t))
    close([torch.func.jvp(lambda *a: attention(*a, **options), tuple(x), tuple(t))[1]], [pushed])
    at, dummy = leaves(x), torch.zeros_like(out).requires_grad_()
    pulled = torch.autograd.grad(attention(*at, **options), at, dummy, create_graph=True)
    close(torch.autograd.grad(pulled, dummy, t), [pushed])


def test_one_argument_moves(case):
    x, t, _, ours, theirs = case
    for i in range(3):
        alone = [lambda z, f=f, i=i: f(*x[:i], z, *x[i + 1 :]) for f in (ours, theirs)]
        a, b = (torch.func.jvp(torch.func.grad(f), (x[i],), (t[i],))[1] for f in alone)
        close([a], [b])
        close(double_backward(alone[0], [x[i]], [t[i]])[1], [b])


@pytest.mark.parametrize("mode", ["jvp", "vjp"])
def test_third_derivatives(case, mode):
    x, t, _, ours, theirs = case

    def curvature(loss, mode):
        def along(*at):
            g = gradient(loss)
            h = torch.func.jvp(g, at, tuple(t))[1] if mode == "jvp" else torch.func.vjp(g, *at)[1](tuple(t))
            return sum((a * b).sum() for a, b in zip(h, t))

        return torch.func.grad(along, (0, 1, 2))(*x)

    close(curvature(ours, mode), curvature(theirs, "vjp"))  # torch's own jvp gives NaN where a row sees no key


def test_derivative_of_a_tangent_and_a_whole_hessian():
    q, k, v, u = (normal(5, 2, seed=i) for i in range(4))

    def value(f):
        return lambda z: f(z, k, v, causal=True).square().sum()

    a, b = (torch.func.grad(lambda z, f=f: torch.func.jvp(value(f), (z,), (u,))[1])(q) for f in (attention, plain))
    close([a], [b])
    close([torch.func.hessian(value(attention))(q)], [torch.func.hessian(value(plain))(q)])
    twice = [torch.func.jvp(lambda z, f=f: torch.func.jvp(value(f), (z,), (u,))[1], (q,), (u,))[1] for f in (attention, plain)]
    close(twice[:1], twice[1:])


def test_masks_and_data_under_vmap():
    q, k, v = (normal(4, 5, 3, seed=i) for i in range(3))
    masks = seen(4, 5, 5)

    def per_sample(f):
        return torch.func.vmap(torch.func.grad(lambda q, m, k, v: f(q, k, v, m).sin().sum()), in_dims=(0, 0, None, 1))(
            q, masks, k[0], v.movedim(0, 1)
        )

    close([per_sample(attention)], [per_sample(plain)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_near_float64(dtype):
    tolerance = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}[dtype]
    x, t = ([normal(2, 2, 33, 16, seed=s + i, dtype=dtype) for i in range(3)] for s in (0, 9))
    weights = normal(2, 2, 33, 16, dtype=dtype)

    def loss(f):
        return lambda *at: (f(*at, causal=True) * weights.to(at[0].dtype)).sum()

    found = double_backward(loss(attention), x, t)
    exact = double_backward(loss(plain), [a.double() for a in x], [a.double() for a in t])
    for a, b in zip((*found[0], *found[1]), (*exact[0], *exact[1])):
        assert a.dtype == dtype
        assert (a.double() - b).norm() < tolerance * b.norm()


def test_rows_that_see_no_key_give_zero_and_large_scores_do_not_overflow():
    q, k, v = (normal(6, 3, seed=i) for i in range(3))
    mask = seen(6, 6)
    assert (attention(q, k, v, mask)[1] == 0).all()
    found = double_backward(lambda *a: attention(*a, mask).square().sum(), [100 * q, 100 * k, v], [q, k, v])
    exact = double_backward(lambda *a: plain(*a, mask).square().sum(), [100 * q, 100 * k, v], [q, k, v])
    for a, b in zip((*found[0], *found[1]), (*exact[0], *exact[1])):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-6)


class Largest(TorchDispatchMode):
    """Note the largest tensor that any operation returned."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, torch.Tensor)]
        self.entries = max([self.entries, *(t.untyped_storage().nbytes() // t.element_size() for t in tensors)])
        return out


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_linear_in_the_length(causal, monkeypatch):
    monkeypatch.setattr(tiles, "ENTRIES", 1)
    monkeypatch.setattr(tiles, "ROWS", 8)

    def cost(length):
        x, t = ([normal(2, length, 4, seed=s + i) for i in range(3)] for s in (0, 9))
        saved = {}

        def note(s):
            saved[s.untyped_storage().data_ptr()] = s.untyped_storage().nbytes()
            return s

        at = leaves(x)
        with Largest() as largest, torch.autograd.graph.saved_tensors_hooks(note, lambda s: s):
            out = attention(*at, causal=causal)
            g = torch.autograd.grad(out.square().sum(), at, create_graph=True)
        with largest:
            torch.autograd.grad(g, at, t)
            torch.func.jvp(gradient(lambda *a: attention(*a, causal=causal).square().sum()), tuple(x), tuple(t))
        return sum(saved.values()), largest.entries

    (saved, largest), (saved_twice, largest_twice) = cost(256), cost(512)
    assert saved_twice <= 2 * saved
    assert saved < 2 * 256 * 4 * 8 * 16  # bytes of sixteen queries
    assert largest_twice == 2 * largest
    assert largest <= 8 * 256


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_tracers_see_the_right_shapes(which):
    q, k, v = (normal(2, 1, 5, 3, dtype=torch.bfloat16), normal(1, 3, 6, 3, dtype=torch.bfloat16), normal(2, 3, 6, 4))
    v = v.bfloat16()
    statistic = torch.zeros(2, 3, 5, 1)
    tensors = [q, k, v] if which == "forward" else [q, statistic, statistic, statistic, normal(2, 3, 5, 4).bfloat16(), k, v]
    arguments = (which, tensors, seen(1, 1, 5, 6), False, 0.5)
    result = torch.library.opcheck(
        torch.ops.eigenscape.attention.default, arguments, test_utils=("test_schema", "test_faketensor")
    )
    assert set(result.values()) == {"SUCCESS"}
