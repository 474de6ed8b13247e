"""The engine that chooses: cheap to start with, cheap to go on with."""

import math
import time

import torch
from torch import Tensor

from ...core import CurvatureError
from ..objective import Objective
from .compiled import Compiler
from .difference import Difference
from .engine import Engine, Matrix
from .moments import Moments, applies
from .recorded import Recorded
from .reverse import Reverse

NAMES = ("auto", "reverse", "recorded", "compiled", "uncached", "difference", "moments")
PATIENCE = 10  # products by double backward before recording, whose cost (4 to 11 gradients) some 20 products win back
MANY = 25  # products announced beforehand for which recording pays from the first
WORTH = 20.0  # seconds of recorded products on a GPU after which compiling them, which takes about as long, is worth a try
TRIALS = 3


class Automatic(Engine):
    """Double backward at first; once products go on at one point, recorded programs, if they agree and are faster.

    The choice is made by timing a few products of each, which are all used. It is made again when the parameters change.
    Where a solver has announced many products, they are recorded at once. On a GPU, programs that have run for long are
    compiled. Rounding differs between the engines: name an engine for results that are bitwise the same at every run.
    """

    def __init__(self, objective: Objective, matrix: Matrix, reverse: Reverse, memory: float | None = None):
        super().__init__(objective, matrix)
        self.reverse, self.point = reverse, reverse.graphs.point
        self.recorded = Recorded(objective, matrix, memory, self.point)
        self.note, self.compiles = "", objective.device.type == "cuda"
        self._version, self._spent, self._announced = 0, 0, 0
        self._times: dict[Engine, list[float]] = {}
        self._busy, self.memory = 0.0, memory
        self._chosen: Engine | None = None

    def __str__(self) -> str:
        return f"{self._chosen or self.reverse}{self.note}"

    def matmat(self, V):
        """Multiply by whichever engine is best known to do so."""
        if self.point.refresh() != self._version:
            self._start()
        announced, self._announced = self._announced, 0
        if self._chosen is not None:
            return self._go_on(self._chosen, V)
        self._spent += V.shape[1]
        if announced >= MANY:
            return self._at_once(V, announced)
        if self._spent <= PATIENCE or not self.reverse.graphs.whole:
            return self._timed(self.reverse, V)
        if self.recorded not in self._times:
            return self._try(V)
        out = self._timed(self.recorded, V)
        if len(self._times[self.recorded]) >= TRIALS:
            self._choose()
        return out

    def release(self) -> None:
        """Free everything; the next product starts again."""
        self.reverse.release()
        self.recorded.release()
        self._start()

    def _start(self) -> None:
        self._version, self._spent, self._chosen, self.note = self.point.version, 0, None, ""
        self._times, self._busy = {}, 0.0
        self.recorded.release()

    def prepare(self, products: int) -> None:
        """Count on so many products at the present parameters."""
        self._announced = products

    def _go_on(self, chosen: Engine, V: Tensor) -> Tensor:
        if not self.compiles or chosen is not self.recorded:
            return chosen.matmat(V)
        out = self._timed(self.recorded, V)
        self._busy += self._times[self.recorded].pop() * V.shape[1]
        if self._busy >= WORTH:
            self.recorded.release()
            self._chosen = Recorded(self.objective, self.matrix, self.memory, self.point, Compiler())
            self.note = f" (after {self._busy:.0f} s of recorded products)"
        return out

    def _at_once(self, V: Tensor, announced: int) -> Tensor:
        """Record without a comparison of times."""
        out = self._try(V)
        if self._chosen is None:
            self._chosen, self.note = self.recorded, f" ({announced} products announced)"
        return out

    def _try(self, V: Tensor) -> Tensor:
        """Record, which includes a comparison with what was recorded."""
        self._times[self.recorded] = []
        try:
            out = self.recorded.matmat(V)
        except (RuntimeError, NotImplementedError, CurvatureError) as error:
            return self._stay(f"cannot be recorded: {str(error).strip().splitlines()[0]}", V)
        return out if self.recorded.programs.whole else self._stay("programs do not fit in memory", V)

    def _stay(self, why: str, V: Tensor) -> Tensor:
        self._chosen, self.note = self.reverse, f" ({why})"
        self.recorded.release()
        return self.reverse.matmat(V)

    def _choose(self) -> None:
        by_reverse, by_program = (_best(self._times[e]) for e in (self.reverse, self.recorded))
        ratio = by_program / by_reverse if by_reverse > 0 else math.inf
        self.note = f" (measured: recorded / double backward = {ratio:.2f})"
        self._chosen, other = (self.recorded, self.reverse) if ratio < 1 else (self.reverse, self.recorded)
        other.release()

    def _timed(self, engine: Engine, V: Tensor) -> Tensor:
        start = _now(self.objective.device)
        out = engine.matmat(V)
        self._times.setdefault(engine, []).append((_now(self.objective.device) - start) / V.shape[1])
        return out


def _best(times: list[float]) -> float:
    """Median of the last few: the first includes building."""
    late = sorted(times[-TRIALS:])
    return late[len(late) // 2]


def _now(device: torch.device) -> float:
    """Seconds; on a CPU those of this process, so that a busy machine does not decide."""
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def make_engine(name: str, objective: Objective, matrix: Matrix, reverse: Reverse, memory: float | None) -> Engine:
    """Engine of that name."""
    if name == "auto":
        if applies(objective, matrix) and objective.num_samples >= max(map(max, objective.layout.shapes)):
            return Moments(objective, matrix)
        return Automatic(objective, matrix, reverse, memory)
    if name in ("reverse", "uncached"):
        return reverse
    if name == "recorded":
        return Recorded(objective, matrix, memory)
    if name == "compiled":
        return Recorded(objective, matrix, memory, transform=Compiler())
    if name == "difference":
        return Difference(objective, matrix)
    if name == "moments":
        if not applies(objective, matrix):
            raise CurvatureError(
                "engine is 'moments'; expected the Hessian or GGN of an nn.Sequential of nn.Linear with a squared loss on "
                'matrices: use engine="auto".'
            )
        return Moments(objective, matrix)
    raise CurvatureError(f"engine is {name!r}; expected one of {', '.join(NAMES)}.")
