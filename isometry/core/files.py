"""Files that appear whole or not at all, and folders that one process uses at a time."""

from __future__ import annotations

import contextlib
import errno
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


class InUseError(OSError):
    """Another process or thread holds the lock."""


NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # of file systems that have none


@contextlib.contextmanager
def sole_use(lock: Path) -> Iterator[None]:
    """A block in which no other process or thread holds this lock file; `InUseError` if one does.

    The system gives the lock back when a process ends, however it ends, so that none is left behind.
    """
    handle = _locked(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # before the lock is given back: whoever has it must have the file of this name
        os.close(handle)


def _locked(lock: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take_lock(handle)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return handle
            os.close(handle)
            raise InUseError(f"{lock.parent} is in use: another run works in it. Give another folder") from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(lock)):
                return handle
        os.close(handle)  # the one before removed the file after we had opened it


def _take_lock(handle: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]


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
