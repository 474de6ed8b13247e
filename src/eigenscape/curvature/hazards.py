"""Conditions under which a loss is not a fixed, twice differentiable function of the parameters."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..core import CurvatureError, TrainingModeError
from .attention import TiledAttention

DROPOUTS = (nn.modules.dropout._DropoutNd,)
BATCH_NORMS = (nn.modules.batchnorm._NormBase,)


def check_mode(model: nn.Module) -> None:
    """Refuse active dropout and batch normalisation in training mode, naming the module."""
    for name, module in model.named_modules():
        if not module.training:
            continue
        label = f"{name or 'the model'} ({type(module).__name__})"
        p = module.p if isinstance(module, DROPOUTS) else getattr(module, "dropout", 0.0)
        if isinstance(p, float) and p > 0 and (isinstance(module, (*DROPOUTS, nn.RNNBase, nn.MultiheadAttention))):
            raise TrainingModeError(
                f"{label} drops units with p={p} in training mode, so the loss changes from pass to pass; "
                "expected a deterministic model: model.eval()."
            )
        if isinstance(module, BATCH_NORMS):
            raise TrainingModeError(
                f"{label} normalises by batch statistics in training mode, so the loss depends on how the data is cut into "
                "batches; expected model.eval(), or Objective(..., check=False) to mean exactly these batches."
            )


def check_finite_parameters(parameters: dict[str, Tensor]) -> None:
    """Refuse NaN and inf, naming the parameter."""
    for name, p in parameters.items():
        if not bool(torch.isfinite(p).all()):
            bad = int((~torch.isfinite(p)).sum())
            raise CurvatureError(f"parameter {name!r} has {bad} entries that are NaN or inf; expected finite weights.")


@contextlib.contextmanager
def differentiable_twice(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Use only kernels that have second derivatives, keep every random stream, and restore all settings.

    Fused attention has no second derivative, so over long sequences the blockwise attention is used, which has, and over
    short ones the plain formula; cuDNN's recurrent layers have none either; the fast path of `nn.MultiheadAttention` has not
    even a first.
    """
    fastpath = torch.backends.mha.get_fastpath_enabled()
    recurrent = device.type == "cuda" and any(isinstance(m, nn.RNNBase) for m in model.modules())
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            sdpa_kernel(SDPBackend.MATH),
            TiledAttention(),
            torch.backends.cudnn.flags(enabled=False) if recurrent else contextlib.nullcontext(),
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
