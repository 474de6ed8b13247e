"""A linear map recorded once: everything that does not depend on its argument is computed while recording and kept."""

import operator
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from ..core import CurvatureError
from .elementwise import made_for_one
from .peephole import mutates, simplify
from .recompute import Recipe, leaves, storage, superfluous

Named = dict[str, Tensor]
TOLERANCE = 1e-2  # of a recorded result, which the program must reproduce: rounding passes, a wrong value does not
SOURCES = 2  # large tensors that a constant may be computed from again: chains of sums through all layers end here
LARGE = 2**16  # constants with fewer numbers are kept as they are
VIEWS = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
CHEAP = {  # beside elementwise operations: a pass or two over one tensor, to a compiler
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overload in (
        ("_log_softmax", "default"),
        ("_softmax", "default"),
        ("constant_pad_nd", "default"),
        ("nll_loss_backward", "default"),
        ("scatter", "value"),
        ("slice_backward", "default"),
        ("zeros_like", "default"),
    )
}
SHAPE_QUESTIONS = {torch.ops.aten.is_same_size.default, torch.ops.aten._has_same_storage_numel.default}


class NotRecordable(CurvatureError):
    """The computation reads numbers out of its argument, or writes into it."""


class Tape:
    """The straight-line program of a linear map `{name: tensor} -> {name: tensor}`, with its constants."""

    def __init__(self, program: fx.GraphModule, names: tuple[str, ...], outputs: tuple[str, ...]):
        self.program, self.names, self.outputs = program, names, outputs

    def __call__(self, vectors: Named) -> Named:
        """Run the program."""
        return dict(zip(self.outputs, self.program(*(vectors[n] for n in self.names))))

    def __len__(self) -> int:
        """Count the operations."""
        return sum(node.op == "call_function" for node in self.program.graph.nodes)

    @property
    def writes(self) -> bool:
        """Whether an operation writes into a tensor that another may see."""
        return any(mutates(node) for node in self.program.graph.nodes)

    def batched(self) -> Callable[..., tuple[Tensor, ...]]:
        """The program on tensors with one more leading axis."""
        graph = deepcopy(self.program.graph)
        for node in graph.nodes:
            if node.target in VIEWS:  # with the axis in front, a view may be none
                node.target = torch.ops.aten.reshape.default
            elif node.target is torch.ops.aten.addcmul_.default and made_for_one(node.args[0]):  # which vmap has no rule for
                node.target = torch.ops.aten.addcmul.default
        return torch.func.vmap(fx.GraphModule(self.program, graph))

    @property
    def nbytes(self) -> int:
        """Memory that the constants hold on to, each storage once."""
        sizes = {b.untyped_storage().data_ptr(): b.untyped_storage().nbytes() for b in self.program.buffers()}
        return sum(sizes.values())


def record(function: Callable[[Named], Named], example: Named, *, frugal: bool = False) -> Tape:
    """Run a linear function once and note the operations through which its argument passes.

    `frugal` keeps fewer constants, and has the program compute the cheap ones again: for programs that will be compiled.
    The program is run on the example before it is returned, and must give what the function gave.

    >>> tape = record(lambda v: {"y": 2 * torch.ones(2).exp() @ v["x"]}, {"x": torch.ones(2)})
    >>> tape({"x": torch.tensor([2.0, 0.0])})["y"]
    tensor(10.8731)
    """
    recorder = _Recorder(frugal)
    arguments = {name: recorder.argument(v.clone()) for name, v in example.items()}
    with warnings.catch_warnings(), recorder:
        warnings.filterwarnings("ignore", "`torch.jit.script")  # torch's own, when it loads its formulas
        results = function(arguments)
    tape = Tape(recorder.finish(list(results.values())), tuple(example), tuple(results))
    _verify(tape, example, results)
    return tape


def without_writes(tape: Tape, example: Named) -> Tape:
    """The same program with no operation that writes into a tensor, for compilers; the program itself where torch cannot."""
    if not tape.writes:
        return tape
    graph, moved, constants = fx.Graph(), dict[fx.Node, fx.Node](), list[Tensor]()
    for node in tape.program.graph.nodes:
        if node.op == "get_attr":  # a clone of a constant may be written to: torch wants to know of it
            with graph.inserting_before(next(iter(graph.nodes))):
                moved[node] = graph.placeholder(f"constant{len(constants)}")
            constants.insert(0, getattr(tape.program, str(node.target)))
        else:
            moved[node] = graph.node_copy(node, moved.__getitem__)
    program = torch.func.functionalize(fx.GraphModule(torch.nn.Module(), graph))
    try:
        return record(lambda v: dict(zip(tape.outputs, program(*constants, *(v[n] for n in tape.names)))), example, frugal=True)
    except (RuntimeError, NotImplementedError, NotRecordable):
        return tape


def _verify(tape: Tape, example: Named, results: Named) -> None:
    found = tape(example)
    for name, expected in results.items():
        gap, size = float((found[name] - expected).double().norm()), float(expected.double().norm())
        if not gap <= TOLERANCE * size:
            raise NotRecordable(
                f"the recorded program differs by {gap:.1e} of {size:.1e} from what was recorded: engine='reverse'."
            )


class _Recorder(TorchDispatchMode):
    """Notes each operation on a tensor that depends on an argument; all others just run.

    Tensors that depend on an argument are `live`. A constant that is written to with live numbers becomes live with all its
    views: its storage is entered in `dirty`, as a flat copy that views are cut from. In a frugal recording, `recipes` are the
    constants that the program may compute again: elementwise functions of others; `origins` are those of what was captured.
    """

    def __init__(self, frugal: bool):
        super().__init__()
        self.frugal = frugal
        self.graph, self.constants = fx.Graph(), dict[str, Tensor]()
        self.live, self.known, self.recipes = (WeakTensorKeyDictionary() for _ in range(3))
        self.dirty: dict[int, fx.Node] = {}
        self.captured: dict[int, list[str]] = {}
        self.origins: dict[str, Recipe] = {}
        self.arguments: set[int] = set()

    def argument(self, example: Tensor) -> Tensor:
        """A tensor to call the function with."""
        self._enter(example, self.graph.placeholder(f"v{len(self.arguments)}"))
        self.arguments.add(storage(example))
        return example

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.aten._efficientzerotensor.default:  # has no storage, which torch 2.13 trips over under a mode
            return torch.zeros(*args, **kwargs)
        inputs = _tensors((*args, *kwargs.values()))
        written = _written(func, args, kwargs)
        for t in written:
            self._protect(t)
        if func in SHAPE_QUESTIONS or not any(self._depends(t) for t in inputs):
            out = func(*args, **kwargs)
            if self.frugal and not written and isinstance(out, Tensor) and (_cheap(func) or _view(func)):
                self._remember(func, args, kwargs, inputs, out)
            return out
        for t in written:
            self._open(t)
        nodes = _mapped(args, self._node), {name: _mapped(value, self._node) for name, value in kwargs.items()}
        out = func(*args, **kwargs)
        self._note(out, self.graph.call_function(func, *nodes), written)
        return out

    def finish(self, results: list[Tensor]) -> fx.GraphModule:
        """The program, without what does not contribute to the results."""
        self.graph.output(tuple(self._node(t) for t in results))
        if self.frugal:
            self._forget()
        simplify(self.graph, self.constants, fold=not self.frugal)
        root = torch.nn.Module()
        for name in sorted({str(node.target) for node in self.graph.nodes if node.op == "get_attr"}):
            root.register_buffer(name, self.constants[name])
        self._let_go()
        return fx.GraphModule(root, self.graph)

    def _let_go(self) -> None:
        """Drop what is not kept now, not when cycles of Python objects are collected: it may be gigabytes."""
        self.live, self.known, self.recipes = (WeakTensorKeyDictionary() for _ in range(3))
        self.constants, self.origins = {}, {}

    def _depends(self, t: Tensor) -> bool:
        return t in self.live or (bool(self.dirty) and storage(t) in self.dirty)

    def _node(self, t: Tensor) -> fx.Node:
        if t in self.live:
            return self.live[t]
        if self.dirty and storage(t) in self.dirty:
            view = (self.dirty[storage(t)], list(t.shape), list(t.stride()), t.storage_offset())
            self.live[t] = self.graph.call_function(torch.ops.aten.as_strided.default, view)
            return self.live[t]
        if t in self.recipes and self.recipes[t].light:
            return self._again(self.recipes[t], self._node, {})
        return self._constant(t)

    def _again(self, recipe: Recipe, leaf: Callable[[Tensor], fx.Node], kept: dict[int, str]) -> fx.Node:
        """Write down how a constant is computed again, of tensors and of what is kept under a name."""
        made: dict[int, fx.Node] = {}

        def node(part: Tensor | Recipe) -> fx.Node:
            if id(part) not in made:
                made[id(part)] = leaf(part) if isinstance(part, Tensor) else written(part)
            return made[id(part)]

        def written(part: Recipe) -> fx.Node:
            if id(part) in kept:
                return self._attribute(kept[id(part)])
            again = self.graph.call_function(part.function, *tree_map_only((Tensor, Recipe), node, (part.args, part.kwargs)))
            again.meta = dict(part.meta)
            return again

        return written(recipe)

    def _forget(self) -> None:
        """Compute constants again from others where that leaves fewer to keep."""
        sources = {storage(x): x for x in leaves(self.origins.values())}
        names = superfluous(self.constants, self.origins, sources)
        kept = {id(recipe): name for name, recipe in self.origins.items() if name not in names}

        for old in [n for n in self.graph.nodes if n.op == "get_attr" and n.target in names]:
            with self.graph.inserting_before(old):
                fresh = self._again(self.origins[str(old.target)], self._constant, kept)
            old.replace_all_uses_with(fresh)
            self.graph.erase_node(old)

    def _constant(self, t: Tensor) -> fx.Node:
        if t not in self.known:
            name = f"c{len(self.constants)}"
            self.constants[name], self.known[t] = t.detach(), name
            if t in self.recipes:
                self.origins[name] = self.recipes[t]
            self.captured.setdefault(storage(t), []).append(name)
        return self._attribute(self.known[t])

    def _attribute(self, name: str) -> fx.Node:
        node = self.graph.get_attr(name)
        node.meta = _meta(self.constants[name])
        return node

    def _remember(self, func: Any, args: tuple, kwargs: dict, inputs: list[Tensor], out: Tensor) -> None:
        """Note how a cheap constant came about; one that goes back to a single large one is not kept at all."""
        large: set[int] = set()
        for t in inputs:
            large |= self.recipes[t].sources if t in self.recipes else {storage(t)} if 2 * t.numel() >= out.numel() else set()
        derived = any(t in self.recipes for t in inputs)
        if out.numel() >= LARGE and (derived or not _view(func)) and len(large) <= SOURCES:
            args, kwargs = tree_map_only(Tensor, lambda t: self.recipes.get(t, t), (args, kwargs))
            self.recipes[out] = Recipe(func, args, kwargs, frozenset(large), len(large) <= 1, _meta(out))

    def _protect(self, t: Tensor) -> None:
        """Before a tensor is written: what was captured of it keeps its value, and recipes that show it are dropped."""
        written = storage(t)
        for name in self.captured.pop(written, []):
            self.constants[name] = self.constants[name].clone()
        if t in self.known:
            del self.known[t]
        for other in [r for r in self.recipes if storage(r) == written or written in self.recipes[r].storages]:
            del self.recipes[other]
        for name in [n for n in self.origins if written in self.origins[n].storages]:
            del self.origins[name]

    def _open(self, t: Tensor) -> None:
        """Make a tensor that is about to be written one that each run of the program makes afresh."""
        if storage(t) in self.arguments:
            raise NotRecordable("the computation writes into its argument; expected a pure function: engine='reverse'.")
        if not self._depends(t):
            whole = torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage())  # type: ignore[call-overload]
            self.dirty[storage(t)] = self.graph.call_function(torch.ops.aten.clone.default, (self._constant(whole.clone()),))

    def _note(self, out: Any, node: fx.Node, written: list[Tensor]) -> None:
        parts = out if isinstance(out, tuple | list) else (out,)
        if any(not isinstance(x, Tensor) and x is not None for x in parts):
            raise NotRecordable(f"{node.target} reads a number out of the argument; expected a linear map: engine='reverse'.")
        if isinstance(out, Tensor):
            if not any(out is t for t in written):
                self._enter(out, node)
            return
        for i, t in enumerate(parts):
            if isinstance(t, Tensor) and not any(t is w for w in written):
                self._enter(t, self.graph.call_function(operator.getitem, (node, i)))

    def _enter(self, t: Tensor, node: fx.Node) -> None:
        node.meta = _meta(t)
        self.live[t] = node


def _meta(t: Tensor) -> dict[str, Any]:
    return {"shape": t.shape, "dtype": t.dtype, "strides": t.stride(), "device": t.device}


def _cheap(func: Any) -> bool:
    if func is torch.ops.aten.clone.default:  # made for the order of its numbers, which some operation wants
        return False
    return torch.Tag.pointwise in func.tags or func in CHEAP


def _view(func: Any) -> bool:
    return any(r.alias_info is not None for r in func._schema.returns)


def _tensors(arguments: Iterable[Any]) -> list[Tensor]:
    """Tensors among the arguments of an operation, which may be lists: what `tree_iter` finds, in a fraction of its time."""
    found = []
    for x in arguments:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, list | tuple):
            found += _tensors(x)
    return found


def _mapped(argument: Any, function: Callable[[Tensor], Any]) -> Any:
    """An argument of an operation with its tensors replaced."""
    if isinstance(argument, Tensor):
        return function(argument)
    if isinstance(argument, list | tuple):
        return type(argument)(_mapped(x, function) for x in argument)
    return argument


def _written(func: Any, args: tuple, kwargs: dict) -> list[Tensor]:
    """Tensors that an operation writes to, by its schema."""
    schema = func._schema
    if not schema.is_mutable:
        return []
    values = list(args) + [kwargs.get(a.name) for a in schema.arguments[len(args) :]]
    picked = [v for a, v in zip(schema.arguments, values) if a.alias_info is not None and a.alias_info.is_write]
    return _tensors(picked)
