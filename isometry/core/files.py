"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def taking_place(temporary: Path, path: Path) -> Iterator[Path]:
    """Rename ``temporary``, in the same folder, to ``path`` if the block succeeds; if not, the old file stays."""
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":
        _flush(path.parent)  # so that a crash loses neither the new name nor the contents


def same_file(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> bool:
    """Whether two names mean one file, through links and spellings; also of files that are yet to be written."""
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them is not there
        return os.path.normcase(os.path.realpath(a)) == os.path.normcase(os.path.realpath(b))


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
