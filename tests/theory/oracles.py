"""Brute force: Hessians of actual networks by autograd, and comparisons that count multiplicities."""

import torch
from torch import Tensor
from torch.func import jacrev, vmap
from torch.testing import assert_close


def hessians(loss, theta: Tensor, *data: Tensor) -> Tensor:
    """Dense Hessians of `loss(theta, *data)` for a batch of parameter vectors and data, by backward over backward."""
    return vmap(jacrev(jacrev(loss)))(theta, *data)


def assert_same_spectrum(spectrum, H: Tensor, tol: float = 1e-11) -> None:
    """Every eigenvalue, repeated by its multiplicity, agrees with the dense one up to `tol * max(1, radius)`."""
    dense = torch.linalg.eigvalsh(H)
    full = spectrum.expand()
    assert full.shape == dense.shape, f"{full.shape[-1]} eigenvalues where the matrix has {dense.shape[-1]}"
    error = (full - dense).abs().amax(-1) / dense.abs().amax(-1).clamp(min=1)
    assert error.max() <= tol, f"off by {error.max():.1e} of the spectral radius"


def assert_eigenbasis(spectrum, H: Tensor, tol: float = 1e-10) -> None:
    """The bases of all eigenspaces together are orthonormal and complete, and each consists of eigenvectors.

    `project` agrees with the projector of the basis. H is one matrix, or a batch in which all members have equal counts.
    """
    n = H.shape[-1]
    scale = torch.linalg.matrix_norm(H, 2).clamp(min=1)[..., None, None]
    bases = [spectrum.eigenspace(i) for i in range(len(spectrum.labels))]
    for i, Q in enumerate(bases):
        assert Q.shape[-1] == spectrum.multiplicities[..., i].max()
        residual = (H @ Q - spectrum.values[..., i, None, None] * Q) / scale
        assert residual.numel() == 0 or residual.abs().max() <= tol, f"residual {residual.abs().max():.1e} in space {i}"
        V = torch.randn(n, 3, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        assert_close(spectrum.project(i, V), Q @ (Q.mT @ V), atol=1e-12, rtol=0)
    Q = torch.cat(bases, -1)
    assert Q.shape[-1] == n
    gap = (Q.mT @ Q - torch.eye(n, dtype=torch.float64)).abs().max()
    assert gap <= tol, f"orthonormal up to {gap:.1e}"


def assert_eigenspaces(spectrum, H: Tensor, tol: float = 1e-10) -> None:
    """The projectors of a batch, whose members may differ in their counts, are orthogonal, of the right ranks, and add up."""
    n = H.shape[-1]
    eye = torch.eye(n, dtype=torch.float64)
    scale = torch.linalg.matrix_norm(H, 2).clamp(min=1)[..., None, None]
    P = torch.stack([spectrum.project(i, eye.expand_as(H)) for i in range(len(spectrum.labels))])
    residual = (H @ P - spectrum.values.movedim(-1, 0)[..., None, None] * P) / scale
    assert residual.abs().max() <= tol, f"residual {residual.abs().max():.1e}"
    assert (P @ P - P).abs().max() <= tol
    assert (P.sum(0) - eye).abs().max() <= tol
    ranks = P.diagonal(dim1=-2, dim2=-1).sum(-1).movedim(0, -1)
    assert (ranks - spectrum.multiplicities).abs().max() <= tol * n


def assert_batch_is_loop(function, *inputs: Tensor) -> None:
    """A batched call equals one call per member."""
    together = function(*inputs)
    for i, member in enumerate(zip(*inputs)):
        alone = function(*member)
        assert_close(together.values[i], alone.values, atol=1e-13 * float(alone.values.abs().max()), rtol=1e-13)
        assert together.multiplicities[i].equal(alone.multiplicities)
        V = torch.ones(alone.n, 2, dtype=torch.float64)
        for k in range(len(alone.labels)):
            if alone.labels[k] != "outlier":
                assert_close(together.project(k, V)[i], alone.project(k, V), atol=1e-12, rtol=0)
