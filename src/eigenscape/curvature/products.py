"""Matrix products of a recorded program: sums of them where the first lies, and sizes that a GPU's matrix units take."""

import torch
from torch import Tensor, fx
from torch.nn import functional as F

aten = torch.ops.aten
PRODUCTS = {aten.mm.default, aten.bmm.default}
VIEWS = {aten.view.default, aten._unsafe_view.default, aten.alias.default, aten.detach.default}
ALIGNED = 4  # float32 numbers in 16 bytes: at other sizes, a GPU's matrix units take three times as long


def accumulate(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add a product to a tensor that nobody else reads."""
    return x.addmm_(a, b) if x.ndim == 2 else x.baddbmm_(a, b)


MULTIPLIED = {*PRODUCTS, accumulate}


def wide_product(a: Tensor, b: Tensor, m: int, k: int, n: int) -> Tensor:
    """Multiply (m, k) by (k, n) as larger matrices of aligned sizes, filled up with zeros; what is large enough stays."""
    a, b = _widened(a, b, m, k, n)
    return a @ b


def wide_accumulate(x: Tensor, a: Tensor, b: Tensor, m: int, k: int, n: int) -> Tensor:
    """Add such a product to such a product that nobody else reads."""
    return accumulate(x, *_widened(a, b, m, k, n))


def _widened(a: Tensor, b: Tensor, m: int, k: int, n: int) -> tuple[Tensor, Tensor]:
    rows, inner, columns = (size + excess(size) for size in (m, k, n))
    return _widen(a, rows, inner), _widen(b, inner, columns)


def _widen(x: Tensor, rows: int, columns: int) -> Tensor:
    """Fill up with zeros, in the order in which the numbers lie."""
    if x.shape[-2:] == (rows, columns):
        return x
    if x.stride(-2) == 1 != x.stride(-1):
        return _widen(x.mT, columns, rows).mT
    return F.pad(x, (0, columns - x.shape[-1], 0, rows - x.shape[-2]))


def excess(n: int) -> int:
    """Numbers that are missing to a multiple of the alignment."""
    return -n % ALIGNED


def join(graph: fx.Graph) -> None:
    """`a @ b + c @ d` adds the second product to the first where that lies, also as a view of the first."""
    for node in list(graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs or len(node.all_input_nodes) != 2:
            continue
        x, y = sorted(node.all_input_nodes, key=_plain)
        if not _summand(x) or not _summand(y) or not _plain(y):
            continue
        if not x.meta.get("shape") == y.meta.get("shape") == node.meta.get("shape"):
            continue
        with graph.inserting_before(node):
            joined = graph.call_function(accumulate, (x, *y.args))
        joined.meta = dict(node.meta)
        node.replace_all_uses_with(joined)
        graph.erase_node(node)
        graph.erase_node(y)


def _plain(x: fx.Node) -> bool:
    """Whether a result is a product by itself."""
    return x.target in PRODUCTS


def _summand(x: fx.Node) -> bool:
    """Whether a result is a product, or a view of one, that nobody else reads."""
    if len(x.users) != 1:
        return False
    return x.target in MULTIPLIED or (x.target in VIEWS and _summand(x.all_input_nodes[0]))
