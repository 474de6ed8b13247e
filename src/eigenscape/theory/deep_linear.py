"""Gauss-Newton spectrum, trace and bounds of a deep linear network: any data, any point, any shapes."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..core import Spectrum
from .chain import Biases, Chain, Weights
from .modes import Modes, assemble, modes
from .product_bulk import first_order, kron
from .spaces import complement


def deep_linear_ggn(weights: Weights, X: Float[Tensor, "*batch n d0"], *, biases: Biases = None) -> Spectrum:
    r"""Return the spectrum of the Gauss-Newton matrix of `1/(2n) sum_i |W_L ... W_1 x_i - y_i|^2`.

    Its nonzero eigenvalues are those of `sum_l (S_l S_l^T) (x) (F^T P_l^T P_l F)` with `F F^T = X^T X / n`,
    `P_l = W_{l-1} ... W_1`, `S_l = W_L ... W_{l+1}` ([data] eqs. 4, 5, for inputs that need not be white). It equals the full
    Hessian exactly where `mean (f(x) - y) x^T = 0`, whatever the loss is there; targets do not enter otherwise.

    weights is `[W_1, ..., W_L]`, `W_l` of shape (*batch, d_l, d_{l-1}); rows of X are samples. With `biases` (None for a
    layer without one) the network is that of `nn.Linear` layers. Parameters are flat in the order of such layers, each
    weight row-major. The cost is that of symmetric eigenproblems of size `d_0 min(d_L, d_{L-1})` for three layers and
    more, and of size d_0 for one or two; it does not depend on n beyond one QR decomposition.

    >>> one = torch.ones(1, 1)
    >>> deep_linear_ggn([2 * one, 3 * one], X=one).expand()                    # g = (3, 2), |g|^2 = 13
    tensor([ 0., 13.], dtype=torch.float64)
    """
    chain = Chain.of(weights, X, biases)
    return assemble(chain, [*_joint_modes(chain), *_last_layer_modes(chain)])


def _joint_modes(chain: Chain) -> list[Modes]:
    """Modes of the outputs that the last weight reaches, at most d_{L-1} of them."""
    if chain.depth == 1:
        return []
    Q = _reached(chain)
    after = [first_order(Q.mT @ S) if Q.shape[-1] < Q.shape[-2] else S for S in chain.after]
    if chain.depth == 2:
        # S_1 S_1^T and the identity have the same eigenvectors, so the problem splits by output.
        tau, U = torch.linalg.eigh(after[0] @ after[0].mT)
        first, last = chain.grams
        matrix = tau[..., None, None] * first.unsqueeze(-3) + last.unsqueeze(-3)
        return [modes(matrix, lambda: (Q @ U.detach()).mT.unsqueeze(-2))]
    matrix = torch.stack([kron(S @ S.mT, gram) for S, gram in zip(after, chain.grams)]).sum(0)

    def vectors() -> Tensor:
        Z = torch.linalg.eigh(matrix.detach()).eigenvectors.mT
        return (Q.unsqueeze(-3) @ Z.unflatten(-1, (Q.shape[-1], -1))).unsqueeze(-3)

    return [Modes(torch.linalg.eigvalsh(matrix), 1, vectors)]


def _last_layer_modes(chain: Chain) -> list[Modes]:
    """Modes of the outputs that only the last layer moves: one problem, as often as there are such outputs."""
    rest = chain.outputs - (min(chain.outputs, chain.shapes[-1][1]) if chain.depth > 1 else 0)
    if rest == 0:
        return []
    gram = chain.grams[-1]

    def outputs() -> Tensor:
        Q = chain.after[0].detach() if chain.depth == 1 else complement(_reached(chain))
        return Q.mT.unsqueeze(-3)

    return [modes(gram.unsqueeze(-3), outputs, rest)]


def _reached(chain: Chain) -> Float[Tensor, "*batch dL k"]:
    """Orthonormal basis of a space that holds the columns of the last weight; held constant under differentiation."""
    S = chain.after[-2].detach()  # W_L
    K, width = S.shape[-2:]
    return torch.linalg.qr(S).Q if width < K else chain.after[-1]


def deep_linear_trace(weights: Weights, X: Float[Tensor, "*batch n d0"], *, biases: Biases = None) -> Float[Tensor, "*batch"]:
    r"""Return the trace of the *full* Hessian, `sum_l |P_l F|_F^2 |S_l|_F^2`, exact at every point and for any targets.

    [data] eqs. 7 and 11 state it for the Gauss-Newton matrix and white inputs; the rest of the Hessian has zero diagonal
    blocks, so nothing is missing. For two layers: `|W|_F^2 tr Sxx + K |V F|_F^2` ([cracking] App. D.4).

    >>> one = torch.ones(1, 1)
    >>> deep_linear_trace([2 * one, 3 * one], X=one).item()
    13.0
    """
    chain = Chain.of(weights, X, biases)
    terms = [M.square().sum((-2, -1)) * S.square().sum((-2, -1)) for M, S in zip(chain.before, chain.after)]
    return torch.stack(terms).sum(0)


def deep_linear_bounds(
    weights: Weights, X: Float[Tensor, "*batch n d0"], *, biases: Biases = None
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    r"""Bound the largest Gauss-Newton eigenvalue by `max_l t_l` and `sum_l t_l`, where `t_l = |P_l F|_2^2 |S_l|_2^2`.

    The upper bound is [data] eq. 6 for data that need not be white: attained at balanced points with white inputs, strict
    in general from three layers on. The lower one holds for the full Hessian too, at any loss: each term is the largest
    eigenvalue of a diagonal block ([cracking] App. D.3.3 takes it for the value itself; for two layers and white inputs
    that value is the sum, [data] eq. 10).

    >>> one = torch.ones(1, 1)
    >>> low, high = deep_linear_bounds([2 * one, 3 * one], X=one)
    >>> low.item(), high.item()
    (9.0, 13.0)
    """
    chain = Chain.of(weights, X, biases)
    norms = [
        torch.linalg.matrix_norm(M, 2).square() * torch.linalg.matrix_norm(S, 2).square()
        for M, S in zip(chain.before, chain.after)
    ]
    terms = torch.stack(norms)
    return terms.amax(0), terms.sum(0)
