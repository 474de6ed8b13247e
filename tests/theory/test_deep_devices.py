"""Deep linear closed forms and recognition on CUDA: the same numbers, on the device of the inputs."""

import pytest
import torch
from torch import nn

import eigenscape as es

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
THEORY = es.theory


def inputs(device):
    g = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (3, 3), (2, 3), (9, 4), (9, 2)]
    return [torch.randn(*shape, generator=g, dtype=torch.float64).to(device) for shape in shapes]


def aligned(V, M, W, X, Y):
    frames = [torch.linalg.qr(A).Q for A in (V.T @ V, M, M.T, W @ W.T)]
    D = [torch.zeros(b, a, dtype=X.dtype, device=X.device).fill_diagonal_(0.7) for b, a in ((3, 4), (3, 3), (2, 3))]
    weights = [Q @ d @ P.T for P, Q, d in zip(frames, frames[1:], D)]
    X = THEORY.whiten(X)
    Y = X @ frames[0][:, :2] @ torch.diag(X.new_tensor([2.0, 1.0])) @ frames[-1].T
    assert len(THEORY.aligned_frames(weights, X, Y)) == 4
    return THEORY.aligned_deep_linear(weights, X, Y, frames, tol=1e-10)


def recognised(*widths, act=nn.Identity, criterion=es.losses.half_mse):
    def function(V, M, W, X, Y):
        model = nn.Sequential(nn.Linear(4, widths[0]), act(), nn.Linear(widths[0], 2)).to(X)
        for p, A in zip(model.parameters(), (V, V[:, 0], W, W[:, 0])):
            p.data = A[: p.shape[0]].clone()
        return es.spectrum(es.Objective(model, criterion, (X, Y.argmax(-1) if criterion is not es.losses.half_mse else Y)))

    return function


FORMS = {
    "deep_linear_ggn": lambda V, M, W, X, Y: THEORY.deep_linear_ggn([V, M, W], X),
    "balanced": lambda V, M, W, X, Y: THEORY.balanced_minimum(X, Y, 3).spectrum,
    "two layers, white": lambda V, M, W, X, Y: THEORY.two_layer_white_ggn(W, V, s2=2.0),
    "aligned": aligned,
    "recognised linear": recognised(3),
    "recognised relu": recognised(3, act=nn.ReLU, criterion=nn.CrossEntropyLoss()),
}


@pytest.mark.parametrize("function", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
def test_the_same_numbers_on_the_device_of_the_inputs(function, device):
    here, there = function(*inputs("cpu")), function(*inputs(device))
    assert there.values.device.type == device
    torch.testing.assert_close(there.expand().cpu(), here.expand(), rtol=0, atol=1e-10)
    bases = [there.eigenspace(i) for i in range(len(there.labels))]
    Q = torch.cat(bases, -1)
    assert Q.device.type == device
    H = sum(value * B @ B.T for value, B in zip(there.values, bases))
    torch.testing.assert_close(torch.linalg.eigvalsh(H).cpu(), here.expand(), rtol=0, atol=1e-10)
    torch.testing.assert_close(there.project(0, Q), bases[0] @ (bases[0].T @ Q), rtol=0, atol=1e-10)
