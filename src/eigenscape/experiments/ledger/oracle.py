"""Brute force: derivatives of the actual network by autograd, dense eigenvalues, and the errors against them.

Nothing here knows a closed form; `eigenscape.theory` is what is being judged.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.func import grad, jacrev, vmap

Loss = Callable[..., Tensor]


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal float64 numbers."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def uniform(generator: torch.Generator, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform float64 numbers."""
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def orthonormal(generator: torch.Generator, *shape: int) -> Float[Tensor, "*batch n k"]:
    """Random matrices with orthonormal columns (rows, where there are more columns than rows)."""
    *lead, rows, cols = shape
    if rows < cols:
        return orthonormal(generator, *lead, cols, rows).mT
    return torch.linalg.qr(normal(generator, *shape)).Q


def hessians(loss: Loss, theta: Float[Tensor, "b p"], *data: Tensor) -> Float[Tensor, "b p p"]:
    """Hessian of `loss(theta, *data)` for each member of a batch, by double backward."""
    return vmap(jacrev(grad(loss)))(theta, *data)


def gradients(loss: Loss, theta: Float[Tensor, "b p"], *data: Tensor) -> Float[Tensor, "b p"]:
    """Gradient of `loss(theta, *data)` for each member of a batch."""
    return vmap(grad(loss))(theta, *data)


def values(loss: Loss, theta: Float[Tensor, "b p"], *data: Tensor) -> Tensor:
    """`loss(theta, *data)` for each member of a batch."""
    return vmap(loss)(theta, *data)


def gauss_newton(outputs: Loss, theta: Float[Tensor, "b p"], *inputs: Tensor) -> Float[Tensor, "b p p"]:
    """`J^T J / n` of a network whose outputs have shape (n, ...)."""
    jacobian = vmap(jacrev(outputs))(theta, *inputs)
    flat = jacobian.reshape(jacobian.shape[0], -1, theta.shape[-1])
    return flat.mT @ flat / jacobian.shape[1]


def split(theta: Float[Tensor, "p"], *shapes: Sequence[int]) -> tuple[Tensor, ...]:
    """Cut a flat vector into row-major tensors."""
    sizes = [torch.Size(s).numel() for s in shapes]
    return tuple(t.reshape(s) for t, s in zip(theta.split(sizes), shapes))


def pack(*tensors: Tensor) -> Float[Tensor, "b p"]:
    """Flatten each member of a batch into one vector."""
    return torch.cat([t.reshape(t.shape[0], -1) for t in tensors], -1)


def radius(H: Float[Tensor, "*b p p"]) -> Float[Tensor, "*b"]:
    """Spectral radius."""
    return torch.linalg.eigvalsh(H).abs().amax(-1)


def scale(H: Float[Tensor, "*b p p"]) -> Float[Tensor, "*b"]:
    """Return max(1, spectral radius), the unit of errors."""
    return radius(H).clamp(min=1.0)


def gap(spectrum: Float[Tensor, "b q"], H: Float[Tensor, "b p p"]) -> Float[Tensor, "b"]:
    """Largest distance between a claimed spectrum, with multiplicities, and the true one; a wrong count is infinite."""
    if spectrum.shape[-1] != H.shape[-1]:
        return torch.full(H.shape[:-2], torch.inf, dtype=torch.float64)
    true = torch.linalg.eigvalsh(H)
    claimed = spectrum.nan_to_num(nan=torch.inf, posinf=torch.inf).sort(-1).values
    return (claimed - true).abs().amax(-1) / true.abs().amax(-1).clamp(min=1.0)


def matrix_gap(claimed: Float[Tensor, "b p q"], true: Float[Tensor, "b p q"]) -> Float[Tensor, "b"]:
    """Largest entry of the difference over max(1, largest entry)."""
    return (claimed - true).abs().flatten(1).amax(-1) / true.abs().flatten(1).amax(-1).clamp(min=1.0)


def number_gap(claimed: Tensor, true: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """`|claimed - true| / max(1, unit)`."""
    return (claimed - true).abs() / torch.as_tensor(unit, dtype=torch.float64).clamp(min=1.0)


def excess(small: Tensor, large: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """By how much `small <= large` is violated, over max(1, unit)."""
    return (small - large).clamp(min=0.0) / torch.as_tensor(unit, dtype=torch.float64).clamp(min=1.0)


def residual(H: Float[Tensor, "b p p"], z: Float[Tensor, "b p k"], value: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
    """`|H z - value z| / (max(1, radius) |z|)`; infinite for a vector that vanishes."""
    length = z.norm(dim=-2)
    rest = (H @ z - value.unsqueeze(-2) * z).norm(dim=-2) / scale(H).unsqueeze(-1)
    return torch.where(length > 0, rest / length, torch.inf)


def basis_gap(H: Float[Tensor, "b p p"], Q: Float[Tensor, "b p k"], value: Float[Tensor, "b k"]) -> Float[Tensor, "b"]:
    """Largest of the residual `|H Q - Q diag(value)|` and the departure from orthonormality."""
    rest = (H @ Q - Q * value.unsqueeze(-2)).flatten(1).norm(dim=-1) / scale(H)
    eye = torch.eye(Q.shape[-1], dtype=Q.dtype)
    return torch.maximum(rest, (Q.mT @ Q - eye).flatten(1).norm(dim=-1))


def characteristic(H: Float[Tensor, "*b p p"], t: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """`det(t - H)`."""
    eye = torch.eye(H.shape[-1], dtype=H.dtype)
    return torch.linalg.det(t[..., None, None] * eye - H)


def outside(H: Float[Tensor, "b p p"], generator: torch.Generator) -> Float[Tensor, "b"]:
    """Random points beyond the spectrum, where `det(t - H)` is well conditioned."""
    sign = torch.randint(0, 2, H.shape[:1], generator=generator) * 2.0 - 1.0
    return sign * scale(H) * uniform(generator, H.shape[0], low=1.3, high=2.5)


def polynomial_gap(claimed: Tensor, true: Tensor) -> Tensor:
    """Relative difference of two values of a polynomial that is not near a root."""
    return (claimed - true).abs() / true.abs()


def repeat(value: Float[Tensor, "b"], times: int) -> Float[Tensor, "b times"]:
    """One eigenvalue, `times` times (never less than none)."""
    return value.unsqueeze(-1).expand(*value.shape, max(times, 0))


def kind_mask(batch: int, kinds: Sequence[str], name: str) -> Bool[Tensor, "b"]:
    """Members of a batch that are degenerate in the named way: kinds take turns."""
    return torch.arange(batch) % len(kinds) == kinds.index(name)
