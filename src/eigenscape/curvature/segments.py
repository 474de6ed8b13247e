"""A straight-line program cut at its matrix products: what lies between them is compiled once for all its repeats."""

import operator
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import fx

from .peephole import mutates, shares_storage
from .plan import LARGE, Plan, output, size
from .products import MULTIPLIED, VIEWS, accumulate, excess, join, wide_accumulate, wide_product

aten = torch.ops.aten
Compiler = Callable[[fx.GraphModule], Callable[..., Any]]


def segmented(
    program: fx.GraphModule,
    compiler: Compiler,
    known: dict[str, Callable[..., Any]] | None = None,
    *,
    align: bool = False,
) -> Callable[..., Any]:
    """Return the same function with all that lies between its matrix products in calls of compiled segments.

    Equal segments share one function: of a network with twelve equal blocks, one is compiled. `known` holds the functions of
    the programs before, and takes those of this one. With `align`, large matrix products get the sizes that a GPU's
    matrix units take. A program that writes into its tensors is compiled as a whole.

    >>> def f(a, b):
    ...     return (((a @ b).exp() + 1) @ b).exp() + 1
    >>> seen = []
    >>> g = segmented(torch.fx.experimental.proxy_tensor.make_fx(f)(torch.eye(2), torch.eye(2)), lambda m: seen.append(m) or m)
    >>> torch.equal(g(torch.eye(2), torch.eye(2)), f(torch.eye(2), torch.eye(2))), len(seen)
    (True, 1)
    """
    if any(mutates(node) for node in program.graph.nodes):
        return compiler(program)
    graph = deepcopy(program.graph)
    join(graph)
    return _Writer(program, Plan(graph), compiler, {} if known is None else known, align).write()


class _Writer:
    """Writes the program of calls."""

    def __init__(
        self, constants: fx.GraphModule, plan: Plan, compiler: Compiler, known: dict[str, Callable[..., Any]], align: bool
    ):
        self.constants, self.plan, self.compiler, self.known, self.align = constants, plan, compiler, known, align
        self.graph, self.root = fx.Graph(), torch.nn.Module()
        self.env: dict[fx.Node, fx.Node] = {}
        self.temporary: list[fx.Node] = []  # what was computed from constants for the present level
        self.wide: dict[fx.Node, fx.Node] = {}  # results with room at the ends of their axes
        self.names: dict[str, str] = {}

    def write(self) -> fx.GraphModule:
        """All levels, one after the other."""
        for node in self.plan.order:
            if node.op == "placeholder":
                self.env[node] = self.graph.placeholder(str(node.target))
        heavy: dict[int, list[fx.Node]] = defaultdict(list)
        for node in self.plan.heavy:
            heavy[self.plan.level[node]].append(node)
        for level in range(max([*heavy, *self.plan.groups, 0]) + 1):
            for node in self.temporary:
                del self.env[node]
            self.temporary = []
            for group in self.plan.groups.get(level, []):
                self._call(group, level)
            for node in heavy[level]:
                self._copy(node)
        self.graph.output(fx.map_arg(output(self.plan.order).args[0], self._copy))
        return fx.GraphModule(self.root, self.graph)

    def _copy(self, node: fx.Node) -> fx.Node:
        if node not in self.env:
            if node.op == "get_attr":
                self.root.register_buffer(str(node.target), getattr(self.constants, str(node.target)))
            for x in node.all_input_nodes:
                self._copy(x)
            if not self._multiply(node):
                self.env[node] = self.graph.node_copy(node, self.env.__getitem__)
            if self.plan.floats(node) and any(x in self.temporary for x in node.all_input_nodes):
                self.temporary.append(node)
        return self.env[node]

    def _multiply(self, node: fx.Node) -> bool:
        """Write a large matrix product of unaligned sizes as one of aligned sizes."""
        if node.target not in MULTIPLIED or not self.align or node.meta.get("dtype") != torch.float32:
            return False
        operands: Any = node.args
        *first, a, b = operands
        if "shape" not in a.meta or "shape" not in b.meta:
            return False
        (m, k), n = a.meta["shape"][-2:], b.meta["shape"][-1]
        if not any(map(excess, (m, k, n))) or max(map(size, (a, b, node))) < LARGE or not self._rows_stay(node):
            return False
        added_to = [self._result(x) for x in first]
        if None in added_to:
            return False
        function = wide_accumulate if first else wide_product
        self._narrow(node, self.graph.call_function(function, (*added_to, self._operand(a), self._operand(b), m, k, n)))
        return True

    def _result(self, x: fx.Node) -> fx.Node | None:
        """A product with the room that it has, or a view of it that divides its rows."""
        if x in self.wide or x.target not in VIEWS:
            return self.wide.get(x)
        source = x.all_input_nodes[0]
        wide, shape = self._result(source), list(x.meta["shape"])
        if wide is None or shape[-1] != source.meta["shape"][-1] or excess(source.meta["shape"][-2]):
            return None
        shape[-1] += excess(shape[-1])
        return self.graph.call_function(aten.view.default, (wide, shape))

    def _narrow(self, node: fx.Node, wide: fx.Node) -> None:
        """Enter a result with room at the ends of its axes, and what of it was asked for."""
        self.wide[node] = narrow = wide
        for axis in (-2, -1) if node.target in MULTIPLIED else (-1,):
            length = node.meta["shape"][axis]
            if excess(length):
                narrow = self.graph.call_function(aten.slice.Tensor, (narrow, axis, 0, length))
        self.env[node] = narrow

    def _operand(self, x: fx.Node) -> fx.Node:
        """An operand with the room that its origin has, where only changes of shape lie between that leave the room."""
        roomy = self._roomy(x)
        return self._copy(x) if roomy is None else roomy[0]

    def _roomy(self, x: fx.Node) -> tuple[fx.Node, bool] | None:
        """The same with room, and whether that is in the rows now, as it is after a transposition."""
        if x in self.wide:
            return None if x.target in MULTIPLIED else (self.wide[x], False)
        if x.target not in VIEWS and x.target is not aten.expand.default and not _turns(x):
            return None
        source = x.all_input_nodes[0]
        found = self._roomy(source)
        if found is None:
            return None
        wide, turned = found
        if _turns(x):
            return self.graph.call_function(aten.transpose.int, (wide, -2, -1)), not turned
        if not _keeps_rows(x, source, turned):
            return None
        shape = list(x.meta["shape"])
        shape[-2 if turned else -1] += excess(shape[-2 if turned else -1])
        change: Any = aten.expand.default if x.target is aten.expand.default else aten.view.default
        return self.graph.call_function(change, (wide, shape)), turned

    def _gets_room(self, node: fx.Node) -> bool:
        """Whether rows of a segment's result get room at their ends: where it will be multiplied."""
        shape = node.meta.get("shape", ())
        if not self.align or size(node) < LARGE or not excess(shape[-1]) or node.meta.get("dtype") != torch.float32:
            return False
        return self._rows_stay(node) and any(r.target in MULTIPLIED for r in self.plan.readers(node))

    def _rows_stay(self, node: fx.Node) -> bool:
        """Whether no view of a result takes its rows for adjacent."""
        views, seen = [(x, node, False) for x in node.users], {node}
        while views:
            x, source, turned = views.pop()
            if x.op == "output" or (x.target is accumulate and x.args[0] in seen and not self._rows_stay(x)):
                return False
            if self.plan.floats(x) and shares_storage(x):
                if x.target in VIEWS and not _keeps_rows(x, source, turned):
                    return False
                seen.add(x)
                views += [(user, x, turned ^ _turns(x)) for user in x.users]
        return True

    def _call(self, group: list[fx.Node], level: int) -> None:
        results = [n for n in group if self.plan.kept(n)]
        if not results:  # all of it is computed again where it is read
            return
        segment, inputs, key = self._segment(results, level)
        if key not in self.known:
            self.known[key] = self.compiler(segment)
        if key not in self.names:
            self.names[key] = f"segment{len(self.names)}"
            self.root.add_module(self.names[key], Segment(self.known[key]))
        call = self.graph.call_module(self.names[key], tuple(self._copy(x) for x in inputs))
        for i, node in enumerate(results):
            self.env[node] = self.graph.call_function(operator.getitem, (call, i))
            if node in self.plan.recipes:
                self.temporary.append(node)
            if self._gets_room(node):
                self._narrow(node, self.env[node])

    def _here(self, x: fx.Node, level: int) -> bool:
        """Whether groups of that level compute an operation, for the first time or again."""
        return x in self.plan.light and (self.plan.level[x] == level or self.plan.repeated(x, level))

    def _segment(self, results: list[fx.Node], level: int) -> tuple[Any, list[fx.Node], str]:
        """Results of a level as a function of what they read, and a text that equal functions have in common."""
        graph, inside, inputs, lines = fx.Graph(), dict[fx.Node, fx.Node](), list[fx.Node](), list[str]()

        def put(node: fx.Node) -> None:
            stack = [node]
            while stack:
                x = stack[-1]
                repeated = self.plan.floats(x) or self._here(x, level)
                missing = [y for y in x.all_input_nodes if y not in inside] if repeated and x not in inside else []
                if missing:
                    stack += reversed(missing)
                    continue
                stack.pop()
                if x not in inside:
                    write(x, repeated)

        def write(x: fx.Node, repeated: bool) -> None:
            name = f"x{len(inside) + 1}"
            if repeated:
                inside[x] = graph.node_copy(x, inside.__getitem__)
                inside[x].name = name
                lines.append(f"{name} = {x.target} {inside[x].args} {sorted(inside[x].kwargs.items())}")
            else:
                inside[x] = graph.placeholder(name)
                inside[x].name = name
                inside[x].meta = dict(x.meta)
                inputs.append(x)
                lines.append(f"{name}: {[str(x.meta.get(k)) for k in ('shape', 'strides', 'dtype')]}")

        for node in results:
            put(node)
        lines.append(f"return {[inside[n].name for n in results]}")
        for n in results:
            if self._gets_room(n):
                inside[n] = graph.call_function(aten.constant_pad_nd.default, (inside[n], [0, excess(n.meta["shape"][-1])]))
                lines.append(f"result {results.index(n)} gets room")
        graph.output(tuple(inside[n] for n in results))
        ordered = fx.Graph()  # arguments first
        moved: dict[fx.Node, fx.Node] = {}
        for first in (True, False):
            for node in graph.nodes:
                if (node.op == "placeholder") == first:
                    moved[node] = ordered.node_copy(node, moved.__getitem__)
        return fx.GraphModule(torch.nn.Module(), ordered), inputs, "\n".join(lines)


class Segment(torch.nn.Module):
    """A compiled function, in a form that a program can call."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.call = [function]  # in a list, so that it is not taken for a part of this module

    def forward(self, *args: Any) -> Any:
        """Call it."""
        return self.call[0](*args)


def _keeps_rows(x: fx.Node, source: fx.Node, turned: bool) -> bool:
    """Whether a change of shape leaves the rows of its source, which are columns after a transposition, as they are."""
    after, before = (tuple(t.meta.get("shape", ())) for t in (x, source))
    return bool(after) and (after[-2:] == before[-2:] if turned else after[-1:] == before[-1:])


def _turns(node: fx.Node) -> bool:
    """Whether an operation exchanges the last two axes."""
    if node.target is aten.transpose.int:
        axes: Any = node.args[1:]
        count = len(node.meta.get("shape", ()))
        return count > 1 and sorted(axis % count for axis in axes) == [count - 2, count - 1]
    return node.target is aten.t.default
