"""What the closed forms are set against: dense Hessians by automatic differentiation, one per member of a stack."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def hessian_eigenvalues(
    loss: Callable[..., Tensor],
    at: Float[Tensor, "*batch n"],
    *data: Tensor,
    members: int | None = None,
    columns: int | None = None,
) -> Float[Tensor, "*batch n"]:
    """Differentiate `loss(vector, *data)` twice in the vector, and take all eigenvalues, ascending.

    With a leading axis, each member of the stack has its own data. `members` and `columns` are how many of them are formed
    at a time, where all would not fit.

    >>> hessian_eigenvalues(lambda t: t[0] ** 2 - t[1] ** 2, torch.zeros(3, 2, dtype=torch.float64))[0].tolist()
    [-2.0, 2.0]
    """
    hessian = torch.func.jacrev(torch.func.grad(loss), chunk_size=columns)
    H = torch.func.vmap(hessian, chunk_size=members)(at, *data) if at.ndim > 1 else hessian(at, *data)
    return torch.linalg.eigvalsh((H + H.mT) / 2)
