"""Constants of a recorded program that it computes again from others, so that fewer have to be kept."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_iter


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a constant came about: an elementwise function, or a view, of tensors that no longer change.

    An argument that has a recipe itself stands as that recipe, so that its numbers need not be held on to.
    """

    function: Callable[..., Any]
    args: tuple
    kwargs: dict[str, Any]
    sources: frozenset[int]  # large storages that it goes back to
    light: bool  # from at most one of them: computed again wherever it is needed
    meta: dict[str, Any]

    def parts(self) -> "list[Tensor | Recipe]":
        """What it is made of."""
        return [t for t in tree_iter((self.args, self.kwargs)) if isinstance(t, Tensor | Recipe)]

    @cached_property
    def storages(self) -> frozenset[int]:
        """All that it goes back to, large and small."""
        return frozenset().union(*(t.storages if isinstance(t, Recipe) else {storage(t)} for t in self.parts()))


def leaves(recipes: Iterable[Recipe]) -> Iterator[Tensor]:
    """The tensors that recipes go back to in the end."""
    seen: set[int] = set()
    stack: list[Tensor | Recipe] = [t for recipe in recipes for t in recipe.parts()]
    while stack:
        t = stack.pop()
        if id(t) in seen:
            continue
        seen.add(id(t))
        if isinstance(t, Recipe):
            stack += t.parts()
        else:
            yield t


def superfluous(constants: Mapping[str, Tensor], recipes: Mapping[str, Recipe], storages: Mapping[int, Tensor]) -> set[str]:
    """Names of constants to compute again, so that the bytes kept become fewer.

    Step by step the storages are kept that make the most others superfluous. `storages` has a tensor for each source.
    """
    held: dict[int, list[str]] = defaultdict(list)
    for name, t in constants.items():
        held[storage(t)].append(name)
    needs = {
        s: frozenset().union(*(recipes[n].sources for n in names))
        for s, names in held.items()
        if all(n in recipes for n in names)
    }
    needs = {s: sources for s, sources in needs.items() if s not in sources}
    sizes = {s: t.untyped_storage().nbytes() for s, t in storages.items()}
    sizes |= {s: constants[names[0]].untyped_storage().nbytes() for s, names in held.items()}
    kept = set(held) - set(needs)
    while True:
        missing = {s: frozenset(sources - kept) for s, sources in needs.items() if s not in kept}
        gains = {
            m: _total(sizes, (s for s in missing if missing[s] <= m)) - _total(sizes, m) for m in set(missing.values()) if m
        }
        best = max(gains, key=gains.__getitem__, default=None)
        if best is None or gains[best] <= 0:
            break
        kept |= best
    again = {s for s, sources in needs.items() if sources <= kept and s not in kept}
    return {name for s in again for name in held[s]}


def _total(sizes: Mapping[int, int], storages: Iterable[int]) -> int:
    return sum(sizes[s] for s in storages)


def storage(t: Tensor) -> int:
    """Identity of the memory that a tensor lies in."""
    return t.untyped_storage()._cdata
