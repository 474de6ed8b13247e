"""Which operations of a straight-line program go together between its matrix products, and in which order."""

import math
import operator
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from .peephole import shares_storage
from .products import accumulate

# Beside elementwise operations: what a compiler computes in passing.
PASSING = {
    *("_log_softmax", "_softmax", "_to_copy", "amax", "amin", "cat", "constant_pad_nd", "embedding", "full_like", "gather"),
    *("index_select", "logsumexp", "mean", "new_zeros", "nll_loss_backward", "ones_like", "scatter", "slice_backward", "sum"),
    *("var", "zeros_like"),
}
MANY = 8  # more tensors than this are joined by an operation of its own
LARGE = 1 << 16  # numbers: a tensor that costs something to read
SMALL = 8  # times fewer numbers than another tensor: costs nothing beside it
RECIPE = 2  # large constants that are read again to save keeping a result
EFFORT = 100  # operations that are computed again for that


class Plan:
    """Which operations go together, and when.

    - Views, and what is computed from constants alone, `float`: they are repeated wherever they are needed. Those of the second
      kind that heavy operations read are `recipes`, with the levels at which they are needed.
    - `heavy` operations run by themselves; each has a level, one above that of all heavy operations it depends on.
    - `groups` hold the rest, by level: connected operations, and those that read the same large tensor.
    - What a later group can compute `again` from one tensor that is no larger, it does, so that only that one is kept.
    """

    def __init__(self, graph: fx.Graph):
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.live: set[fx.Node] = set()
        self.light: set[fx.Node] = set()
        self.heavy: dict[fx.Node, None] = {}
        self.parts: set[fx.Node] = set()  # of what came, or of the results of heavy operations
        for node in graph.nodes:
            self._sort(node)
        self.level: dict[fx.Node, int] = {}
        for node in graph.nodes:
            if not self.floats(node):
                self.level[node] = max((self._after(x) for x in self.sources(node)), default=0)
        for node in reversed(list(graph.nodes)):
            if node in self.light or node in self.heavy:
                self._sink(node)
        self.again: dict[fx.Node, int] = {}  # with the number of operations that it takes
        for node in self.order:
            effort = 1 + sum(self.again.get(x, 0) for x in self.sources(node))
            if node in self.light and effort <= EFFORT and self._repeats(node):
                self.again[node] = effort
        self.consumers: dict[fx.Node, dict[fx.Node, None]] = {}
        for node in reversed(self.order):
            if node in self.light:
                self.consumers[node] = self._consumers(node)
        self.recipes: dict[fx.Node, set[int]] = defaultdict(set)
        for node in [*self.heavy, output(self.order)]:
            for x in self._recipes(node):
                self.recipes[x].add(self.level[node])
        self.groups = self._grouped()

    def _sort(self, node: fx.Node) -> None:
        if node.op == "placeholder" or any(x in self.live for x in node.all_input_nodes):
            self.live.add(node)
        if node.op != "call_function":
            return
        if _part(node) or (node.target is not accumulate and shares_storage(node)):
            (source,) = node.all_input_nodes[:1]
            if source.op == "placeholder" or source in self.parts or (source in self.heavy and _part(node)):
                self.parts.add(node)
        elif not _passing(node):
            self.heavy[node] = None
        elif node in self.live:
            self.light.add(node)

    def floats(self, node: fx.Node) -> bool:
        """Whether an operation is repeated wherever it is needed."""
        return node.op == "call_function" and not any(node in kind for kind in (self.light, self.parts, self.heavy))

    def _recipes(self, node: fx.Node) -> list[fx.Node]:
        """What a heavy operation reads that is computed from constants."""
        found, seen, stack = [], set[fx.Node](), list(node.all_input_nodes)
        while stack:
            x = stack.pop()
            if x in seen or not self.floats(x):
                continue
            seen.add(x)
            if _passing(x) and not shares_storage(x):
                found.append(x)
            else:
                stack += x.all_input_nodes
        return found

    def sources(self, node: fx.Node, level: float = 0) -> list[fx.Node]:
        """What an operation at that level reads in the end, past everything that is repeated there; each once, in order."""
        found: dict[fx.Node, bool] = {}
        stack = list(reversed(node.all_input_nodes))
        while stack:
            x = stack.pop()
            if x not in found:
                found[x] = not (self.floats(x) or self.repeated(x, level))
                stack += [] if found[x] else reversed(x.all_input_nodes)
        return [x for x, read in found.items() if read]

    def repeated(self, node: fx.Node, level: float) -> bool:
        """Whether groups of that level compute an operation again."""
        return level > 0 and node in self.again and level > self.level[node]

    def _repeats(self, node: fx.Node) -> bool:
        """Whether an elementwise operation follows, wherever it is read later, from one tensor that is no larger."""
        late = [r for r in self.readers(node) if r.op == "output" or self.level[r] > self.level[node]]
        if not _elementwise(node) or any(r not in self.light for r in late):
            return False
        read = [x for x in self.sources(node, math.inf) if SMALL * size(x) >= size(node)]
        live = [x for x in read if x in self.live]
        return len(live) <= 1 and all(size(x) <= size(node) for x in live) and len(read) - len(live) <= RECIPE

    def kept(self, node: fx.Node) -> bool:
        """Whether something outside its group reads a result of a group."""
        if node in self.recipes:
            return True
        level = self.level[node]
        return any(r not in self.light or (self.level[r] > level and node not in self.again) for r in self.consumers[node])

    def _consumers(self, node: fx.Node) -> dict[fx.Node, None]:
        """Operations that read a result where they are, themselves or through what is computed again there."""
        found: dict[fx.Node, None] = {}
        for r in self.readers(node):
            found[r] = None
            if r in self.again:
                found |= {q: None for q in self.consumers[r] if q in self.light and self.level[q] > self.level[r]}
        return found

    def _after(self, x: fx.Node) -> int:
        return self.level[x] + (x in self.heavy)

    def readers(self, node: fx.Node) -> list[fx.Node]:
        """Operations that read a result in the end."""
        found: dict[fx.Node, bool] = {}
        stack = list(node.users)
        while stack:
            x = stack.pop()
            if x not in found:
                found[x] = not (x.op == "call_function" and self.floats(x))
                stack += [] if found[x] else x.users
        return [x for x, reads in found.items() if reads]

    def _sink(self, node: fx.Node) -> None:
        """Compute later what reads no more than it writes: nothing is kept that was not before, and a pass is saved."""
        latest = min((self.level[r] for r in self.readers(node) if r.op != "output"), default=self.level[node])
        read = [x for x in self.sources(node) if x in self.live and size(x) >= LARGE and not self._given(x)]
        if node in self.heavy:
            latest, few = latest - 1, not read
        else:
            few = len(read) <= 1 and all(size(x) <= size(node) for x in read)
        if few and latest > self.level[node]:
            self.level[node] = latest

    def _given(self, node: fx.Node) -> bool:
        """Whether a result is what came, or a view of it."""
        return node.op == "placeholder" or (node in self.parts and self._given(node.all_input_nodes[0]))

    def _grouped(self) -> dict[int, list[list[fx.Node]]]:
        """Groups by level: of what runs there, those that belong together."""
        running: dict[int, list[fx.Node]] = defaultdict(list)
        for node in self.order:
            if node in self.light:
                running[self.level[node]].append(node)
            for level in self.recipes.get(node, ()):
                running[level].append(node)
        return {level: self._connected(nodes, level) for level, nodes in running.items()}

    def _connected(self, nodes: list[fx.Node], level: int) -> list[list[fx.Node]]:
        parent = {node: node for node in nodes}

        def root(x: fx.Node) -> fx.Node:
            while parent[x] is not x:
                parent[x] = parent[parent[x]]
                x = parent[x]
            return x

        readers: dict[fx.Node, fx.Node] = {}
        for node in nodes:
            for x in self.sources(node, level):
                if x in parent:
                    parent[root(node)] = root(x)
                elif size(x) >= LARGE:
                    parent[root(node)] = root(readers.setdefault(x, node))
        groups: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in nodes:
            groups[root(node)].append(node)
        return list(groups.values())


def _part(node: fx.Node) -> bool:
    return node.target is operator.getitem


def size(node: fx.Node) -> int:
    """Count the numbers of a result, if that is known."""
    shape = node.meta.get("shape")
    return 0 if shape is None else torch.Size(shape).numel()


def _elementwise(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags


def _passing(node: fx.Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    if target.overloadpacket.__name__ == "cat":
        return len(node.all_input_nodes) <= MANY
    return torch.Tag.pointwise in target.tags or target.overloadpacket.__name__ in PASSING


def output(nodes: Iterable[fx.Node]) -> fx.Node:
    """The operation that returns the results."""
    return next(node for node in nodes if node.op == "output")
