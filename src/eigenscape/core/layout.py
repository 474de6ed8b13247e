"""How a flat vector is cut into named tensors, and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate

import torch
from torch import Tensor

from .errors import OperatorError


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors that make up a flat vector, in order; each tensor is flattened row-major.

    >>> layout = Layout(("weight", "bias"), ((2, 3), (2,)))
    >>> layout.size, layout.slice("bias")
    (8, slice(6, 8, None))
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Layout":
        """Describe the tensors of a mapping, in its order."""
        return cls(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each tensor."""
        return tuple(torch.Size(s).numel() for s in self.shapes)

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each tensor lies in the flat vector."""
        ends = tuple(accumulate(self.sizes))
        return tuple(slice(e - s, e) for e, s in zip(ends, self.sizes))

    def slice(self, name: str) -> slice:
        """Where one tensor lies in the flat vector."""
        if name not in self.names:
            raise OperatorError(f"no parameter is named {name!r}; expected one of {', '.join(self.names)}.")
        return self.slices[self.names.index(name)]

    def select(self, choice: str | Sequence[str] | Callable[[str], bool]) -> tuple[str, ...]:
        """Names that match a name, a glob pattern, several of them, or a predicate on the name."""
        if callable(choice):
            return tuple(n for n in self.names if choice(n))
        patterns = [choice] if isinstance(choice, str) else list(choice)
        for pattern in patterns:
            if not any(n == pattern or fnmatchcase(n, pattern) for n in self.names):
                raise OperatorError(
                    f"{pattern!r} matches no parameter; expected a name or glob pattern over {', '.join(self.names)}."
                )
        return tuple(n for n in self.names if any(n == p or fnmatchcase(n, p) for p in patterns))

    def indices(self, names: Sequence[str], device: torch.device | str = "cpu") -> Tensor:
        """Positions of the named tensors in the flat vector, in layout order."""
        parts = [torch.arange(s.start, s.stop, device=device) for n, s in zip(self.names, self.slices) if n in names]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.long, device=device)

    def sub(self, names: Sequence[str]) -> "Layout":
        """Return the layout of a subset of the tensors, in this layout's order."""
        kept = [(n, s) for n, s in zip(self.names, self.shapes) if n in names]
        return Layout(tuple(n for n, _ in kept), tuple(s for _, s in kept))

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Concatenate a mapping of named tensors into a flat vector."""
        missing, unknown = set(self.names) - set(tensors), set(tensors) - set(self.names)
        if missing or unknown:
            raise OperatorError(
                f"the mapping lacks {sorted(missing)} and has unknown {sorted(unknown)}; expected exactly {list(self.names)}."
            )
        for name, shape in zip(self.names, self.shapes):
            if tuple(tensors[name].shape) != shape:
                raise OperatorError(f"{name!r} has shape {tuple(tensors[name].shape)}; expected {shape}.")
        return torch.cat([tensors[n].reshape(-1) for n in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Cut a flat vector (or a stack of them along leading axes) into named tensors."""
        if vector.shape[-1:] != (self.size,):
            raise OperatorError(f"the vector has shape {tuple(vector.shape)}; expected (..., {self.size}).")
        lead = vector.shape[:-1]
        return {n: vector[..., s].reshape((*lead, *shape)) for n, s, shape in zip(self.names, self.slices, self.shapes)}
