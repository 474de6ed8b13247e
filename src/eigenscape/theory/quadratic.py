r"""The local picture: what the eigenvalues of a Hessian say about a critical point and about descending to it.

Around a critical point the loss is `1/2 theta^T H theta`, and every eigendirection lives on its own. Each function takes a
tensor of eigenvalues (*batch, n) or a `Spectrum`.
"""

from dataclasses import dataclass
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..core import Spectrum, TheoryError
from ..core.spectrum import ExplicitSpace
from .moments import as_float64, check_finite, conform

Eigenvalues = Float[Tensor, "*batch n"] | Spectrum
PROBES = ("rademacher", "gaussian", "sphere")


class CriticalPoint(IntEnum):
    """What second derivatives prove about a critical point.

    Eigenvalues of both signs make a saddle, zeros or not; a singular Hessian without a second sign proves nothing: `x^4`,
    `-x^4` and `x^3` share theirs. [spectral-view] calls every singular Hessian degenerate.
    """

    MINIMUM = 0
    MAXIMUM = 1
    SADDLE = 2
    INCONCLUSIVE = 3


def classify(eigenvalues: Eigenvalues, *, tol: float = 1e-12) -> Int[Tensor, "*batch"]:
    """Return the `CriticalPoint`, as integers; eigenvalues within `tol` of the largest magnitude count as 0.

    >>> signs = torch.tensor([[2.0, 1.0, 3.0], [-1.0, -2.0, -3.0], [1.0, 0.0, -1.0], [1.0, 0.0, 2.0]])
    >>> [CriticalPoint(int(kind)).name for kind in classify(signs)]
    ['MINIMUM', 'MAXIMUM', 'SADDLE', 'INCONCLUSIVE']
    """
    values = _values(eigenvalues)
    noise = tol * values.abs().amax(-1, keepdim=True)
    up, down = values > noise, values < -noise
    kinds = {
        CriticalPoint.MINIMUM: up.all(-1),
        CriticalPoint.MAXIMUM: down.all(-1),
        CriticalPoint.SADDLE: up.any(-1) & down.any(-1),
    }
    found = torch.full(values.shape[:-1], int(CriticalPoint.INCONCLUSIVE), device=values.device)
    for kind, members in kinds.items():
        found = torch.where(members, int(kind), found)
    return found


def contraction(
    eigenvalues: Eigenvalues, lr: float | Float[Tensor, "*batch"], momentum: float | Float[Tensor, "*batch"] = 0.0
) -> Float[Tensor, "*batch n"]:
    r"""Return the factor by which each eigendirection shrinks per step, in the long run: `|1 - eta l|` without momentum.

    With heavy-ball momentum beta it is the larger root of `z^2 - (1 + beta - eta l) z + beta` in magnitude, which is
    `sqrt(beta)` wherever the roots are complex. More than 1 diverges.

    >>> contraction(torch.tensor([10.0, 1.0]), 0.1).round(decimals=12).tolist()
    [0.0, 0.9]
    >>> contraction(torch.tensor([10.0, 1.0]), 0.1, momentum=0.81).round(decimals=12).tolist()
    [0.9, 0.9]
    """
    values, eta, beta = _steps(_values(eigenvalues), lr, momentum)
    half = (1 + beta - eta * values) / 2
    spread = half.square() - beta
    complex_pair = spread < 0
    root = torch.where(complex_pair | (spread == 0), 0.0, torch.where(spread > 0, spread, 1.0).sqrt())
    return torch.where(complex_pair, torch.where(beta > 0, beta, 1.0).sqrt(), half.abs() + root)


def rate(
    eigenvalues: Eigenvalues, lr: float | Float[Tensor, "*batch"], momentum: float | Float[Tensor, "*batch"] = 0.0
) -> Float[Tensor, "*batch"]:
    """Return the factor of the slowest direction.

    >>> rate(torch.tensor([10.0, 1.0]), 0.1).item()
    0.9
    """
    return contraction(eigenvalues, lr, momentum).amax(-1)


@dataclass(frozen=True, eq=False)
class Tuning:
    """The best constant learning rate (and momentum) for a quadratic, and the rate that it reaches."""

    lr: Float[Tensor, "*batch"]
    momentum: Float[Tensor, "*batch"]
    rate: Float[Tensor, "*batch"]


def tune(eigenvalues: Eigenvalues, *, momentum: bool = False) -> Tuning:
    r"""Return the fastest step for a positive definite Hessian with condition number kappa.

    Plain descent: `eta = 2 / (l_max + l_min)`, rate `(kappa - 1) / (kappa + 1)`; only this learning rate reaches it,
    `1 / l_max` gives `1 - 1 / kappa`. Heavy ball (Polyak, 1964): `eta = 4 / (sqrt l_max + sqrt l_min)^2`, rate
    `(sqrt kappa - 1) / (sqrt kappa + 1)`, whose square is beta.

    >>> best = tune(torch.tensor([9.0, 1.0]))
    >>> best.lr.item(), best.rate.item()
    (0.2, 0.8)
    >>> tune(torch.tensor([9.0, 1.0]), momentum=True).rate.item()
    0.5
    """
    values = _values(eigenvalues)
    top, low = values.amax(-1), values.amin(-1)
    if bool((low <= 0).any()):
        raise TheoryError(
            f"the smallest eigenvalue is {float(low.min()):.3g}; expected a positive definite Hessian: on a singular or "
            "indefinite one no step contracts every direction."
        )
    if not momentum:
        return Tuning(2 / (top + low), torch.zeros_like(top), (top - low) / (top + low))
    r, s = top.sqrt(), low.sqrt()
    best = (r - s) / (r + s)
    return Tuning(4 / (r + s).square(), best.square(), best)


def slowest(eigenvalues: Eigenvalues, lr: float | Float[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
    """Index of the direction along which gradient descent is slowest: the flattest, for `eta < 2 / (l_max + l_min)`.

    >>> slowest(torch.tensor([17.2, 2.8]), torch.tensor([0.05, 0.11])).tolist()
    [1, 0]
    """
    return contraction(eigenvalues, lr).argmax(-1)


def worked_example() -> Spectrum:
    r"""Return the Hessian of `2 w_1^2 + 4 w_1 w_2 + 8 w_2^2`, the example of [spectral-view]: `10 +- 2 sqrt 13`.

    Two sentences there need mending. Descent is *faster* along the steep `v_1` for every `eta < 2 / (l_1 + l_2) = 0.1`, as
    slow at 0.1, and slower only from there to the edge of stability `2 / l_1 = 0.116`. And the rate
    `(kappa - 1) / (kappa + 1)` is that of `eta = 0.1` alone.

    >>> s = worked_example()
    >>> s.values.round(decimals=3).tolist(), round(s.condition_number.item(), 4)
    ([17.211, 2.789], 6.1713)
    >>> contraction(s, 0.05).round(decimals=3).tolist()          # ascending, as in expand(): flat, then steep
    [0.861, 0.139]
    """
    root = 2 * 13**0.5
    values = torch.tensor([10 + root, 10 - root], dtype=torch.float64)
    v = torch.tensor([4.0, 6 + root], dtype=torch.float64)  # (H - l_1) v = 0, first row
    v = v / v.norm()
    spaces = ExplicitSpace(v.unsqueeze(-1)), ExplicitSpace(torch.stack([v[1], -v[0]]).unsqueeze(-1))
    return Spectrum(values, torch.ones(2, dtype=torch.int64), ("outlier", "outlier"), spaces)


def trace_variance(H: Float[Tensor, "*batch n n"], probes: str = "rademacher") -> Float[Tensor, "*batch"]:
    r"""Variance of one sample `z^T H z` of Hutchinson's trace estimator; m independent ones divide it by m.

    Gaussian probes: `2 |H|_F^2`. Rademacher: `2 sum_{i != j} H_ij^2`, the smallest of all with independent entries. The
    sphere of radius `sqrt n`: `2 n / (n + 2) (|H|_F^2 - tr(H)^2 / n)`, which vanishes for multiples of the identity.

    >>> H = torch.tensor([[1.0, 2.0], [2.0, 3.0]])
    >>> [trace_variance(H, probes).item() for probes in ("rademacher", "gaussian", "sphere")]
    [16.0, 36.0, 10.0]
    """
    (H,) = conform({"H": "n n"}, H=H)
    if probes not in PROBES:
        raise TheoryError(f"probes is {probes!r}; expected one of {', '.join(PROBES)}.")
    n, diagonal = H.shape[-1], H.diagonal(dim1=-2, dim2=-1)
    H = (H + H.mT) / 2  # the form sees the symmetric part only
    if probes == "gaussian":
        return 2 * H.square().sum((-2, -1))
    if probes == "rademacher":
        return 2 * (H - torch.diag_embed(diagonal)).square().sum((-2, -1))
    centred = H - torch.diag_embed((diagonal.mean(-1, keepdim=True)).expand_as(diagonal))
    return 2 * n / (n + 2) * centred.square().sum((-2, -1))


def _values(eigenvalues: Eigenvalues) -> Float[Tensor, "*batch n"]:
    """Return all eigenvalues, in float64."""
    values = eigenvalues.expand() if isinstance(eigenvalues, Spectrum) else eigenvalues
    (values,) = conform({"eigenvalues": "n"}, eigenvalues=values)
    return values


def _steps(values: Tensor, lr: float | Tensor, momentum: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return eigenvalues, learning rates and momenta that broadcast against them."""
    given = {
        name: number if isinstance(number, Tensor) else torch.tensor(number, dtype=torch.float64, device=values.device)
        for name, number in (("lr", lr), ("momentum", momentum))
    }
    eta, beta = as_float64(**given)
    check_finite(lr=eta, momentum=beta)
    if bool((eta < 0).any()) or bool((beta < 0).any()):
        raise TheoryError("lr or momentum is negative; expected 0 or more.")
    return values, eta.unsqueeze(-1), beta.unsqueeze(-1)
