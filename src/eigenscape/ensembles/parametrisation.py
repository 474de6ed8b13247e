"""How networks begin: parametrisations with their constants and the learning rates that go with them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ..core import CurvatureError, random_like, resolve_generator
from ..theory import sample_balanced_weights
from .ensemble import Ensemble

Draw = Callable[[tuple[int, int, int], torch.Generator], Tensor]


@dataclass(frozen=True)
class Scheme:
    """Of a layer from d_in to d_out: how it is drawn, the constant it is multiplied by, and its learning rate.

    `draw` takes (N, d_out, d_in) and a generator; `multiplier` and `rate` take (d_out, d_in), the rate in units of the
    learning rate of the run.
    """

    draw: Draw
    multiplier: Callable[[int, int], float] = lambda d_out, d_in: 1.0
    rate: Callable[[int, int], float] = lambda d_out, d_in: 1.0


def _uniform(bound: Callable[[int, int], float]) -> Draw:
    def draw(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        unit = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
        return bound(*shape[1:]) * (2 * unit - 1)

    return draw


def _normal(deviation: Callable[[int, int], float]) -> Draw:
    def draw(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        return deviation(*shape[1:]) * random_like(shape, generator, dtype=torch.float64, device=generator.device)

    return draw


def _orthogonal(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    members, d_out, d_in = shape
    A = random_like((members, max(shape[1:]), min(shape[1:])), generator, dtype=torch.float64, device=generator.device)
    Q, R = torch.linalg.qr(A)
    Q = Q * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    return Q if d_out >= d_in else Q.mT


SCHEMES: dict[str, Scheme] = {
    "sp": Scheme(_uniform(lambda d_out, d_in: d_in**-0.5)),
    "kaiming_uniform": Scheme(_uniform(lambda d_out, d_in: math.sqrt(6 / d_in))),
    "ntp": Scheme(_normal(lambda d_out, d_in: 1.0), multiplier=lambda d_out, d_in: d_in**-0.5),
    "mup": Scheme(_normal(lambda d_out, d_in: math.sqrt(min(1.0, d_out / d_in) / d_in)), rate=lambda d_out, d_in: d_out / d_in),
    "mup_printed": Scheme(_normal(lambda d_out, d_in: math.sqrt(d_out / d_in)), rate=lambda d_out, d_in: 1 / d_in),
    "orthogonal": Scheme(_orthogonal),
}


def initialise(
    parametrisation: str,
    widths: Sequence[int],
    members: int,
    generator: torch.Generator | None = None,
    *,
    activation: str = "linear",
    gain: float = 1.0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> tuple[Ensemble, tuple[float, ...]]:
    r"""Draw an ensemble, and return it with the factors by which each layer's learning rate is multiplied.

    `widths` is `[d_0, ..., d_L]`. For a layer from d_in to d_out the parametrisation is

    - `"sp"`: standard, the default of `nn.Linear`: uniform with bound `d_in^-1/2` (variance `1/(3 d_in)`), rate 1.
    - `"kaiming_uniform"`: `torch.nn.init.kaiming_uniform_` with its own defaults: bound `(6 / d_in)^1/2`, rate 1.
    - `"ntp"`: neural tangent: standard normal, output of the layer multiplied by `d_in^-1/2`, rate 1.
    - `"mup"`: maximal update, by the spectral condition of Yang et al. 2023: normal with deviation
      `d_in^-1/2 min(1, (d_out/d_in)^1/2)`, rate `d_out / d_in` for SGD.
    - `"mup_printed"`: as [cracking] App. D.1.3 prints it: variance `d_out / d_in`, rate `1 / d_in`. The constants of its
      source are lost there, and hidden layers grow by `width^1/2`.
    - `"orthogonal"`: orthonormal rows or columns, whichever are fewer, uniformly random.
    - `"balanced"`: `W_l W_l^T = W_{l+1}^T W_{l+1}` with singular values uniform in [0, 1] ([data] App. C).

    All weights are multiplied by `gain`. The same generator gives the same numbers on every device.

    >>> nets, rates = initialise("mup", [2, 8, 2], members=3)
    >>> nets.widths, len(nets), rates
    ((2, 8, 2), 3, (4.0, 0.25))
    """
    source, widths = resolve_generator(generator), [int(d) for d in widths]
    if len(widths) < 2 or min(widths) < 1 or members < 1:
        raise CurvatureError(f"widths are {widths} for {members} members; expected [d_0, ..., d_L] and at least one member.")
    layers = [(d_out, d_in) for d_in, d_out in pairwise(widths)]
    if parametrisation == "balanced":
        values = torch.rand((members, min(widths)), generator=source, dtype=torch.float64, device=source.device)
        weights = sample_balanced_weights(values, widths, generator=source)
        scheme = Scheme(_orthogonal)
    else:
        scheme = _scheme(parametrisation)
        weights = [scheme.draw((members, *layer), source) for layer in layers]
    ensemble = Ensemble(
        tuple((gain * W).to(device=device, dtype=dtype) for W in weights),
        activation,
        tuple(scheme.multiplier(*layer) for layer in layers),
    )
    return ensemble, tuple(scheme.rate(*layer) for layer in layers)


def _scheme(name: str) -> Scheme:
    if name not in SCHEMES:
        raise CurvatureError(f"parametrisation is {name!r}; expected one of {', '.join([*SCHEMES, 'balanced'])}.")
    return SCHEMES[name]
