"""Start-up test of an operator: two passes agree, products are symmetric, and match central differences."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..core import CurvatureError, DataError, EigenscapeError, SelfTestError, random_like, resolve_generator
from .engines.kept import Build
from .engines.point import Leaves
from .engines.running import run
from .hazards import check_finite_parameters
from .nested import cut, leading, tensors, tree_map
from .objective import Objective, Piece, leaf_copies

SAMPLES = 32  # samples used for the symmetry and difference tests
TOKENS, FEW = 128, 2  # of sequences of tokens, as many as hold so many tokens, but a few
STEP = 1e-6  # relative displacement in float64: truncation ~ step^2, rounding ~ 1e-16 / step
TOLERANCE = 1e-3  # of |H v|: LayerNorm's wrong second derivatives in torch 2.13 are off by 4e-3 and more


def self_test(objective: Objective, build: Build, name: str, *, products: bool = True) -> None:
    """Raise a `SelfTestError` that names what was seen, if an operator's products are not those of its definition."""
    check_finite_parameters(objective.parameters)
    run(objective, lambda: _passes_agree(objective))
    if products:
        run(objective, lambda: _small_scale(objective, build, name))


def _passes_agree(objective: Objective) -> None:
    first, second = (_losses(objective, seed) for seed in (1, 2))
    a, b = math.fsum(first), math.fsum(second)
    if not math.isfinite(a):
        raise CurvatureError(f"the loss is {a}; expected a finite number: look at the data and the criterion.")
    scale = max(sum(map(abs, first)), torch.finfo(torch.float64).tiny)
    drift = abs(a - b) / scale
    if drift > min(100 * torch.finfo(objective.dtype).eps, 1e-2):
        raise SelfTestError(
            f"two passes over the data gave losses {a:.8g} and {b:.8g} (relative difference {drift:.1e}), so the loss is not a "
            "fixed function; expected no randomness: model.eval(), fixed transforms, or data=list(loader)."
        )


def _losses(objective: Objective, seed: int) -> list[float]:
    """Losses of all micro-batches, with random streams that differ between the passes."""
    torch.default_generator.manual_seed(seed)
    if objective.device.type == "cuda":
        torch.cuda.default_generators[objective.device.index or 0].manual_seed(seed)
    with torch.no_grad():
        parameters = objective.parameters
        losses = [objective.piece_loss(parameters, piece) for piece in objective.pieces()]
    if not losses:
        raise DataError("the data is empty; expected at least one (inputs, targets) pair.")
    return torch.stack(losses).double().tolist()


def _small_scale(objective: Objective, build: Build, name: str) -> None:
    piece = _few(next(iter(objective.pieces())))
    if objective.batch_weight(piece.inputs, piece.targets) <= 0:  # the first samples have no target that counts
        return
    few = objective.with_data([piece])
    piece = next(iter(few.pieces()))
    parameters = objective.parameters
    u, v = (_direction(objective, parameters, seed) for seed in (1, 2))
    graph = build(few, leaf_copies(parameters), piece)
    if not hasattr(graph, "product"):
        graph = _Gram(graph)
    hu, hv = graph.product(u), graph.product(v)
    left, right = _dot(u, hv), _dot(v, hu)
    scale = math.sqrt(_dot(hu, hu) * _dot(v, v)) + math.sqrt(_dot(hv, hv) * _dot(u, u))
    # Relative noise of a product: layers that compute in float32 inside a float64 model, in bfloat16 inside a float32 one.
    noise = 1e-4 if objective.dtype == torch.float64 else 0.05
    bound = (20 * torch.finfo(objective.dtype).eps + noise / math.sqrt(objective.layout.size)) * scale
    if not math.isfinite(scale):
        raise SelfTestError(
            f"the {name} gave a product with NaN or inf from finite weights; expected finite second derivatives."
        )
    if abs(left - right) > bound:
        raise SelfTestError(
            f"the {name} is not symmetric: u'Hv = {left:.8g} but v'Hu = {right:.8g}; a layer has a wrong second derivative."
        )
    _difference(few, build, name, parameters, piece)


class _Gram:
    """`J^T J`, so that a Jacobian is tested like the other matrices."""

    def __init__(self, jacobian: Any):
        self.jacobian = jacobian

    def product(self, vectors: Leaves) -> Leaves:
        return self.jacobian.pull(self.jacobian.push(vectors), list(vectors))

    def difference(self, vectors: Leaves, h: float) -> Leaves:
        return self.jacobian.pull(self.jacobian.push_difference(vectors, h), list(vectors))


def _difference(few: Objective, build: Build, name: str, parameters: Leaves, piece: Piece) -> None:
    """Compare H v with central differences, in float64 where the model can be evaluated so."""
    try:
        wide = {n: p.double() for n, p in parameters.items()}
        big = Piece(_widen(piece.inputs), _widen(piece.targets), piece.share, piece.order)
        graph, eps = build(few, leaf_copies(wide), big), torch.finfo(torch.float64).eps
    except (RuntimeError, TypeError, EigenscapeError):
        wide, eps = parameters, torch.finfo(few.dtype).eps
        graph = build(few, leaf_copies(wide), piece)
    graph = graph if hasattr(graph, "product") else _Gram(graph)
    v = _direction(few, wide, seed=3)
    h = (math.sqrt(_dot(wide, wide)) or 1.0) * max(STEP, eps ** (1 / 3)) / math.sqrt(_dot(v, v))
    exact = _flat(graph.product(v))
    once = _flat(graph.difference(v, h))
    gap, bound = float((once - exact).norm()), max(TOLERANCE, 100 * eps ** (1 / 3)) * float(exact.norm())
    if gap <= bound:
        return
    twice, fourfold = (_flat(graph.difference(v, step)) for step in (2 * h, 4 * h))
    own = float(max((once - twice).norm(), (twice - fourfold).norm()))
    if gap > bound + 10 * own:
        raise SelfTestError(
            f"the {name} disagrees with central differences of first derivatives: |Hv - difference| = {gap:.3g} where "
            f"|Hv| = {float(exact.norm()):.3g} and the difference is good to {own:.3g}; a layer has a wrong second derivative "
            "(a custom autograd.Function, perhaps). check=False switches this test off."
        )


def _few(piece: Piece) -> Piece:
    sizes = {leading(piece.targets), leading(piece.inputs)} - {None}
    size = sizes.pop() if len(sizes) == 1 else None  # targets of flattened tokens cannot be cut along with the inputs
    most = _most(piece.inputs)
    if size is None or size <= most:
        return piece
    part = slice(0, most)
    return Piece(cut(piece.inputs, size, part), cut(piece.targets, size, part), piece.share, piece.order)


def _most(inputs: Any) -> int:
    """Count the samples that are worth their cost."""
    first = next(tensors(inputs), None)
    if first is None or first.is_floating_point() or first.ndim < 2:
        return SAMPLES
    return min(SAMPLES, max(FEW, TOKENS // max(1, first[0].numel())))


def _widen(tree: Any) -> Any:
    return tree_map(lambda t: t.double() if t.is_floating_point() else t, tree)


def _direction(objective: Objective, parameters: Leaves, seed: int) -> Leaves:
    """A random direction over all parameters but the padding rows of embeddings, which autograd holds constant."""
    generator = resolve_generator(None).manual_seed(seed)
    v = {n: random_like(p.shape, generator, dtype=p.dtype, device=p.device) for n, p in parameters.items()}
    constant = {
        id(m.weight): m.padding_idx
        for m in objective.model.modules()
        if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.padding_idx is not None
    }
    for name, p in objective.model.named_parameters():
        if name in v and id(p) in constant:
            v[name][constant[id(p)]] = 0
    return v


def _dot(a: Leaves, b: Leaves) -> float:
    return float(sum((x.double() * b[n].double()).sum() for n, x in a.items()))


def _flat(tensors: Leaves) -> Tensor:
    return torch.cat([t.detach().double().reshape(-1) for t in tensors.values()])
