"""Aligned deep linear networks: the full Hessian by blocks against autograd, at any loss and any degeneracy."""

from itertools import pairwise

import pytest
import torch
from deep_nets import WIDTHS, dense_hessian
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import assert_eigenbasis, assert_same_spectrum
from strategies import normal, pick, random_stream, seeds
from torch.testing import assert_close

from eigenscape.core import TheoryError
from eigenscape.theory.aligned import aligned_deep_linear
from eigenscape.theory.aligned_frames import aligned_frames

BATCH = 25
VALUES = {
    "generic": lambda t: t,
    "zero": lambda t: 0 * t,
    "ones": lambda t: torch.ones_like(t),
    "whole numbers": lambda t: t.round(),
    "first only": lambda t: t * (torch.arange(len(t)) == 0),
    "last only": lambda t: t * (torch.arange(len(t)) == len(t) - 1),
    "large": lambda t: 10 * t,
    "small": lambda t: 1e-3 * t,
}
deep = st.sampled_from(WIDTHS)


def diagonal(g, rows, columns, kinds=VALUES):
    t = torch.stack([pick(kinds, g)(normal(g, min(rows, columns))) for _ in range(BATCH)])
    return torch.nn.functional.pad(torch.diag_embed(t), (0, columns - t.shape[-1], 0, rows - t.shape[-1]))


def aligned(widths, seed, kinds=VALUES, cross=VALUES):
    """Weights, data and frames; the moments of X and Y are diagonal in the first and last frame."""
    g = random_stream(seed)
    Q = [torch.linalg.qr(normal(g, BATCH, d, d)).Q for d in widths]
    weights = [B @ diagonal(g, b, a, kinds) @ A.mT for (a, b), (A, B) in zip(pairwise(widths), pairwise(Q))]
    d, K = widths[0], widths[-1]
    n = d + K + 1
    rows = torch.linalg.qr(normal(g, BATCH, n, n)).Q * n**0.5
    X = rows[..., :d] @ diagonal(g, d, d, kinds) @ Q[0].mT
    Y = (rows[..., :d] @ diagonal(g, d, K, cross) + rows[..., d : d + K]) @ Q[-1].mT
    return weights, X, Y, Q


@settings(max_examples=90, deadline=None)
@given(deep, seeds())
def test_spectrum(widths, seed):
    weights, X, Y, Q = aligned(widths, seed)
    assert_same_spectrum(aligned_deep_linear(weights, X, Y, Q, tol=1e-11), dense_hessian(widths, (), weights, None, X, Y))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(deep, seeds())
def test_spectrum_many(widths, seed):
    weights, X, Y, Q = aligned(widths, seed)
    assert_same_spectrum(aligned_deep_linear(weights, X, Y, Q, tol=1e-11), dense_hessian(widths, (), weights, None, X, Y))


@settings(max_examples=25, deadline=None)
@given(deep, seeds())
def test_eigenvectors(widths, seed):
    weights, X, Y, Q = aligned(widths, seed)
    H = dense_hessian(widths, (), weights, None, X, Y)
    for i in range(3):
        found = aligned_deep_linear([W[i] for W in weights], X[i], Y[i], [F[i] for F in Q], tol=1e-11)
        assert_eigenbasis(found, H[i])


@settings(max_examples=40, deadline=None)
@given(deep, seeds())
def test_frames_are_found_where_nothing_coincides(widths, seed):
    generic = {"generic": VALUES["generic"]}
    weights, X, Y, _ = aligned(widths, seed, generic, generic)
    H = dense_hessian(widths, (), weights, None, X, Y)
    for i in range(3):
        one = [W[i] for W in weights]
        found = aligned_deep_linear(one, X[i], Y[i], aligned_frames(one, X[i], Y[i]), tol=1e-8)
        assert_close(found.expand(), torch.linalg.eigvalsh(H[i]), rtol=0, atol=1e-9 * max(1.0, float(H[i].abs().max())))


def test_white_inputs_and_balanced_layers_are_aligned():
    """Saxe's setting: every input direction is as good as another, and layers share their singular values."""
    g = random_stream(0)
    rows = torch.linalg.qr(normal(g, 9, 9)).Q * 3
    R, U = torch.linalg.qr(normal(g, 3, 3)).Q, torch.linalg.qr(normal(g, 2, 2)).Q
    X = rows[:, :3] @ R.T
    Y = (rows[:, :3] @ torch.tensor([[2.0, 0], [0, 1], [0, 0]]).double() + 0.3 * rows[:, 3:5]) @ U.T
    t = torch.diag(torch.tensor([0.5, 0.1]).double())
    weights = [t @ R[:, :2].T, t, U @ t]
    found = aligned_deep_linear(weights, X, Y, aligned_frames(weights, X, Y))
    H = dense_hessian((3, 2, 2, 2), (), [W[None] for W in weights], None, X[None], Y[None])[0]
    assert_eigenbasis(found, H)
    assert_close(found.expand(), torch.linalg.eigvalsh(H), rtol=0, atol=1e-12)
    assert found.min < -0.1  # far from the Gauss-Newton matrix


def test_differentiable_by_the_weights():
    weights, X, Y, Q = ([t[0] for t in part] if isinstance(part, list) else part[0] for part in aligned((2, 3, 2), 3))
    scales = torch.ones(2, dtype=torch.float64, requires_grad=True)

    def extremes(scales):
        spectrum = aligned_deep_linear([s * W for s, W in zip(scales, weights)], X, Y, Q)
        return spectrum.max, spectrum.min

    assert torch.autograd.gradcheck(extremes, scales, atol=1e-6)


one = torch.eye(2, dtype=torch.float64)
turned = torch.tensor([[0.6, 0.8], [-0.8, 0.6]]).double()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: aligned_deep_linear([one], one, one, [one]), r"1 frames came with 1 weights; expected \[Q_0, ..., Q_L\]"),
        (lambda: aligned_deep_linear([turned], one, one, [one] * 2), r"W_1 is not diagonal in the given frames: off by 0.8"),
        (lambda: aligned_deep_linear([one], one * torch.tensor([1, 2]) @ turned, one, [one] * 2), r"X\^T X is not diagonal"),
        (lambda: aligned_deep_linear([one], one, turned, [one] * 2), r"Y\^T X is not diagonal .* linop.DeepLinear"),
        (lambda: aligned_deep_linear([one], one, one, [2 * one, one]), r"Q_0 Q_0\^T is off the identity by 3"),
        (lambda: aligned_deep_linear([one], one, one, [one, one[:1]]), r"Q_1 has shape \(1, 2\); expected"),
    ],
)
def test_bad_input_is_refused_in_words(call, message):
    with pytest.raises(TheoryError, match=message):
        call()
