"""Fewer passes over memory: what elementwise operations of a recorded program can do together, in place, or beforehand."""

from collections.abc import Callable, Iterator, Set
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten

# Derivatives of elementwise functions: linear in the first argument, so with the others constant they are one factor.
FACTORS = {
    aten.gelu_backward.default,
    aten.tanh_backward.default,
    aten.sigmoid_backward.default,
    aten.silu_backward.default,
    aten.elu_backward.default,
    aten.softplus_backward.default,
    aten.leaky_relu_backward.default,
    aten.hardswish_backward.default,
    aten.mish_backward.default,
}
SCALINGS = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar}
SUMS = {aten.add.Tensor, aten.sub.Tensor}
IN_PLACE = {
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.add.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.addcmul.default: aten.addcmul_.default,
}
# Operations whose results lie in memory of their own.
FRESH = {*IN_PLACE, *IN_PLACE.values(), *(getattr(aten, n).default for n in ("mm", "addmm", "bmm", "baddbmm", "convolution"))}


class Constants:
    """A program with its constants, and the operations that must stay as they are because memory they see is written to."""

    def __init__(self, graph: fx.Graph, values: dict[str, Tensor], blocked: Set[fx.Node] = frozenset()):
        self.graph, self.values, self.blocked = graph, values, blocked
        self._known: dict[tuple, str] = {}

    def operations(self) -> list[Any]:
        """The operations that may be changed, in their order."""
        return [node for node in self.graph.nodes if node not in self.blocked]

    def movable(self, x: Any) -> bool:
        """Whether an argument is an operation that may be changed."""
        return isinstance(x, fx.Node) and x not in self.blocked

    def value(self, argument: Any) -> Any:
        """A constant's tensor, a number as it is, or None for what depends on the program's arguments."""
        if isinstance(argument, fx.Node):
            return self.values[str(argument.target)] if argument.op == "get_attr" else None
        return argument if isinstance(argument, int | float) and not isinstance(argument, bool) else None

    def zero(self, argument: Any) -> bool:
        """Whether an argument is a constant tensor of zeros."""
        value = self.value(argument)
        return isinstance(value, Tensor) and value.is_floating_point() and not bool(value.any())

    def node(self, before: fx.Node, key: tuple, make: Callable[[], Tensor]) -> fx.Node:
        """A node for a new constant, computed once for each key."""
        if key not in self._known:
            self._known[key] = f"c{len(self.values)}"
            self.values[self._known[key]] = make()
        with self.graph.inserting_before(before):
            node = self.graph.get_attr(self._known[key])
        made = self.values[self._known[key]]
        node.meta = {"shape": made.shape, "dtype": made.dtype, "strides": made.stride(), "device": made.device}
        return node


def replace(graph: fx.Graph, node: fx.Node, target: Callable, args: Any, kwargs: dict[str, Any] | None = None) -> fx.Node:
    """Put another operation in a node's place."""
    with graph.inserting_before(node):
        fresh = graph.call_function(target, args, kwargs or {})
    fresh.meta = dict(node.meta)
    node.replace_all_uses_with(fresh)
    graph.erase_node(node)
    return fresh


def factors(constants: Constants) -> None:
    """`f_backward(v, x)` with x constant becomes `v * f'(x)`, with `f'(x)` computed now."""
    for node in constants.operations():
        rest = node.args[1:]
        if node.target not in FACTORS or any(isinstance(a, fx.Node) and a.op != "get_attr" for a in rest):
            continue

        def derivative(node: Any = node, rest: Any = rest) -> Tensor:
            values = [constants.value(a) if isinstance(a, fx.Node) else a for a in rest]
            like = next(v for v in values if isinstance(v, Tensor))
            return node.target(torch.ones_like(like), *values, **node.kwargs)

        key = (node.target, tuple(map(str, rest)), str(sorted(node.kwargs.items())))
        replace(constants.graph, node, aten.mul.Tensor, (node.args[0], constants.node(node, key, derivative)))


def scalings(constants: Constants) -> None:
    """`(x * a) * b` with a and b constant becomes `x * ab`, where that is no larger than a or b."""
    for node in constants.operations():
        outer = _scaling(constants, node)
        if outer is None or not constants.movable(outer[0]) or len(outer[0].users) > 1:
            continue
        inner = _scaling(constants, outer[0])
        if inner is None or not (isinstance(outer[1], Tensor) or isinstance(inner[1], Tensor)):
            continue
        product = outer[1] * inner[1]
        if product.dtype != node.meta.get("dtype") or product.numel() > max(_size(outer[1]), _size(inner[1])):
            continue
        first = outer[0]
        replace(constants.graph, node, aten.mul.Tensor, (inner[0], constants.node(node, (node,), lambda p=product: p)))
        constants.graph.erase_node(first)


def _scaling(constants: Constants, node: Any) -> tuple[Any, Any] | None:
    """Return x and c where a node is `x * c` or `x / c` with c constant."""
    if not isinstance(node, fx.Node) or node.target not in SCALINGS or node.kwargs or len(node.args) != 2:
        return None
    x, c = node.args
    value = constants.value(c)
    if node.target in (aten.div.Tensor, aten.div.Scalar):
        return None if value is None or not _divides(value) else (x, 1 / value)
    if value is not None:
        return x, value
    return None if constants.value(x) is None else (c, constants.value(x))


def _divides(value: Any) -> bool:
    return bool((value != 0).all()) if isinstance(value, Tensor) else value != 0


def _size(value: Any) -> int:
    return value.numel() if isinstance(value, Tensor) else 1


def zeros(constants: Constants) -> None:
    """Nothing is added where zero would be."""
    for node in constants.operations():
        if node.target in SUMS and not node.kwargs and len(node.args) == 2:
            x, y = node.args
            if constants.zero(y):
                _becomes(constants.graph, node, x)
            elif constants.zero(x) and node.target is aten.add.Tensor:
                _becomes(constants.graph, node, y)
            elif constants.zero(x) and _same(node, y):
                replace(constants.graph, node, aten.neg.default, (y,))
        elif node.target is aten.addmm.default and not node.kwargs and constants.zero(node.args[0]):
            replace(constants.graph, node, aten.mm.default, node.args[1:])


def _becomes(graph: fx.Graph, node: fx.Node, x: Any) -> None:
    if not isinstance(x, fx.Node) or not x.meta or x.meta["dtype"] != node.meta["dtype"]:
        return
    if x.meta["shape"] != node.meta["shape"]:
        replace(graph, node, aten.expand.default, (x, list(node.meta["shape"])))
    elif x.meta["strides"] == node.meta["strides"]:
        node.replace_all_uses_with(x)
        graph.erase_node(node)


def _same(node: fx.Node, x: Any) -> bool:
    return isinstance(x, fx.Node) and bool(x.meta) and x.meta == node.meta


def sums(constants: Constants) -> None:
    """`y + a * b` is one operation, and `y + s * a` with a number s."""
    for node in constants.operations():
        if node.target not in SUMS or node.kwargs or len(node.args) != 2:
            continue
        sign = 1 if node.target is aten.add.Tensor else -1
        for y, product in _orders(node):
            if not constants.movable(product) or len(product.users) > 1 or not isinstance(y, fx.Node) or product.kwargs:
                continue
            if not product.meta or not y.meta or product.meta["dtype"] != y.meta["dtype"]:
                continue
            if product.target is aten.mul.Tensor and all(_typed(a, product.meta["dtype"]) for a in product.args):
                replace(constants.graph, node, aten.addcmul.default, (y, *product.args), {"value": sign})
            elif product.target is aten.mul.Scalar:
                replace(constants.graph, node, aten.add.Tensor, (y, product.args[0]), {"alpha": sign * product.args[1]})
            else:
                continue
            constants.graph.erase_node(product)
            break


def _orders(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    yield node.args[0], node.args[1]
    if node.target is aten.add.Tensor:
        yield node.args[1], node.args[0]


def _typed(argument: Any, dtype: torch.dtype) -> bool:
    return isinstance(argument, fx.Node) and bool(argument.meta) and argument.meta["dtype"] == dtype


def in_place(constants: Constants) -> None:
    """A result overwrites an operand that has memory of its own and no other use."""
    for node in constants.operations():
        if node.target not in IN_PLACE:
            continue
        swap = len(node.args) == 2 and not node.kwargs and node.target in (aten.mul.Tensor, aten.add.Tensor)
        for args in [node.args, node.args[::-1]] if swap else [node.args]:
            if constants.movable(args[0]) and _free(node, args[0]) and args[0] not in args[1:]:
                replace(constants.graph, node, IN_PLACE[node.target], args, dict(node.kwargs))
                break


def _free(node: fx.Node, x: fx.Node) -> bool:
    return made_for_one(x) and _same(node, x)


def made_for_one(x: Any) -> bool:
    """Whether a result has memory of its own, and one reader."""
    return isinstance(x, fx.Node) and x.target in FRESH and len(x.users) == 1
