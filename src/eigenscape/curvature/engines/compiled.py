"""Recorded programs compiled: each distinct segment once, for all its repeats and all micro-batches."""

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from ..segments import segmented
from ..tape import TOLERANCE
from .replay import Replayed


class Compiler:
    """Compiles programs, and remembers what it has compiled."""

    def __init__(self):
        self.known: dict[str, Callable[..., Any]] = {}
        self.pool: Any = None  # of the memory that replayed programs compute in, one after the other
        with contextlib.suppress(ImportError):  # its processes start up while programs are recorded
            importlib.import_module("torch._inductor.async_compile")

    def __call__(self, program: fx.GraphModule) -> "Compiled":
        """Compile at the first call."""
        on_gpu = any(b.is_cuda for b in program.buffers())
        compiled = segmented(program, compile_segment, self.known, align=on_gpu)
        if on_gpu and self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        return Compiled(program, compiled, Replayed(compiled, self.pool) if on_gpu else compiled)


def compile_segment(segment: fx.GraphModule) -> Callable[..., Any]:
    """Compile one segment, for the shapes it is called with."""
    return torch.compile(segment, dynamic=False)


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
