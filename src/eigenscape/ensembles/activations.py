"""Activations, with the derivatives that training and Hessian-vector products need."""

from torch import Tensor

from ..core import CurvatureError

ACTIVATIONS = ("linear", "relu", "tanh")


def check_activation(name: str) -> None:
    """Refuse an activation that is not known here.

    >>> check_activation("gelu")
    Traceback (most recent call last):
        ...
    eigenscape.core.errors.CurvatureError: activation is 'gelu'; expected one of linear, relu, tanh.
    """
    if name not in ACTIVATIONS:
        raise CurvatureError(f"activation is {name!r}; expected one of {', '.join(ACTIVATIONS)}.")


def activate(name: str, z: Tensor) -> tuple[Tensor, Tensor | None]:
    """Value and slope at z; the slope of the identity, 1, is None, and relu'(0) = 0 as in autograd.

    >>> activate("relu", torch.tensor([-1.0, 0.0, 2.0]))
    (tensor([0., 0., 2.]), tensor([0., 0., 1.]))
    """
    if name == "linear":
        return z, None
    if name == "relu":
        h = z.clamp(min=0)
        return h, (h > 0).to(z.dtype)
    h = z.tanh()
    return h, 1 - h.square()


def bend(name: str, h: Tensor, slope: Tensor | None) -> Tensor | None:
    """Second derivative from value and slope; None where it is zero.

    >>> h, slope = activate("tanh", torch.tensor([0.5]))
    >>> bend("tanh", h, slope)
    tensor([-0.7269])
    """
    return -2 * h * slope if name == "tanh" and slope is not None else None
