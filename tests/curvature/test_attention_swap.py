"""Curvature products use the blockwise attention where it fits, plain attention elsewhere, and say the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import eigenscape as es
from eigenscape.curvature.attention import TiledAttention, patch

GENERATOR = torch.Generator().manual_seed(0)
Q, K, V = (torch.randn(2, 4, 6, 8, generator=GENERATOR, dtype=torch.float64) for _ in range(3))
BOOL = torch.rand(6, 6, generator=GENERATOR) < 0.7
FLOAT = torch.randn(2, 1, 6, 6, generator=GENERATOR, dtype=torch.float64)


@pytest.fixture(name="calls")
def _calls(monkeypatch):
    """Count the calls of the blockwise attention."""
    calls, real = [], patch.attention
    monkeypatch.setattr(patch, "attention", lambda *a, **options: calls.append(options) or real(*a, **options))
    return calls


def attend(*args, **options):
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*args, **options)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((Q, K, V), {}),
        ((Q, K, V), {"is_causal": True, "scale": 0.3}),
        ((Q, K, V, BOOL), {}),
        ((Q, K, V), {"attn_mask": FLOAT}),
        ((Q, K[:, :2], V[:, :2], BOOL), {"enable_gqa": True}),
        ((Q[:1], K[:, :1], V), {}),
        ((Q, K, V, None, 0.0, True), {}),
    ],
)
def test_calls_that_fit_are_replaced(args, options, calls):
    with TiledAttention(min_scores=0):
        found = attend(*args, **options)
    assert len(calls) == 1
    torch.testing.assert_close(found, attend(*args, **options), rtol=1e-12, atol=1e-13)


WIDE = torch.randn(2, 6, 160, generator=GENERATOR)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((WIDE, WIDE, WIDE), {}),
        ((Q, K, V, FLOAT.clone().requires_grad_()), {}),
        ((Q[0, 0], K[0, 0], V[0, 0]), {}),
        ((Q, K, V, FLOAT.float()), {}),
        ((Q, K, V, None, 1.0), {}),
    ],
)
def test_calls_that_do_not_fit_are_left_alone(args, options, calls):
    with TiledAttention(min_scores=0):
        found = attend(*args, **options)
    assert not calls
    torch.testing.assert_close(found, attend(*args, **options))


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((Q, K, V, BOOL), {"is_causal": True}),
        ((Q, K[:, :3], V[:, :3]), {"enable_gqa": True}),
        ((Q, K[:, :2], V[:, :2]), {}),
        ((Q, K, V[:, :, :5]), {}),
        ((Q, K, V, BOOL[:5]), {}),
    ],
)
def test_what_torch_refuses_is_refused_by_torch(args, options, calls):
    with pytest.raises(RuntimeError) as theirs:
        attend(*args, **options)
    with TiledAttention(min_scores=0), pytest.raises(RuntimeError) as ours:
        attend(*args, **options)
    assert str(ours.value) == str(theirs.value)
    assert not calls


def test_short_sequences_keep_plain_attention(calls):
    with TiledAttention(min_scores=37):
        attend(Q, K, V)
    assert not calls
    with TiledAttention(min_scores=36):
        attend(Q, K, V)
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_mask_that_moves_is_differentiated_in_every_mode(calls):
    def loss(mask):
        return attend(Q, K, V, mask).sin().sum()

    exact = torch.func.jvp(torch.func.grad(loss), (FLOAT,), (FLOAT.cos(),))[1]
    slope = torch.func.jvp(loss, (FLOAT,), (FLOAT.cos(),))[1]
    with TiledAttention(min_scores=0):
        torch.testing.assert_close(torch.func.jvp(torch.func.grad(loss), (FLOAT,), (FLOAT.cos(),))[1], exact)
        torch.testing.assert_close(torch.func.jvp(loss, (FLOAT,), (FLOAT.cos(),))[1], slope)
        torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(FLOAT[None])[0], torch.func.grad(loss)(FLOAT))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(FLOAT, FLOAT.cos())
            torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(loss(dual)).tangent, slope)
    assert not calls


def test_autocast_casts_as_it_does_for_torch(calls):
    q, k, v = (t.float() for t in (Q, K, V))
    with TiledAttention(min_scores=0), torch.autocast("cpu", torch.bfloat16):
        found = attend(q, k, v)
    assert len(calls) == 1
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), attend(Q, K, V), rtol=0.02, atol=0.02)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.mix, self.head = nn.Embedding(5, 8), nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        q, k, v = self.mix(x).unflatten(-1, (3, 2, 4)).movedim(-3, 0).transpose(-2, -3)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2)
        return self.head(x).flatten(0, 1)


@pytest.mark.parametrize("make", [es.hessian, es.ggn, es.functional_hessian, es.fisher])
def test_products_of_a_decoder_are_the_same(make, calls, monkeypatch):
    torch.manual_seed(0)
    model = Decoder().double()
    tokens, targets = torch.randint(0, 5, (2, 7)), torch.randint(0, 5, (14,))

    def product():
        H = make(es.Objective(model, lambda f, t: F.cross_entropy(f, t), (tokens, targets), weight=lambda t: len(t)))
        v = torch.randn(H.n, 2, dtype=H.dtype, generator=torch.Generator().manual_seed(1))
        return H @ v

    plain = product()
    assert not calls
    monkeypatch.setattr(TiledAttention.__init__, "__defaults__", (0,))
    torch.testing.assert_close(product(), plain, rtol=1e-9, atol=1e-12)
    assert calls


def test_an_encoder_with_a_padding_mask(calls, monkeypatch):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True), 1, enable_nested_tensor=False)
    x, padded = torch.randn(2, 6, 8, dtype=torch.float64), torch.arange(6) >= torch.tensor([[6], [4]])
    forward = lambda m, inputs: m(inputs, src_key_padding_mask=padded).mean(1)  # noqa: E731

    def product():
        H = es.hessian(es.Objective(model.double(), nn.MSELoss(), (x, torch.zeros(2, 8, dtype=x.dtype)), forward=forward))
        return H @ torch.ones(H.n, dtype=H.dtype)

    plain = product()
    monkeypatch.setattr(TiledAttention.__init__, "__defaults__", (0,))
    torch.testing.assert_close(product(), plain, rtol=1e-9, atol=1e-12)
    assert calls
