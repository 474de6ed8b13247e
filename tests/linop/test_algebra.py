"""Every operator and every wrapper multiplies like the dense matrix it stands for."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, eigsh

from eigenscape.core import Layout, OperatorError
from eigenscape.linop import Counted, Dense, Diagonal, Kronecker, LowRank, Operator, Projected, Stack, as_operator, blocks

DTYPE = torch.float64
N = 6
LAYOUT = Layout(("a", "b.w", "b.c"), ((1,), (3,), (2,)))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)


def symmetric(n=N, seed=0, batch=()):
    A = draw(*batch, n, n, seed=seed)
    return A + A.mT


A, B = symmetric(), symmetric(seed=1)
Q = torch.linalg.qr(draw(N, 2, seed=2)).Q
P = torch.eye(N, dtype=DTYPE) - Q @ Q.mT
U, s = draw(N, 2, seed=3), draw(2, seed=4)
D = Dense(A, layout=LAYOUT)
I = torch.eye(N, dtype=DTYPE)

CASES: dict[str, tuple[Operator, torch.Tensor]] = {
    "dense": (D, A),
    "diagonal": (Diagonal(A[0]), torch.diag(A[0])),
    "sum": (D + Dense(B), A + B),
    "difference": (D - Dense(B), A - B),
    "scaled": (2 * D, 2 * A),
    "scaled right": (D * 0.5, A / 2),
    "negative": (-D, -A),
    "shifted": (D.shift(3.0), A + 3 * I),
    "kronecker": (Kronecker(Dense(symmetric(2)), Dense(symmetric(3))), torch.kron(symmetric(2), symmetric(3))),
    "low rank": (LowRank(U, s), U @ torch.diag(s) @ U.mT),
    "projected": (Projected(D, Q), P @ A @ P),
    "counted": (Counted(D), A),
    "block": (D.block(["a", "b.c"]), A[[0, 4, 5]][:, [0, 4, 5]]),
    "block by predicate": (D.block(lambda name: name.startswith("b")), A[1:, 1:]),
    "block of a sum": ((D + 2 * D.shift(1.0)).block("b.*"), (3 * A + 2 * I)[1:, 1:]),
    "stack": (Stack([D, Dense(B)]), torch.stack([A, B])),
    "batched dense": (Dense(symmetric(batch=(2, 3))), symmetric(batch=(2, 3))),
    "batched diagonal": (Diagonal(A), torch.diag_embed(A)),
    "batched low rank": (LowRank(draw(2, N, 3), draw(2, 3)), draw(2, N, 3) @ torch.diag_embed(draw(2, 3)) @ draw(2, N, 3).mT),
    "batched shift": (Dense(symmetric(batch=(2,))).shift(1.0), symmetric(batch=(2,)) + I),
    "tensor": (as_operator(A), A),
    "array": (as_operator(A.numpy()), A),
    "integer array": (as_operator(np.eye(3, dtype=int), dtype=DTYPE), torch.eye(3, dtype=DTYPE)),
    "matvec": (as_operator(lambda v: A @ v, n=N, dtype=DTYPE), A),
    "scipy sparse": (as_operator(scipy.sparse.csr_array(A.numpy())), A),
    "scipy operator": (as_operator(LinearOperator((N, N), matvec=lambda v: A.numpy() @ v, dtype=float)), A),
    "operator": (as_operator(D), A),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", [None, 1, 3])
def test_products_are_those_of_the_dense_matrix(name, columns):
    op, M = CASES[name]
    assert op.shape == tuple(M.shape)
    v = draw(*op.batch, op.n, *([] if columns is None else [columns]), seed=9)
    expected = (M @ v.unsqueeze(-1)).squeeze(-1) if columns is None else M @ v
    found = op @ v
    assert found.shape == expected.shape
    assert found.dtype == op.dtype
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_every_operator_introduces_itself(name):
    op, _ = CASES[name]
    assert " x ".join(map(str, op.shape)) in repr(op)
    assert op.engine


@given(n=st.integers(1, 5), m=st.integers(1, 5), k=st.integers(1, 3), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_kronecker_products_of_every_shape(n, m, k, seed):
    X, Y, V = symmetric(n, seed), symmetric(m, seed + 1), draw(n * m, k, seed=seed)
    assert torch.allclose(Kronecker(Dense(X), Dense(Y)) @ V, torch.kron(X, Y) @ V, atol=1e-12)


def test_named_tensors_go_in_and_out():
    v = torch.arange(6.0, dtype=DTYPE)
    parts = D.unflatten(v)
    assert parts["b.w"].tolist() == [1, 2, 3]
    assert torch.equal(D.flatten(parts), v)
    assert (3 * D).shift(1.0).layout == LAYOUT


def test_blocks_are_a_mapping_with_one_pass_for_all():
    counted = Counted(D)
    cut = blocks(counted)
    assert list(cut) == ["a", "b.w", "b.c"]
    vectors = {name: draw(block.n, seed=5) for name, block in cut.items()}
    together = cut.products(vectors)
    for name, part in zip(cut, LAYOUT.slices):
        assert torch.allclose(together[name], A[part, part] @ vectors[name])
        assert torch.allclose(cut[name] @ vectors[name], together[name])
    assert {name: b.n for name, b in blocks(D, ["b.*", "a"]).items()} == {"b.*": 5, "a": 1}
    assert {name: b.n for name, b in blocks(D, {"all": "*"}).items()} == {"all": 6}
    assert {name: b.n for name, b in blocks(D, lambda name: name[0]).items()} == {"a": 1, "b": 5}


def test_scipy_sees_the_same_matrix():
    view = D.to_scipy()
    assert view.dtype == np.float64
    assert np.allclose(view @ np.eye(N), A.numpy())
    assert np.allclose(view.T @ np.ones(N), A.numpy() @ np.ones(N))
    largest = sorted(np.linalg.eigvalsh(A.numpy()), key=abs)[-2:]
    assert np.allclose(np.sort(eigsh(view, 2)[0]), np.sort(largest))
    assert Diagonal(torch.ones(2)).to_scipy().dtype == np.float32


def test_counting_counts_columns():
    counted = Counted(D)
    _ = counted @ draw(N)
    _ = counted @ draw(N, 4)
    assert counted.num_matvecs == 5


class Foreign:
    """Something with `@`, a shape and a dtype, as other libraries have."""

    shape, dtype, device = (N, N), DTYPE, torch.device("cpu")

    def __matmul__(self, V):
        return A @ V


def test_an_operator_of_another_library():
    assert torch.allclose(as_operator(Foreign()) @ draw(N, 2), A @ draw(N, 2))


def rectangular():
    foreign = Foreign()
    foreign.shape = (2, 3)
    return foreign


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: D @ [1.0], "a list was multiplied; expected a torch.Tensor"),
        (lambda: D @ torch.ones(5, dtype=DTYPE), r"the vector has shape \(5,\); expected \(6,\) or \(6, k\)"),
        (lambda: D @ torch.ones(6), "the vector is torch.float32 .* expected the same: v.to"),
        (lambda: D + Diagonal(torch.ones(6)), "operators differ"),
        (lambda: Diagonal(torch.ones(3)).block("a"), "this operator has no named parameters"),
        (lambda: D.block("z"), "'z' matches no parameter"),
        (lambda: D.block(lambda _: False), "the block is empty"),
        (lambda: Dense(torch.ones(2, 3)), r"the tensor has shape \(2, 3\); expected \(\*batch, n, n\)"),
        (lambda: Dense(torch.tensor([[0.0, 1.0], [0.0, 0.0]])), "the matrix is not symmetric: .* such as"),
        (lambda: Diagonal(torch.ones(0)), "the operator has size 0; expected at least 1"),
        (lambda: Diagonal(torch.ones(3, dtype=torch.int64)), "expected a real floating-point dtype"),
        (lambda: Kronecker(Diagonal(torch.ones(2, 2)), Diagonal(torch.ones(2))), "a Kronecker factor is a stack"),
        (lambda: Stack([]), "the list of operators is empty"),
        (lambda: Stack([D, Diagonal(torch.ones(2))]), "operators differ"),
        (lambda: Stack([D, D]).to_scipy(), "has no SciPy form"),
        (lambda: blocks(D, "b.*"), r"groups is 'b.\*'; expected a list of patterns"),
        (lambda: as_operator(lambda v: v), "a matvec came without a size; expected n="),
        (lambda: as_operator(lambda v: v[:2], n=3) @ torch.ones(3), r"matvec returned shape \(2,\); expected"),
        (lambda: as_operator(lambda v: None, n=3) @ torch.ones(3), "matvec returned a NoneType"),
        (lambda: as_operator(torch.ones(2, 2, dtype=torch.int64)), "the tensor has dtype torch.int64"),
        (lambda: as_operator(scipy.sparse.csr_array(np.ones((2, 3)))), r"the SciPy operator has shape \(2, 3\)"),
        (lambda: as_operator(rectangular()), r"the operator has shape \(2, 3\); expected a square one"),
        (lambda: as_operator(7), "a int cannot become an operator"),
    ],
)
def test_misuse_is_a_sentence(call, message):
    with pytest.raises(OperatorError, match=message):
        call()


def test_only_numbers_scale():
    with pytest.raises(TypeError):
        _ = D * "2"
    with pytest.raises(TypeError):
        _ = D + 1
