"""Array work in as many threads as BLAS may use; NumPy releases the interpreter's lock inside its loops.

After each product the threads of BLAS look out for the next one for some milliseconds, and so take cores from threads
of ours: values and gradients of a search then gained a third by a second core instead of three quarters. Inside
`own_threads` BLAS works in one thread, and everything that is divided is divided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")

MIN_PRODUCT = 1 << 24  # multiplications; starting threads takes longer than they save in smaller products


class Team(NamedTuple):
    """The threads that BLAS has given up: the caller's and those of a pool."""

    size: int
    pool: ThreadPoolExecutor


_team: ContextVar[Team | None] = ContextVar("isometry_threads", default=None)  # threads of a pool have none


class _Limit:
    """BLAS in one thread while somebody asks for it. Its number of threads is one for the whole process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_asking = 0
        self.limiter: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.n_asking == 0:
                self.limiter = _controller().limit(limits=1, user_api="blas")
            self.n_asking += 1

    def __exit__(self, *_: Any) -> None:
        with self.lock:
            self.n_asking -= 1
            if self.n_asking == 0:
                self.limiter.restore_original_limits()


_one_blas_thread = _Limit()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # cached, because it inspects all loaded libraries


def n_threads() -> int:
    """Threads that BLAS may use: the cores of the machine, or a limit set by the user or a parallel caller."""
    if (team := _team.get()) is not None:
        return team.size
    return max((lib["num_threads"] for lib in _controller().info() if lib["user_api"] == "blas"), default=1)


@contextmanager
def own_threads() -> Iterator[None]:
    """BLAS works in one thread inside; `in_threads` and `product` use the threads it had."""
    size = n_threads()
    if size == 1 or _team.get() is not None:
        yield
        return
    with _one_blas_thread, ThreadPoolExecutor(size - 1) as pool:
        token = _team.set(Team(size, pool))
        try:
            yield
        finally:
            _team.reset(token)


def in_threads(work: Callable[[int, int], T], parts: int) -> list[T]:
    """[work(k, parts) for k < parts], each in its own thread, with one thread of BLAS."""
    if parts == 1:
        return [work(0, 1)]
    with own_threads():
        if (team := _team.get()) is None:
            return [work(k, parts) for k in range(parts)]
        others = [team.pool.submit(work, k, parts) for k in range(1, parts)]
        token = _team.set(None)  # the others are busy: what is divided inside would wait for them
        try:
            first = work(0, parts)
        finally:
            _team.reset(token)
        return [first, *(other.result() for other in others)]


def in_slices(work: Callable[[slice], None], n: int, smallest: int) -> None:
    """``work(slice)`` for consecutive slices of 0 … n − 1, one a thread of `own_threads`, none below ``smallest``."""
    parts = 1 if _team.get() is None else max(1, min(n_threads(), n // smallest))
    in_threads(lambda k, parts: work(slice(k * n // parts, (k + 1) * n // parts)), parts)


def product(A: np.ndarray, B: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """A @ B; inside `own_threads` its rows or columns, whichever are more, are divided among the threads."""
    m, n = A.shape[0], B.shape[1]
    if _team.get() is None or m * A.shape[1] * n < MIN_PRODUCT:
        return np.matmul(A, B, out=out)
    C = np.empty((m, n), dtype=np.result_type(A, B)) if out is None else out

    def work(mine: slice) -> None:
        if m >= n:
            np.matmul(A[mine], B, out=C[mine])
        else:
            np.matmul(A, B[:, mine], out=C[:, mine])

    in_slices(work, max(m, n), 1)
    return C
