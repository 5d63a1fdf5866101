"""Libraries that only some need: imported where they are used, and named with their extra where they are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

OWN = ("isometry", "torch", "accelerate")


@contextlib.contextmanager
def needs(library: str, extra: str, what: str) -> Iterator[None]:
    """A block that imports ``library``; an error says what needs it and which extra brings it.

    A library that is there and cannot be loaded, such as a torchvision built for another torch, is named with the
    reason.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OWN:
            raise
        install = f'pip install "isometry[{extra}]"'
        raise ModuleNotFoundError(f"{what} needs {missing or library}: {install}", name=missing) from error
    except (ImportError, RuntimeError, OSError) as error:
        raise ImportError(
            f"{what} needs {library}, which is there but cannot be loaded ({error}); a build that fits this torch and "
            "this machine is needed"
        ) from error
