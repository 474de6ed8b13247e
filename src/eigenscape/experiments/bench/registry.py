"""Every suite there is: what the modules of this package hold as SUITE."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ...core import EigenscapeError
from .suite import Suite

ORDER = ("products", "eigenpairs", "density", "trace", "loader", "monitor")  # others follow by name


class BenchError(EigenscapeError, LookupError):
    """A suite that does not exist was asked for, or results that are not there."""


@cache
def suites() -> dict[str, Suite]:
    """Return every suite by name."""
    parent = __name__.rpartition(".")[0]
    names = (f"{parent}.{m.name}" for m in iter_modules(import_module(parent).__path__))
    found = [getattr(import_module(name), "SUITE", None) for name in names if name != __name__]
    known = {suite.name: suite for suite in found if isinstance(suite, Suite)}
    order = [*ORDER, *sorted(set(known) - set(ORDER))]
    return {name: known[name] for name in order if name in known}


def select(names: Sequence[str]) -> list[Suite]:
    """Return the suites with these names or globs, or `all`, each once, in order."""
    chosen = {found for name in names for found in _meant(name)}
    return [suite for name, suite in suites().items() if name in chosen]


def _meant(name: str) -> list[str]:
    known = list(suites())
    found = [k for k in known if fnmatchcase(k, "*" if name == "all" else name)]
    if not found:
        close = get_close_matches(name, known, 1, 0.6)
        expected = close[0] if close else f"all, or one of {', '.join(known)}"
        raise BenchError(f"no suite is called {name!r}; expected {expected} (see: eigenscape bench --list).")
    return found
