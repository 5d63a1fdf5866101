"""Array work in as many threads as BLAS may use; NumPy releases the interpreter's lock inside its loops."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # cached, because it inspects all loaded libraries


def n_threads() -> int:
    """Threads that BLAS may use: the cores of the machine, or a limit set by the user or a parallel caller."""
    return max((lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"), default=1)


def in_threads(work: Callable[[int, int], T], parts: int) -> list[T]:
    """[work(k, parts) for k < parts], each in its own thread, with one thread of BLAS."""
    if parts == 1:
        return [work(0, 1)]
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(parts) as pool:
        return list(pool.map(work, range(parts), [parts] * parts))
