r"""The measured history of the scalar linear network equals its exact map, over 10,000 steps.

f(x) = <w, v> x with half squared loss. With P = |w + v|, Q = |w - v|, c = (P^2 - Q^2) / 4 and r = E[x^2] c - E[x y], gradient
descent maps P by the factor 1 - lr r and Q by 1 + lr r; heavy ball has three-term recurrences with the same factors. The
largest eigenvalue of the Hessian is that of [[r + s P^2 / 2, s P Q / 2], [s P Q / 2, -r + s Q^2 / 2]], s = E[x^2]. The same
numbers come from `eigenscape.theory`.
"""

import numpy as np
import pytest
import torch
from torch import nn

from eigenscape.curvature import Objective, losses
from eigenscape.dynamics import Monitor
from eigenscape.theory.dynamics import gradient_descent
from eigenscape.theory.scalar_net import ScalarNet

STEPS, EVERY, WIDTH = 10_000, 50, 3


class Scalar(nn.Module):
    def __init__(self, w, v):
        super().__init__()
        self.w, self.v = nn.Parameter(w), nn.Parameter(v)

    def forward(self, x):
        return (self.w @ self.v) * x


def exact(P0, Q0, s, t, yy, lr, momentum):
    """Loss and sharpness after 0, 1, 2, ... steps."""
    a, b, a_old, b_old = 1.0, 1.0, 1.0, 1.0
    for _ in range(STEPS + 1):
        P, Q = abs(a) * P0, abs(b) * Q0
        c = (P * P - Q * Q) / 4
        r = s * c - t
        trace = s * (P * P + Q * Q) / 2
        gap = np.hypot(2 * r + s * (P * P - Q * Q) / 2, s * P * Q)
        yield (s * c * c - 2 * t * c + yy) / 2, (trace + gap) / 2
        a, a_old = (1 + momentum - lr * r) * a - momentum * a_old, a
        b, b_old = (1 + momentum + lr * r) * b - momentum * b_old, b


@pytest.mark.parametrize(("momentum", "lr"), [(0.0, 1e-3), (0.9, 2e-4)])
def test_history_equals_the_exact_map(momentum, lr):
    g = torch.Generator().manual_seed(7)
    w, v, x, y = (torch.randn(n, generator=g, dtype=torch.float64) for n in (WIDTH, WIDTH, 12, 12))
    y = y + 1.5 * x
    model = Scalar(w.clone(), v.clone())
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    obj = Objective(model, losses.half_mse, (x, y))
    monitor = Monitor(obj, optimizer, every=EVERY, measures=("effective",))
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses.half_mse(model(x), y).backward()
        optimizer.step()
        monitor.step()
    s, t, yy = (float(z.mean()) for z in (x * x, x * y, y * y))
    table = np.array(list(exact(float((w + v).norm()), float((w - v).norm()), s, t, yy, lr, momentum)))[EVERY::EVERY]
    assert len(monitor.history) == STEPS // EVERY == len(table)
    np.testing.assert_allclose(monitor.history["loss"], table[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(monitor.history["sharpness"], table[:, 1], rtol=1e-9)
    np.testing.assert_allclose(monitor.history["threshold"], 2 * (1 + momentum) / lr, rtol=1e-14)
    np.testing.assert_allclose(monitor.history["ratio"], table[:, 1] * lr / (2 * (1 + momentum)), rtol=1e-9)
    theory = gradient_descent(ScalarNet.of(w, v, x, y), lr, STEPS, momentum=momentum, every=EVERY).net
    np.testing.assert_allclose(monitor.history["loss"], theory.loss[1:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(monitor.history["sharpness"], theory.sharpness[1:], rtol=1e-9)
    assert table[0, 0] > 1.001 * table[-1, 0]
