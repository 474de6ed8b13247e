"""(model, criterion, data) becomes an operator over the parameters: Hessian, GGN, functional Hessian, Fisher."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor

from ..core import CurvatureError, resolve_generator
from ..linop import Operator
from .engines.automatic import make_engine
from .engines.difference import Difference
from .engines.engine import Matrix
from .engines.reverse import Reverse
from .matrices import OfOutputs, OfSampledScores, OfScalar, of_criterion, of_loss, of_outputs, of_scores
from .objective import Objective
from .precision import check_precision, products_in
from .selftest import self_test


class Options(TypedDict, total=False):
    """What every operator takes: `check`, `memory`, `engine` and `precision` of `CurvatureOperator`."""

    check: bool | None
    memory: float | None
    engine: str
    precision: str | None


class CurvatureOperator(Operator):
    """A matrix over an objective's parameters, summed over micro-batches.

    Products are always at the model's present parameters, and exact up to rounding unless the engine is `"difference"`.
    Before the first product the operator tests itself, unless `check=False`. `memory` bounds the bytes kept between products.
    `engine` says how products are computed (`print(H.engine)` tells what was chosen):

    - `"auto"`: `"reverse"` first, then `"recorded"` where that is measured to be faster; `"moments"` where it applies;
    - `"reverse"`: double backward on first-order graphs that are kept;
    - `"recorded"`: forward over reverse, recorded once, so that only what depends on the vector is computed again;
    - `"compiled"`: the same, compiled, and on a GPU one graph; takes less than half a minute, for many products there;
    - `"uncached"`: double backward from scratch, for what does not fit in memory;
    - `"difference"`: differences of gradients, for models without second derivatives; its error is estimated in `engine`;
    - `"moments"`: for deep linear networks with a squared loss, independent of the number of samples.

    `precision` says how float32 matrices are multiplied and convolved inside a product with the operator: `"highest"` in
    float32, `"high"` where the device allows in TF32, `"medium"` in bfloat16; by default as torch is set, which never changes.
    """

    def __init__(
        self,
        objective: Objective,
        matrix: Matrix,
        *,
        check: bool | None = None,
        memory: float | None = None,
        engine: str = "auto",
        precision: str | None = None,
    ):
        require_objective(objective)
        super().__init__(objective.layout.size, dtype=objective.dtype, device=objective.device, layout=objective.layout)
        self.objective, self.matrix, self.precision = objective, matrix, check_precision(precision)
        self._reverse = Reverse(objective, matrix, 0.0 if engine == "uncached" else memory)
        self._engine = make_engine(engine, objective, matrix, self._reverse, memory)
        self._untested = objective.check if check is None else check

    @property
    def engine(self) -> str:
        """How products are computed at the moment."""
        cheap = f", {self.precision} precision" if self.precision else ""
        return f"{self.matrix.name} by {self._engine}{cheap}"

    @property
    def cost(self) -> float:
        """What a product costs, next to others with matrices of the same network: the samples it goes through."""
        return self.objective.num_samples

    def matmat(self, V):
        """Multiply all columns in one pass over the data."""
        self._test()
        with products_in(self.precision):
            return self._engine.matmat(V.detach())

    def prepare(self, products: int) -> None:
        """Let the engine hear about how many products will follow."""
        self._engine.prepare(products)

    def block_products(self, groups: Sequence[Sequence[str]], vectors: Sequence[Tensor]) -> list[Tensor]:
        """Multiply each block by its vector: one pass over the data, no work outside the blocks."""
        self._test()
        if isinstance(self._engine, Difference):
            return super().block_products(groups, vectors)
        with products_in(self.precision):
            return self._reverse.blocks([self._layout().sub(tuple(g)) for g in groups], [v.detach() for v in vectors])

    def release(self) -> None:
        """Free the memory kept between products; the next product builds it again."""
        self._engine.release()
        self._reverse.release()

    def _test(self) -> None:
        if self._untested:
            differences = isinstance(self._engine, Difference)
            self_test(self.objective, self.matrix.graph, self.matrix.name, products=not differences)
            self._untested = False


def require_objective(objective: Any) -> None:
    """Refuse anything that is not an objective."""
    if not isinstance(objective, Objective):
        raise CurvatureError(f"a {type(objective).__name__} came; expected es.Objective(model, criterion, data).")


def hessian(objective: Objective, **options: Unpack[Options]) -> CurvatureOperator:
    """Hessian of the whole-set mean loss.

    >>> from torch import nn
    >>> model = nn.Linear(2, 1, bias=False)
    >>> obj = Objective(model, nn.MSELoss(), (torch.eye(2), torch.zeros(2, 1)))
    >>> hessian(obj) @ torch.ones(2)      # (2/n) X^T X = I
    tensor([1., 1.])
    """
    return CurvatureOperator(objective, OfScalar("Hessian", of_loss), **options)


def ggn(objective: Objective, **options: Unpack[Options]) -> CurvatureOperator:
    """Return the generalised Gauss-Newton matrix `J^T (d2 l / d f2) J`, with the criterion's own Hessian in output space."""
    return CurvatureOperator(objective, OfOutputs("GGN", of_criterion), **options)


def functional_hessian(objective: Objective, **options: Unpack[Options]) -> CurvatureOperator:
    """Functional Hessian `sum_k (dl / df_k) d2 f_k`: the Hessian minus the GGN, computed without subtracting."""
    return CurvatureOperator(objective, OfScalar("functional Hessian", of_outputs), **options)


def fisher(
    objective: Objective,
    kind: str = "exact",
    *,
    draws: int = 1,
    generator: torch.Generator | None = None,
    **options: Unpack[Options],
) -> CurvatureOperator:
    """Fisher information matrix.

    - `"exact"`: expectation over the model's own distribution; for a criterion that is a negative log-likelihood of its
      natural parameters (cross-entropy of logits, squared loss, BCE with logits) this is the GGN.
    - `"sampled"`: `draws` targets per datum from the model's distribution, from `generator`; fixed for the operator.
    - `"empirical"`: the data's own targets: the mean outer product of the gradients of single data.

    A datum is a token (cross-entropy), an element (BCE with logits) or a sample (everything else).
    """
    if kind == "exact":
        return CurvatureOperator(objective, OfOutputs("Fisher", of_criterion), **options)
    if kind == "empirical":
        return CurvatureOperator(objective, OfOutputs("empirical Fisher", of_scores), **options)
    if kind == "sampled":
        seed = int(torch.randint(0, 2**62, (), generator=resolve_generator(generator)))
        return CurvatureOperator(objective, OfOutputs("sampled Fisher", OfSampledScores(seed, draws)), **options)
    raise CurvatureError(f'kind is {kind!r}; expected "exact", "sampled" or "empirical".')
