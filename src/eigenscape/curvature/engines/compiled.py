"""Recorded programs compiled: each distinct segment once, for all its repeats and all micro-batches."""

import contextlib
import importlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, fx

from ..segments import segmented
from ..tape import TOLERANCE
from .replay import Replayed


class Compiler:
    """Compiles programs, and remembers what it has compiled."""

    def __init__(self):
        self.known: dict[str, Callable[..., Any]] = {}
        self.graphs: WeakSet[Any] = WeakSet()
        with contextlib.suppress(ImportError), warnings.catch_warnings():  # its processes start up while programs are recorded
            warnings.filterwarnings("ignore", "`torch.jit.script")  # torch's own
            importlib.import_module("torch._inductor.compile_fx")

    def __call__(self, program: fx.GraphModule) -> "Compiled":
        """Compile what has not been compiled before."""
        on_gpu = any(b.is_cuda for b in program.buffers())
        seen = len(self.known)
        compiled = segmented(program, CompiledSegment, self.known, align=on_gpu)
        order([s for s in list(self.known.values())[seen:] if isinstance(s, CompiledSegment)])
        return Compiled(program, compiled, Replayed(compiled, self.graphs) if on_gpu else compiled)


class CompiledSegment:
    """A segment of a program, compiled for the strides that it is called with.

    It has been traced already, with all its shapes, so that only the compiler's back end is needed.
    """

    def __init__(self, segment: fx.GraphModule):
        self.segment = segment
        self.compiled: dict[tuple[tuple[int, ...], ...], Callable[..., Any]] = {}

    def __call__(self, *arguments: Tensor) -> Any:
        """Run it; for strides that were not expected, compile it first."""
        strides = tuple(t.stride() for t in arguments)
        if strides not in self.compiled:
            self._compile(arguments)
        return self.compiled[strides](*arguments)

    def order(self) -> None:
        """Compile it for the strides that were recorded."""
        fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode
        metas = [node.meta for node in self.segment.graph.nodes if node.op == "placeholder"]
        with fake():
            arguments = [torch.empty_strided(m["shape"], m["strides"], dtype=m["dtype"], device=m["device"]) for m in metas]
        self._compile(arguments)

    def _compile(self, arguments: Sequence[Tensor]) -> None:
        compiled: Any = torch._inductor.compile(self.segment, list(arguments))
        self.compiled[tuple(t.stride() for t in arguments)] = compiled


def order(segments: Sequence[CompiledSegment]) -> None:
    """Compile segments before they are called, all at once; one that cannot be compiled says so when it is called."""
    try:
        with waits_at_the_end():
            for segment in segments:
                segment.order()
    except Exception:  # whatever a compiler and its back end may raise
        for segment in segments:
            segment.compiled.clear()


@contextlib.contextmanager
def waits_at_the_end() -> Iterator[None]:
    """Have the compiler's processes work on all that is ordered meanwhile, where it would wait for each order by itself."""
    processes: Any = importlib.import_module("torch._inductor.async_compile").AsyncCompile
    wait, thread = processes.wait, threading.get_ident()
    ordered: list[tuple[Any, dict[str, Any]]] = []

    def later(self: Any, scope: dict[str, Any]) -> None:
        if threading.get_ident() == thread:
            ordered.append((self, scope))
        else:
            wait(self, scope)

    processes.wait = later
    try:
        yield
    finally:
        processes.wait = wait
    for compiler, scope in ordered:
        wait(compiler, scope)


class Compiled:
    """A compiled program, or the program as it is where compilation fails, with a note."""

    def __init__(self, program: Callable[..., Any], compiled: Callable[..., Any], replayed: Callable[..., Any]):
        self.program, self.compiled, self.replayed = program, compiled, replayed
        self.failure, self.trusted = "", False

    @property
    def note(self) -> str:
        """Why it does not run as it should."""
        return self.failure or getattr(self.replayed, "note", "")

    def __call__(self, v: Tensor) -> tuple[Tensor, ...]:
        """Run the compiled program; the first time, compare."""
        if self.trusted:
            return self.replayed(v)
        plain = self.program(v)
        if not self.failure:
            try:
                gap = float((self.compiled(v)[0] - plain[0]).double().norm())
                self.trusted = gap <= TOLERANCE * float(plain[0].double().norm())
                self.failure = "" if self.trusted else "the compiled program differs, so it is not used"
            except Exception as error:  # whatever a compiler and its back end may raise
                self.failure = f"compilation failed: {type(error).__name__}"
        return plain
