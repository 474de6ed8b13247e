"""Every figure there is: what the modules of this package list under FIGURES, paper by paper."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ...core import EigenscapeError
from ..machine import Figure

ORDER = ("closed-form", "poster", "cracking", "data", "spectral-view", "beyond")  # papers; others follow by name


class FigureError(EigenscapeError, LookupError):
    """A figure that does not exist was asked for, or one exists twice."""


@cache
def figures() -> tuple[Figure, ...]:
    """Return every figure, in the order of the papers and, within one, of its module."""
    parent = __name__.rpartition(".")[0]
    package = import_module(parent)
    found = [f for m in iter_modules(package.__path__) for f in _listed(f"{parent}.{m.name}")]
    return arranged(found)


def _listed(module: str) -> Iterable[Figure]:
    return () if module == __name__ else getattr(import_module(module), "FIGURES", ())


def arranged(found: Sequence[Figure]) -> tuple[Figure, ...]:
    """Sort by paper; an id or the name of an experiment that stands for two things is refused."""
    experiments = {}
    for i, figure in enumerate(found):
        if figure.id in (other.id for other in found[:i]):
            raise FigureError(f"two figures are called {figure.id!r}; expected ids that are unique.")
        for e in figure.experiments:
            if experiments.setdefault(e.name, e) != e:
                raise FigureError(f"two experiments are called {e.name!r}; expected names that are unique.")
    papers = [*ORDER, *sorted({paper(f) for f in found} - set(ORDER))]
    return tuple(sorted(found, key=lambda figure: papers.index(paper(figure))))


def paper(figure: Figure) -> str:
    """First part of a figure's id."""
    return figure.id.partition("/")[0]


def select(names: Sequence[str], among: Sequence[Figure] | None = None) -> list[Figure]:
    """Figures by id, paper, glob pattern or `all`, each once, in the registry's order."""
    known = figures() if among is None else among
    chosen = {figure.id for name in names for figure in _meant(name, known)}
    return [figure for figure in known if figure.id in chosen]


def _meant(name: str, known: Sequence[Figure]) -> Iterator[Figure]:
    pattern = "*" if name == "all" else name.strip().rstrip("/")
    found = [f for f in known if paper(f) == pattern or fnmatchcase(f.id, pattern)]
    if not found:
        raise FigureError(f"no figure is called {name!r}; expected {_near(pattern, known)} (see: eigenscape reproduce --list).")
    yield from found


def _near(name: str, known: Sequence[Figure]) -> str:
    """Name what might have been meant."""
    papers = list(dict.fromkeys(map(paper, known)))
    ends = {f.id.partition("/")[2]: f.id for f in reversed(known)}
    close = [
        *get_close_matches(name, [*(f.id for f in known), *papers], 3, 0.6),
        *(ends[end] for end in get_close_matches(name, ends, 2, 0.8)),
    ]
    if close:
        return " or ".join(dict.fromkeys(close))
    return (
        f"all, a paper ({', '.join(papers)}), a figure such as {known[0].id}, or a glob" if known else "nothing: there are none"
    )
