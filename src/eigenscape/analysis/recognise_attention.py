"""The package's own self-attention module under losses that treat tokens one by one."""

import torch
from torch import Tensor

from .. import theory
from ..core import NotRecognised
from ..curvature import Objective
from ..curvature.criteria import CrossEntropy
from ..curvature.self_attention import SelfAttention
from .recognise_families import Answer
from .recognise_layers import check_plain
from .recognise_samples import Samples, read_samples


def attention_answer(obj: Objective, model: SelfAttention) -> Answer:
    """Use Theorem 3.5 for several heads: averages over sequences, any mask and sink."""
    check_plain(model)
    if isinstance(obj.output_loss, CrossEntropy):
        raise NotRecognised("cross-entropy couples the tokens of a sequence; expected MSELoss, half_mse or BCEWithLogitsLoss.")
    a, q, k = (p.detach().double() for p in (model.w_value, model.w_query, model.w_key))
    samples = read_samples(obj, lambda X: _outputs(model, X))
    tokens = _Tokens(samples)
    found = theory.self_attention_heads(
        a,
        q,
        k,
        samples.X,
        samples.outputs,
        loss=tokens.derivatives,
        mask=model.mask(samples.X.shape[-1]),
        sink=model.sink,
    )
    heads = f"{len(a)} attention head{'s' if len(a) > 1 else ''} of width {q.shape[-1]}"
    return Answer(found, "self_attention_heads", (heads, "a loss of each token by itself, by its two derivatives"))


def _outputs(model: SelfAttention, X: Tensor) -> Tensor:
    """Outputs in float64, of a copy of the formula in that precision."""
    twin = SelfAttention(
        model.w_query.shape[-1], heads=len(model.w_value), causal=model.causal, sink=model.sink, dtype=X.dtype, device=X.device
    )
    parameters = {name: p.detach().double() for name, p in model.named_parameters()}
    with torch.no_grad():
        return torch.func.functional_call(twin, parameters, (X,))


class _Tokens:
    """Derivatives of the loss of each token where the loss is a mean over tokens: L times those of a mean over sequences."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def derivatives(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (s L, 1) and curvature (s L, 1, 1) or 0-d."""
        L = self.samples.X.shape[-1]
        d1, d2 = L * self.samples.d1.reshape(-1, 1), L * self.samples.d2
        return d1, d2 if d2.ndim == 0 else d2.diagonal(dim1=-2, dim2=-1).reshape(-1, 1, 1)
