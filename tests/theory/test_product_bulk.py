"""The product-bulk theorem on models that are not two-layer networks, against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import hessians
from strategies import normal, random_stream, seeds
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from two_factor_cases import factors, several

from eigenscape.core import TheoryError
from eigenscape.theory.product_bulk import product_bulk

BATCH = 20
sizes = st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 4, 6, 9]), st.integers(1, 3))  # K, m, D


def tanh_net(B, rest, X, Y):
    """Three layers with a tanh after the product, under cross-entropy."""
    return cross_entropy(torch.tanh(X @ B.T) @ rest.reshape(3, -1).T, Y)


def attention_scores(B, rest, X, Y):
    """Bilinear attention `x W_Q W_K^T x^T` on tokens of dimension D; needs K = D."""
    tokens = X[:, : B.shape[1]]
    A = torch.softmax(tokens @ B @ tokens.T, -1)
    return ((A @ tokens) @ rest.reshape(B.shape[1], -1)).sin().sum()


def skip_connection(B, rest, X, Y):
    """The product twice, and beside a linear map: nothing but W V matters."""
    return ((X @ B.T).square() @ torch.ones(len(B), dtype=X.dtype) + (X @ rest.reshape(-1, X.shape[1]).T).sum(-1)).exp().mean()


MODELS = {"tanh": tanh_net, "attention": attention_scores, "skip": skip_connection}


def draw(model, size, seed):
    K, m, D = size
    K = D if model == "attention" else K
    g = random_stream(seed)
    W, V = factors(BATCH, K, m, D, g)
    scale = (W.norm(dim=(-2, -1)) * V.norm(dim=(-2, -1))).clamp(min=1).sqrt()[:, None, None]
    length = {"tanh": 3 * K, "attention": D * 2, "skip": 2 * D}[model]
    return W / scale, V / scale, normal(g, BATCH, length), normal(g, BATCH, 5, D) / 2, torch.randint(3, (BATCH, 5), generator=g)


def check(model, size, seed):
    """Every eigenpair is one of the full Hessian, other parameters included, and there are as many as promised."""
    W, V, rest, X, Y = draw(model, size, seed)
    (K, m), D, of = W.shape[-2:], V.shape[-1], MODELS[model]

    def loss(theta, X, Y):
        V, W, rest = theta[: m * D].reshape(m, D), theta[m * D : m * (D + K)].reshape(K, m), theta[m * (D + K) :]
        return of(W @ V, rest, X, Y)

    H = hessians(loss, torch.cat([V.flatten(1), W.flatten(1), rest], -1), X, Y)
    spectrum = product_bulk(W, V, vmap(grad(of))(W @ V, rest, X, Y))
    scale = torch.linalg.matrix_norm(H, 2).clamp(min=1)[:, None, None]
    bases = [spectrum.eigenspace(i) for i in range(len(spectrum.labels))]
    for i, Q in enumerate(bases):
        padded = torch.cat([Q, Q.new_zeros(BATCH, rest.shape[-1], Q.shape[-1])], -2)
        residual = (H @ padded - spectrum.values[:, i, None, None] * padded) / scale
        assert residual.numel() == 0 or residual.abs().max() <= 1e-10
        Z = normal(random_stream(i), m * (K + D), 2)
        assert_close(spectrum.project(i, Z), Q @ (Q.mT @ Z), atol=1e-12, rtol=0)
    Q = torch.cat(bases, -1) if bases else torch.zeros(BATCH, 1, 0, dtype=torch.float64)
    assert Q.shape[-1] == spectrum.n
    assert (Q.mT @ Q - torch.eye(Q.shape[-1], dtype=torch.float64)).abs().sum() <= 1e-10
    assert spectrum.n >= (m - K - D) * (K + D)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(MODELS)), sizes, seeds())
def test_eigenpairs_of_the_full_hessian(model, size, seed):
    check(model, size, seed)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.sampled_from(list(MODELS)), sizes, seeds())
def test_eigenpairs_in_two_thousand_cases(model, size, seed):
    check(model, size, seed)


def test_counts_are_width_minus_the_space_of_both_factors():
    for K, m, D in [(2, 9, 3), (1, 4, 1), (3, 6, 2)]:
        W, V, G = several(m, (K, m), (m, D), (K, D))
        spectrum = product_bulk(W, V, G)
        sigma = torch.linalg.svdvals(G)
        assert_close(spectrum.values[: 2 * len(sigma)], torch.cat([sigma, -sigma]), atol=1e-12, rtol=1e-12)
        assert spectrum.multiplicities[: 2 * len(sigma)].eq(m - K - D).all()
        zeros = (D - len(sigma)) * (m - K) + (K - len(sigma)) * (m - D)
        assert spectrum.n == 2 * len(sigma) * (m - K - D) + zeros


def test_no_room_means_no_bulk():
    spectrum = product_bulk(torch.eye(2), torch.eye(2), torch.eye(2))
    assert spectrum.n == 0
    assert spectrum.expand().shape == (0,)


def test_gradient_zero_leaves_the_null_space_only():
    W, V = several(1, (1, 5), (5, 2))
    spectrum = product_bulk(W, V, torch.zeros(1, 2))
    assert spectrum.labels == ("zero",)
    assert spectrum.n == 2 * (5 - 1) + 1 * (5 - 2)


def test_gradients_of_the_bulk():
    W, V, G = (A.requires_grad_() for A in several(3, (2, 6), (6, 2), (2, 2)))
    assert torch.autograd.gradcheck(lambda G: product_bulk(W, V, G).values, (G,))
    assert torch.autograd.gradcheck(lambda W, V: product_bulk(W, V, torch.tanh(W @ V)).max, (W, V))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"V": torch.ones(3, 2)}, r"V has shape \(3, 2\); expected \(\.\.\., m, D\) with m = 4 as in W\."),
        (
            {"gradient": torch.ones(2, 3)},
            r"gradient has shape \(2, 3\); expected \(\.\.\., K, D\) with K = 3 as in W and D = 2",
        ),
        ({"gradient": torch.full((3, 2), torch.nan)}, "gradient holds NaN or infinity"),
    ],
)
def test_refusals(change, sentence):
    good = {"W": torch.ones(3, 4), "V": torch.ones(4, 2), "gradient": torch.ones(3, 2)}
    with pytest.raises(TheoryError, match=sentence):
        product_bulk(**(good | change))
