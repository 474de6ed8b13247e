"""Fewer and cheaper operations for the same straight-line program: what a compiler would do, in a few rules."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from . import elementwise
from .elementwise import Constants, replace

aten = torch.ops.aten

FUNCTIONAL = {
    aten.div_.Tensor: aten.div.Tensor,
    aten.div_.Scalar: aten.div.Scalar,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.mul_.Scalar: aten.mul.Scalar,
    aten.add_.Tensor: aten.add.Tensor,
    aten.sub_.Tensor: aten.sub.Tensor,
    aten.neg_.default: aten.neg.default,
}
PRODUCTS = {aten.mm.default: aten.addmm.default, aten.bmm.default: aten.baddbmm.default}


def simplify(graph: fx.Graph, constants: dict[str, Tensor], *, fold: bool = True) -> None:
    """Rewrite a recorded program in place; every rule leaves its value unchanged up to rounding.

    `fold` computes constant factors now, and joins sums to products: what a compiler would rather do itself.
    """
    _merge_constants(graph)
    _functional(graph)
    _copies(graph)
    if fold:
        elementwise.factors(Constants(graph, constants))
    fixed = _untouched(graph)
    _drop_identities(graph, fixed)
    _merge_equal(graph, fixed)
    _sweep(graph)
    program = Constants(graph, constants, set(graph.nodes) - _untouched(graph))
    elementwise.zeros(program)
    if fold:
        _fuse(program)
    _sweep(graph)


def _fuse(program: Constants) -> None:
    """Fewer operations and passes over memory."""
    elementwise.scalings(program)
    _accumulate(program)
    elementwise.sums(program)
    _sweep(program.graph)
    elementwise.in_place(program)


def _copies(graph: fx.Graph) -> None:
    """A tensor of zeros that is at once overwritten by another of its shape is the other."""
    for node in list(graph.nodes):
        if node.target is not aten._new_zeros_with_same_feature_meta.default:
            continue
        copy, *users = sorted(node.users)
        if copy.target is not aten.copy_.default:
            continue
        source = copy.args[1]
        alike = copy.args[0] is node and len(copy.args) == 2 and isinstance(source, fx.Node) and _alike(node, source)
        if not alike or copy.users or any(mutates(user) for user in (*users, *source.users) if user is not copy):
            continue
        graph.erase_node(copy)
        node.replace_all_uses_with(source)
        graph.erase_node(node)


def _functional(graph: fx.Graph) -> None:
    """`x.op_(a)` becomes `x.op(a)` where x is a fresh tensor that nothing has looked at yet."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target not in FUNCTIONAL:
            continue
        x = node.args[0]
        earlier = [user for user in x.users if user is not node and position.get(user, len(position)) < position[node]]
        if earlier or x.op != "call_function" or shares_storage(x):
            continue
        with graph.inserting_after(node):
            fresh = graph.call_function(FUNCTIONAL[node.target], node.args, node.kwargs)
        fresh.meta = dict(x.meta)
        x.replace_all_uses_with(fresh, delete_user_cb=lambda user, own=(node, fresh): user not in own)
        node.replace_all_uses_with(fresh)
        position[fresh] = position[node]
        graph.erase_node(node)


def _untouched(graph: fx.Graph) -> set[fx.Node]:
    """Operations that neither see nor share memory that some operation writes to: free to move and merge."""
    roots: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        first = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        roots[node] = roots[first] if first is not None and shares_storage(node) else node
    written = {roots[x] for node in graph.nodes if mutates(node) for x in node.all_input_nodes}
    clean = {node for node in graph.nodes if roots[node] not in written}
    return {node for node in clean if not mutates(node) and clean.issuperset(node.all_input_nodes)}


def shares_storage(node: fx.Node) -> bool:
    """Whether an operation's result may lie in the memory of its first argument."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (
        schema is None or "view" in schema.name or any(r.alias_info is not None for r in schema.returns)
    )


def _merge_constants(graph: fx.Graph) -> None:
    """One node for each constant."""
    seen: dict[object, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr" and seen.setdefault(node.target, node) is not node:
            node.replace_all_uses_with(seen[node.target])
            graph.erase_node(node)


def _drop_identities(graph: fx.Graph, fixed: set[fx.Node]) -> None:
    """Views, expansions and casts that change nothing."""
    for node in [n for n in graph.nodes if n.target is aten.copy.default and n in fixed]:
        source = node.args[1]
        if len(node.args) == 2 and _alike(source, node) and source.meta["dtype"] == node.meta["dtype"]:
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    same: dict[object, Callable[[fx.Node, fx.Node], bool]] = {
        aten.expand.default: _alike,
        aten.view.default: _alike,
        aten._unsafe_view.default: _alike,
        aten._to_copy.default: lambda x, y: _alike(x, y) and "dtype" in x.meta and x.meta["dtype"] == y.meta["dtype"],
        aten.detach.default: _alike,
    }
    for node in list(graph.nodes):
        if (
            node in fixed
            and node.target in same
            and isinstance(node.args[0], fx.Node)
            and same[node.target](node.args[0], node)
        ):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _alike(x: fx.Node, y: fx.Node) -> bool:
    wanted = ("shape", "strides")
    return bool(x.meta) and bool(y.meta) and all(x.meta[k] == y.meta[k] for k in wanted)


def _merge_equal(graph: fx.Graph, fixed: set[fx.Node]) -> None:
    """Compute equal expressions once."""
    seen: dict[str, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or node not in fixed:
            continue
        key = f"{node.target} {node.args} {sorted(node.kwargs.items())}"
        if key in seen:
            node.replace_all_uses_with(seen[key])
            graph.erase_node(node)
        else:
            seen[key] = node


def _accumulate(program: Constants) -> None:
    """`x + a @ b` becomes one call that adds the product to x."""
    for node in program.operations():
        if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
            continue
        for x, product in (node.args, node.args[::-1]):
            if not program.movable(product) or product.target not in PRODUCTS or not isinstance(x, fx.Node):
                continue
            x = _row(x)
            if x.meta and len(product.users) == 1 and _accepts(node, x, product):
                replace(program.graph, node, PRODUCTS[product.target], (x, *product.args))
                program.graph.erase_node(product)
                break


def _row(x: Any) -> Any:
    """What an operation expands to a matrix of equal rows, if it does."""
    return x.args[0] if x.target is aten.expand.default and len(x.args[0].meta["shape"]) == 1 else x


def _accepts(node: fx.Node, x: fx.Node, product: fx.Node) -> bool:
    dense = product.meta["shape"] == node.meta["shape"] and x.meta["dtype"] == product.meta["dtype"]
    return dense and (x.meta["shape"] == node.meta["shape"] or len(x.meta["shape"]) == 1)


def _sweep(graph: fx.Graph) -> None:
    """Remove what does not contribute to the output; operations that write are kept."""
    used: set[fx.Node] = set()
    stack = [n for n in graph.nodes if n.op == "output" or mutates(n)]
    while stack:
        node = stack.pop()
        if node not in used:
            used.add(node)
            stack += node.all_input_nodes
    for node in reversed(list(graph.nodes)):
        if node not in used and node.op != "placeholder":
            graph.erase_node(node)


def mutates(node: fx.Node) -> bool:
    """Whether an operation writes into a tensor it was given."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable
