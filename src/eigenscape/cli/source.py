"""`FILE.py:FUNCTION`: run a user's file and call the function in it that returns an objective."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ..core import EigenscapeError
from ..curvature import Objective
from .options import OptionError

EXAMPLE = "eigenscape analyze train.py:objective"


def read_target(target: str) -> tuple[Path, str]:
    """Split `FILE.py:FUNCTION`.

    >>> read_target("folder/train.py:objective")
    (PosixPath('folder/train.py'), 'objective')
    """
    file, colon, function = target.rpartition(":")
    if not colon or not file or not function.isidentifier():
        raise OptionError(f"{target!r} is not FILE.py:FUNCTION; expected a file and a function in it, such as {EXAMPLE}.")
    return Path(file), function


def load_objective(target: str) -> Objective:
    """Call the function and check that an `Objective` came back."""
    path, function = read_target(target)
    module = _module(path)
    found = getattr(module, function, None)
    if not callable(found):
        names = [n for n, x in vars(module).items() if callable(x) and getattr(x, "__module__", None) == module.__name__]
        there = f"it defines {', '.join(names)}" if names else "it defines no function"
        raise OptionError(f"{path} has no function {function!r} ({there}); expected one that returns an es.Objective.")
    try:
        result = found()
    except EigenscapeError:
        raise
    except Exception as error:
        raise OptionError(f"{function}() in {_where(error, path)}; expected it to return an es.Objective.") from error
    if not isinstance(result, Objective):
        came = type(result).__name__
        raise OptionError(f"{function}() returned a {came}; expected es.Objective(model, criterion, data).")
    return result


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise OptionError(f"there is no file {str(path)!r}; expected FILE.py:FUNCTION, such as {EXAMPLE}.")
    spec = importlib.util.spec_from_file_location(f"_eigenscape_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{str(path)!r} is not a Python file; expected FILE.py:FUNCTION, such as {EXAMPLE}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # as `python FILE.py` has it: its neighbours can be imported
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except EigenscapeError:
        raise
    except Exception as error:
        raise OptionError(f"running {_where(error, path)}; expected a file that python can run.") from error
    return module


def _where(error: Exception, path: Path) -> str:
    """`path:line failed with Kind: words`, by the last line of the user's own file."""
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno} failed with SyntaxError: {error.msg}"
    own = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    words = str(error).strip().splitlines()
    said = f": {words[0].rstrip('.')}" if words else ""
    return f"{path}{f':{own[-1]}' if own else ''} failed with {type(error).__name__}{said}"
