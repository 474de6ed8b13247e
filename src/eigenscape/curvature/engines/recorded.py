"""Forward over reverse, recorded: only what depends on the vector is computed again."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core import random_like
from ..objective import Objective, Piece
from ..tape import Tape, record
from .engine import Engine, Matrix
from .kept import Kept
from .point import Leaves, Point
from .running import run

CHUNK = 8  # columns that go through a batched program together


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
        together = f", {CHUNK} columns at once" if self.batched else ""
        return f"{how} forward over reverse, programs {self.programs}{together}{self._note()}"

    def _note(self) -> str:
        notes = {note for program in self.programs.held if (note := getattr(program.run, "note", ""))}
        return f" ({', '.join(sorted(notes))})" if notes else ""

    def matmat(self, V):
        """Multiply column by column, or in chunks of columns where a GPU does that faster."""
        if self.programs.whole:  # nothing is differentiated: no conditions to set up
            return self._matmat(V)
        return run(self.objective, lambda: self._matmat(V))

    def release(self) -> None:
        """Free the programs; the next product records them again."""
        self.programs.release()

    @torch.no_grad()
    def _matmat(self, V: Tensor) -> Tensor:
        rows = V.mT.contiguous()
        total = torch.zeros_like(rows)
        for program in self.programs:
            total += self._rows(program, rows)
        return total.mT

    def _rows(self, program: Any, rows: Tensor) -> Tensor:
        if len(rows) > 1 and self.batched is not False and isinstance(program, Program):
            try:
                out = torch.cat([program.batched(part) for part in rows.split(CHUNK)])
                self.batched = True
                return out
            except (RuntimeError, NotImplementedError):  # an operation without a rule for batches
                self.batched = False
        return torch.stack([program(row) for row in rows])

    def _record(self, objective: Objective, leaves: Leaves, piece: Piece) -> "Program":
        flat = self._afresh(objective, leaves, piece)
        stream = torch.Generator().manual_seed(0)
        example = random_like((self.layout.size,), stream, dtype=objective.dtype, device=objective.device)
        tape = record(lambda v: {"Av": flat(v["v"])}, {"v": example}, frugal=self.transform is not None)
        return Program(tape, self.transform)

    def _afresh(self, objective: Objective, leaves: Leaves, piece: Piece) -> Callable[[Tensor], Tensor]:
        linear = self.matrix.linear(objective, {n: p.detach() for n, p in leaves.items()}, piece)
        return lambda v: self.layout.flatten(linear(self.layout.unflatten(v)))


class Program:
    """A recorded product with one micro-batch's matrix."""

    def __init__(self, tape: Tape, transform: Callable[[Any], Any] | None):
        self.nbytes = tape.nbytes
        self.run = transform(tape.program) if transform else tape.program
        self._batch = torch.func.vmap(tape.program)
        if transform:
            self._batch = transform(self._batch)

    def __call__(self, v: Tensor) -> Tensor:
        """Multiply one vector."""
        return self.run(v)[0]

    def batched(self, rows: Tensor) -> Tensor:
        """Multiply several vectors, the rows, at once."""
        return self._batch(rows)[0]
