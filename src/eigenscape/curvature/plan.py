"""Which operations of a straight-line program go together between its matrix products, and in which order."""

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


class Plan:
    """Which operations go together, and when.

    - Views, and what is computed from constants alone, `float`: they are repeated wherever they are needed.
    - `heavy` operations run by themselves; each has a level, one above that of all heavy operations it depends on.
    - `groups` hold the rest, by level: connected operations, and those that read the same large tensor.
    """

    def __init__(self, graph: fx.Graph):
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.live: set[fx.Node] = set()
        self.light: set[fx.Node] = set()
        self.heavy: dict[fx.Node, None] = {}
        self.parts: set[fx.Node] = set()  # of what came, or of the results of heavy operations
        for node in graph.nodes:
            self._sort(node)
        self.light |= {x for h in [*self.heavy, output(self.order)] for x in self._recipes(h)}
        self.level: dict[fx.Node, int] = {}
        for node in graph.nodes:
            if not self.floats(node):
                self.level[node] = max((self._after(x) for x in self.sources(node)), default=0)
        for node in reversed(list(graph.nodes)):
            if node in self.light or node in self.heavy:
                self._sink(node)
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
        """What is computed from constants for a heavy operation."""
        found, stack = [], list(node.all_input_nodes)
        while stack:
            x = stack.pop()
            if self.floats(x):
                if _passing(x) and not shares_storage(x):
                    found.append(x)
                else:
                    stack += x.all_input_nodes
        return found

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """What an operation reads in the end, past everything that floats; each once, in order."""
        found: dict[fx.Node, None] = {}
        stack = list(reversed(node.all_input_nodes))
        while stack:
            x = stack.pop()
            if self.floats(x):
                stack += reversed(x.all_input_nodes)
            else:
                found[x] = None
        return list(found)

    def _after(self, x: fx.Node) -> int:
        return self.level[x] + (x in self.heavy)

    def readers(self, node: fx.Node) -> list[fx.Node]:
        """Operations that read a result in the end."""
        found, stack = [], list(node.users)
        while stack:
            x = stack.pop()
            if x.op == "call_function" and self.floats(x):
                stack += x.users
            else:
                found.append(x)
        return found

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
        parent = {node: node for node in self.light}

        def root(x: fx.Node) -> fx.Node:
            while parent[x] is not x:
                parent[x] = parent[parent[x]]
                x = parent[x]
            return x

        readers: dict[tuple[int, fx.Node], fx.Node] = {}
        for node in sorted(self.light, key=self.order.__getitem__):
            for x in self.sources(node):
                if x in parent and self.level[x] == self.level[node]:
                    parent[root(node)] = root(x)
                elif size(x) >= LARGE:
                    first = readers.setdefault((self.level[node], x), node)
                    parent[root(node)] = root(first)
        groups: dict[fx.Node, list[fx.Node]] = defaultdict(list)
        for node in sorted(self.light, key=self.order.__getitem__):
            groups[root(node)].append(node)
        by_level: dict[int, list[list[fx.Node]]] = defaultdict(list)
        for group in groups.values():
            by_level[self.level[group[0]]].append(group)
        return by_level


def _part(node: fx.Node) -> bool:
    return node.target is operator.getitem


def size(node: fx.Node) -> int:
    """Count the numbers of a result, if that is known."""
    shape = node.meta.get("shape")
    return 0 if shape is None else torch.Size(shape).numel()


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
