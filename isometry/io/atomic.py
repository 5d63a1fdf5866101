"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from isometry.core.files import taking_place


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside ``path`` that replaces it if the block succeeds; if not, the old file stays.

    The temporary name ends like the real one, for writers that look at the extension.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(f"cannot write {path}: it is a folder; give the name of a file in it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"cannot write {path}: it is a pipe or device, which a file would replace; give another name")
    path = Path(os.path.realpath(path))  # if it is a symbolic link, its target is replaced and the link stays
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}; create it first")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, f"cannot write into this folder ({error.strerror})", str(path.parent)) from error
    os.close(handle)
    temporary = Path(name)
    with taking_place(temporary, path):
        yield temporary
        temporary.chmod(_mode(path))


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those of a new file: mkstemp lets only the owner read."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
