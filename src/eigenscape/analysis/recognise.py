"""Recognise networks that have a closed form, and give their exact spectrum in the order of their parameters."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from ..core import Layout, NotRecognised, Spectrum
from ..curvature import Objective
from ..curvature.self_attention import SelfAttention
from ..theory.spaces import Permuted
from .recognise_attention import attention_answer
from .recognise_families import Answer, chain_answer
from .recognise_layers import read_layers
from .recognise_samples import check_loss

LIMIT = 2500


@dataclass(frozen=True, eq=False, kw_only=True)
class Recognised(Spectrum):
    """An exact Hessian spectrum, with the closed form it comes from and what was checked to use it.

    Eigenvectors are flat in the order of the objective's parameters, `layout`.
    """

    theorem: str
    """The function of `eigenscape.theory` that was used."""
    assumptions: tuple[str, ...]
    """What was checked, in sentences."""
    layout: Layout

    @property
    def status(self) -> str:
        """One sentence."""
        return f"exact, by theory.{self.theorem}: {'; '.join(self.assumptions)}"


def spectrum(obj: Objective, *, limit: int = LIMIT) -> Recognised:
    """Return the exact Hessian spectrum of an objective whose network has a closed form; otherwise say what breaks it.

    Recognised are chains of `nn.Linear` (as `nn.Sequential` or in a module of one's own): one layer; two layers with or
    without biases, linear, ReLU or leaky ReLU, under squared errors, cross-entropy or binary cross-entropy with logits
    (weights, ignored targets and smoothing included); any depth of linear layers under squared errors where residuals are
    uncorrelated with the inputs (as at balanced and all other unobstructed minima) or where the layers are aligned with
    the data; and `SelfAttention`. All parameters must be selected. Computed in float64.

    limit: largest eigenproblem to solve densely. `NotRecognised` names the first thing that is not part of the pattern.

    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), torch.nn.Linear(2, 1, bias=False))
    >>> for p in model.parameters():
    ...     _ = torch.nn.init.ones_(p)
    >>> s = spectrum(Objective(model, torch.nn.MSELoss(), (torch.ones(1, 1), torch.ones(1, 1))))
    >>> s.theorem, s.expand().round(decimals=6).tolist()
    ('scalar_linear', [-2.0, -2.0, 2.0, 10.0])
    """
    if obj.forward is not None:
        raise NotRecognised("the objective has a forward= of its own; expected one that calls the model on its inputs.")
    check_loss(obj)
    if type(obj.model) is SelfAttention:
        order = _order(obj, list(obj.model.parameters()))
        return _finish(attention_answer(obj, obj.model), obj.layout, order)
    layers = read_layers(obj.model)
    order = _order(obj, layers.tensors)
    return _finish(chain_answer(obj, layers, limit), obj.layout, order)


def _order(obj: Objective, tensors: list[Tensor]) -> Int[Tensor, "n"]:
    """Position in the closed form of every entry of the objective's flat vector."""
    names = {id(p): name for name, p in obj.model.named_parameters()}
    own = [names[id(t)] for t in tensors]
    left_out = [name for name in own if name not in obj.layout.names]
    if left_out:
        raise NotRecognised(
            f"parameter {left_out[0]!r} is not selected; expected all {len(own)} of the network: leave out params= and let "
            "every parameter require grad."
        )
    unused = [name for name in obj.layout.names if name not in own]
    if unused:
        raise NotRecognised(
            f"parameter {unused[0]!r} belongs to no layer of the chain; expected none besides {', '.join(own)}."
        )
    form = Layout(tuple(own), tuple(tuple(t.shape) for t in tensors))
    return torch.cat([torch.arange(form.size)[form.slice(name)] for name in obj.layout.names])


def _finish(answer: Answer, layout: Layout, order: Int[Tensor, "n"]) -> Recognised:
    """Put the eigenvectors into the order of the model."""
    found = answer.spectrum
    order = answer.order.to(order.device)[order] if answer.order is not None else order
    spaces = found.spaces
    if spaces is not None and not order.equal(torch.arange(len(order))):
        spaces = tuple(Permuted(space, order.to(found.values.device)) for space in spaces)
    return Recognised(
        found.values,
        found.multiplicities,
        found.labels,
        spaces,
        theorem=answer.theorem,
        assumptions=answer.assumptions,
        layout=layout,
    )
