"""All diagonal blocks of one operator, multiplied together in one pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch import Tensor

from ..core import OperatorError
from .operator import Operator, Submatrix

Groups = Mapping[str, str | Sequence[str]] | Sequence[str] | Callable[[str], str] | None


class Blocks(Mapping[str, Operator]):
    """One operator per group of parameters; `products` multiplies all of them in a single pass over the data."""

    def __init__(self, op: Operator, groups: Mapping[str, tuple[str, ...]]):
        self.op = op
        self.groups = dict(groups)

    def __getitem__(self, key: str) -> Operator:
        return Submatrix(self.op, self.groups[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def products(self, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Multiply each named block by its vector."""
        keys = list(vectors)
        results = self.op.block_products([self.groups[k] for k in keys], [vectors[k] for k in keys])
        return dict(zip(keys, results))


def blocks(op: Operator, groups: Groups = None) -> Blocks:
    """Cut an operator into diagonal blocks: one per parameter, per pattern, or per value of a function of the name.

    >>> import torch
    >>> from eigenscape.core import Layout
    >>> from eigenscape.linop import Diagonal
    >>> A = Diagonal(torch.tensor([1.0, 2.0, 3.0]), layout=Layout(("a.w", "a.b", "c"), ((1,), (1,), (1,))))
    >>> {name: block.n for name, block in blocks(A, ["a.*", "c"]).items()}
    {'a.*': 2, 'c': 1}
    """
    layout = op._layout()
    if groups is None:
        named = {name: (name,) for name in layout.names}
    elif callable(groups):
        named: dict[str, tuple[str, ...]] = {}
        for name in layout.names:
            named[groups(name)] = (*named.get(groups(name), ()), name)
    elif isinstance(groups, Mapping):
        named = {key: layout.select(choice) for key, choice in groups.items()}
    elif isinstance(groups, str):
        raise OperatorError(f"groups is {groups!r}; expected a list of patterns: [{groups!r}].")
    else:
        named = {pattern: layout.select(pattern) for pattern in groups}
    return Blocks(op, named)
