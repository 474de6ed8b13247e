"""Which parameters are differentiated: names, glob patterns, a predicate, or every parameter that requires grad."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from ..core import CurvatureError

Choice = str | Sequence[str] | Callable[[str, Tensor], bool] | None


def select_parameters(model: nn.Module, choice: Choice = None) -> tuple[str, ...]:
    """Names of the chosen parameters in `named_parameters()` order; a tied parameter counts once, under its first name.

    >>> select_parameters(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), "*.weight")
    ('0.weight', '1.weight')
    """
    first = {id(p): name for name, p in model.named_parameters()}
    every = {name: (first[id(p)], p) for name, p in model.named_parameters(remove_duplicate=False)}
    if choice is None:
        chosen = {own for own, p in every.values() if p.requires_grad}
    elif callable(choice):
        chosen = {own for name, (own, p) in every.items() if choice(name, p)}
    else:
        chosen = set()
        for pattern in _patterns(choice):
            found = {own for name, (own, _) in every.items() if name == pattern or fnmatchcase(name, pattern)}
            if not found:
                raise CurvatureError(
                    f"params={pattern!r} matches no parameter; expected names or patterns over {', '.join(every)}."
                )
            chosen |= found
    names = tuple(name for name in first.values() if name in chosen)
    if not names:
        raise CurvatureError("no parameter is selected; expected at least one that requires grad, or params=['*'].")
    _check_kind({name: every[name][1] for name in names})
    return names


def _patterns(choice: Any) -> list[str]:
    if isinstance(choice, str):
        return [choice]
    try:
        items = list(choice)
    except TypeError:
        items = [choice]
    if not all(isinstance(item, str) for item in items):
        kind = next(type(item).__name__ for item in items if not isinstance(item, str))
        raise CurvatureError(
            f"params is a list of {len(items)} {kind}; expected names. "
            'Use params=["encoder.*"] or a predicate on (name, tensor).'
        )
    return items


def _check_kind(parameters: dict[str, Tensor]) -> None:
    (first_name, first), *rest = parameters.items()
    for name, p in parameters.items():
        if not p.is_floating_point():
            raise CurvatureError(f"parameter {name!r} has dtype {p.dtype}; expected real floating-point parameters.")
    for name, p in rest:
        if (p.dtype, p.device) != (first.dtype, first.device):
            raise CurvatureError(
                f"parameter {name!r} is {p.dtype} on {p.device}, {first_name!r} is {first.dtype} on {first.device}; "
                "expected one dtype and one device: model.to(device, dtype)."
            )
