"""Constants of a recorded program that it computes again from others, so that fewer have to be kept."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_iter


class Recipe(NamedTuple):
    """How a constant came about: an elementwise function, or a view, of tensors that no longer change."""

    function: Callable[..., Any]
    args: tuple
    kwargs: dict[str, Any]
    sources: frozenset[int]  # large storages that it goes back to
    light: bool  # from at most one of them: computed again wherever it is needed

    def tensors(self) -> list[Tensor]:
        """What it is made of."""
        return [t for t in tree_iter((self.args, self.kwargs)) if isinstance(t, Tensor)]


def superfluous(
    constants: Mapping[str, Tensor], recipes: Mapping[str, Recipe], storages: Mapping[int, Tensor]
) -> tuple[set[str], set[int]]:
    """Names of constants to compute again, and the storages of what is kept, so that the bytes kept become fewer.

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
    return {name for s in again for name in held[s]}, kept | (set(held) - again)


def _total(sizes: Mapping[int, int], storages: Iterable[int]) -> int:
    return sum(sizes[s] for s in storages)


def storage(t: Tensor) -> int:
    """Identity of the memory that a tensor lies in."""
    return t.untyped_storage()._cdata
