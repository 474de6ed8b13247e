"""The folder where data is looked for, and files that are read whole and written whole."""

import gzip
import hashlib
import os
import sys
from pathlib import Path

from ...core import DataError

VARIABLE = "EIGENSCAPE_DATA"


def data_folder(folder: Path | str | None = None) -> Path:
    """Return the folder given, else the one that `EIGENSCAPE_DATA` names, else this package's in the user's cache.

    >>> str(data_folder("sets"))
    'sets'
    """
    chosen = folder or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else _user_cache() / "eigenscape"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def spelling(place: Path, names: tuple[str, ...]) -> Path | None:
    """Return the first of the names that is a file in the place, as it is or with `.gz`."""
    tried = (place / (name + end) for name in names for end in ("", ".gz"))
    return next((path for path in tried if path.is_file()), None)


def unpacked(path: Path) -> bytes:
    """Return what the file holds, decompressed if its name ends in `.gz`."""
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError) as error:
        raise DataError(
            f"{path} cannot be unpacked ({error}); expected a gzip file: fetch it again with 'eigenscape data get'."
        ) from None


def md5(content: bytes) -> str:
    """Return the hash that the sets were published with; it finds damage and mix-ups, not malice."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def verified(path: Path, expected: str) -> bytes:
    """Return what the file holds, if it is what was published."""
    content = unpacked(path)
    if (found := md5(content)) != expected:
        raise DataError(
            f"{path} has the MD5 {found}; expected the published {expected}: "
            "the file is damaged or of another set. Move it away and fetch it again with 'eigenscape data get'."
        )
    return content


def write_whole(path: Path, content: bytes) -> None:
    """Write the file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    os.replace(part, path)
