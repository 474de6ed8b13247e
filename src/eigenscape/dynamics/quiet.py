"""Looking without touching: whatever a measurement needs, the training afterwards is bitwise what it was."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn


@contextlib.contextmanager
def quiet(model: nn.Module | None, evaluate: bool = True) -> Iterator[None]:
    """Measure inside; modes, buffers and every random stream (torch's, NumPy's, Python's) come back as they were.

    With `evaluate` the model is in evaluation mode inside: dropout is off and batch norm uses its running statistics, so the
    loss is a fixed function. Autocast is off: curvature is measured in the parameters' own precision.
    """
    modes = [] if model is None else [(m, m.training) for m in model.modules()]
    buffers = [] if model is None else [(b, b.detach().clone()) for b in model.buffers()]
    python, old_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices), contextlib.ExitStack() as stack:
            for device in ("cpu", "cuda"):
                if device == "cpu" or devices:
                    stack.enter_context(torch.autocast(device, enabled=False))
            if evaluate:
                for module, _ in modes:
                    module.training = False
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, old in buffers:
                if not torch.equal(buffer, old):
                    buffer.copy_(old)
        random.setstate(python)
        np.random.set_state(old_numpy)  # noqa: NPY002
