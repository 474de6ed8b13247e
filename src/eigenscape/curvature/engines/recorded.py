"""Forward over reverse, recorded: only what depends on the vector is computed again."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..objective import Objective, Piece
from ..tape import Tape, record, without_writes
from .engine import Engine, Matrix, Named
from .kept import Kept
from .point import Leaves, Point
from .running import run

CHUNK = 8  # columns that go through a batched program together
TOGETHER = 4  # the same, of a compiled one


class Recorded(Engine):
    """Each product runs a straight-line program, recorded once per micro-batch, with all that is constant kept.

    The program has no more matrix products than differentiation needs, and no bookkeeping of derivatives. Micro-batches whose
    programs do not fit in memory are differentiated afresh. `transform` may compile the program.
    """

    def __init__(
        self,
        objective: Objective,
        matrix: Matrix,
        memory: float | None = None,
        point: Point | None = None,
        transform: Callable[[Any], Any] | None = None,
    ):
        super().__init__(objective, matrix)
        self.programs = Kept(point or Point(objective), self._record, memory, lambda program, _: program.nbytes, self._afresh)
        self.transform = transform
        self.batched: bool | None = None if objective.device.type == "cuda" else False

    def __str__(self) -> str:
        how = "compiled" if self.transform is not None else "recorded"
        together = f", {CHUNK if self.transform is None else TOGETHER} columns at once" if self.batched else ""
        return f"{how} forward over reverse, programs {self.programs}{together}{self._note()}"

    def _note(self) -> str:
        notes = {note for program in self.programs.held if (note := getattr(program.run, "note", ""))}
        return f" ({', '.join(sorted(notes))})" if notes else ""

    def matmat(self, V):
        """Multiply column by column, or in chunks of columns where a GPU does that faster."""
        if self.programs.whole:  # nothing is differentiated: no conditions to set up
            return self._matmat(self.programs.held, V)
        return run(self.objective, lambda: self._matmat(self.programs, V))

    def release(self) -> None:
        """Free the programs; the next product records them again."""
        self.programs.release()

    @torch.no_grad()
    def _matmat(self, programs: Iterable[Any], V: Tensor) -> Tensor:
        rows = V.mT.contiguous()
        total: Tensor | None = None
        for program in programs:
            out = self._rows(program, rows)
            total = out if total is None else total.add_(out)
        return torch.zeros_like(rows).mT if total is None else total.mT

    def _rows(self, program: Any, rows: Tensor) -> Tensor:
        size = CHUNK if self.transform is None else TOGETHER
        least = 2 if self.transform is None else TOGETHER  # each number of rows would have to be compiled by itself
        parts = rows.split(size) if self.batched is not False and isinstance(program, Program) else ()
        if any(len(part) >= least for part in parts):
            try:
                out = torch.cat([program.batched(part) if len(part) >= least else _singly(program, part) for part in parts])
                self.batched = True
                return out
            except (RuntimeError, NotImplementedError):  # an operation without a rule for batches
                self.batched = False
        return _singly(program, rows)

    def _record(self, objective: Objective, leaves: Leaves, piece: Piece) -> "Program":
        stream = torch.Generator(objective.device).manual_seed(0)  # there, as a hundred million numbers take seconds on a CPU
        example = torch.randn(self.layout.size, generator=stream, dtype=objective.dtype, device=objective.device)

        def function(v: Named) -> Named:
            return {"Av": self._afresh(objective, leaves, piece)(v["v"])}

        tape = record(function, {"v": example}, frugal=self.transform is not None)
        return Program(without_writes(tape, {"v": example}) if self.transform else tape, self.transform)

    def _afresh(self, objective: Objective, leaves: Leaves, piece: Piece) -> Callable[[Tensor], Tensor]:
        linear = self.matrix.linear(objective, {n: p.detach() for n, p in leaves.items()}, piece)
        return lambda v: self.layout.flatten(linear(self.layout.unflatten(v)))


def _singly(program: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    return torch.stack([program(row) for row in rows])


class Program:
    """A recorded product with one micro-batch's matrix."""

    def __init__(self, tape: Tape, transform: Callable[[Any], Any] | None):
        self.nbytes, self.tape, self.transform = tape.nbytes, tape, transform
        self.run = transform(tape.program) if transform else tape.program
        self._together: dict[int, Callable[[Tensor], tuple[Tensor, ...]]] = {}

    def __call__(self, v: Tensor) -> Tensor:
        """Multiply one vector."""
        return self.run(v)[0]

    def batched(self, rows: Tensor) -> Tensor:
        """Multiply several vectors, the rows, at once."""
        if len(rows) not in self._together:
            self._together[len(rows)] = self._several(rows)
        return self._together[len(rows)](rows)[0]

    def _several(self, rows: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """Return the program for so many vectors; to be compiled, it is recorded itself."""
        program = self.tape.batched()
        if self.transform is None:
            return program
        tape = record(lambda v: {"Av": program(v["v"])[0]}, {"v": rows}, frugal=True)
        return self.transform(without_writes(tape, {"v": rows}).program)
