"""How precisely float32 matrix products are computed, for as long as a block of code runs."""

import contextlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..core import CurvatureError

PRECISIONS = ("highest", "high", "medium")
BACKENDS = operator.attrgetter("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")


def check_precision(precision: str | None) -> str | None:
    """Refuse what is not the name of a precision."""
    if precision is None or precision in PRECISIONS:
        return precision
    raise CurvatureError(
        f'precision is {precision!r}; expected "highest" (float32), "high" (TF32 allowed), "medium" (bfloat16 allowed) or None.'
    )


@contextlib.contextmanager
def products_in(precision: str | None) -> Iterator[None]:
    """Multiply float32 matrices, and convolve, in this precision; torch's own settings are as they were afterwards.

    >>> before = torch.get_float32_matmul_precision()
    >>> with products_in("high"):
    ...     torch.get_float32_matmul_precision()
    'high'
    >>> torch.get_float32_matmul_precision() == before
    True
    """
    if precision is None:
        yield
        return
    name, convolutions, backends = _named(), _convolutions(), BACKENDS(torch.backends)
    settings = [backend.fp32_precision for backend in backends]
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision != "highest"
    if precision == "highest":
        _set(backends, ["ieee"] * len(backends))
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(name)
        torch.backends.cudnn.allow_tf32 = convolutions
        _set(backends, settings)


def _set(backends: Sequence[Any], settings: Sequence[str]) -> None:
    for backend, setting in zip(backends, settings):
        backend.fp32_precision = setting


def _named() -> str:
    """Name of torch's own setting; where backends were set one by one there is none, and theirs are what is put back."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "highest"


def _convolutions() -> bool:
    """Whether cuDNN may use TF32, which it may if nobody said anything, likewise."""
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return True
