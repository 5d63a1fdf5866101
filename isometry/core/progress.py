"""A bar of iterations for whoever asked for one, and silence for all others; and an end to what takes too long.

Solvers call `report` after every iteration. Whether anything shows is decided by the innermost `progress` around them,
so that no method has to hand a bar down to its solver. In the same way `time_limit` can end a search.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Bar:
    """A tqdm bar that appears with the first iteration; methods without any never show one."""

    def __init__(self, title: str, total: int | None, word: str):
        self.title, self.total, self.word = title, total, word
        self.shown: Any = None

    def step(self, value: float) -> None:
        if self.shown is None:
            from tqdm.auto import tqdm

            self.shown = tqdm(total=self.total, desc=self.title, file=sys.stderr, leave=True)
        self.shown.set_postfix_str(f"{self.word} {value:.6g}", refresh=False)
        self.shown.update()

    def close(self) -> None:
        if self.shown is not None:
            self.shown.close()


class OutOfTime(Exception):
    """A search was ended by a `time_limit` around it."""


_is_over: ContextVar[Callable[[], bool] | None] = ContextVar("isometry_time_limit", default=None)
_bar: ContextVar[Bar | None] = ContextVar("isometry_progress", default=None)  # the innermost one; None: nothing shows


@contextmanager
def progress(verbose: bool | int, title: str = "", total: int | None = None, word: str = "objective") -> Iterator[None]:
    """Show the iterations reported inside in a bar; if not ``verbose``, show none. ``word`` says what values are."""
    bar = Bar(title, total, word) if verbose else None
    before = _bar.set(bar)
    try:
        yield
    finally:
        _bar.reset(before)
        if bar is not None:
            bar.close()


@contextmanager
def time_limit(is_over: Callable[[], bool]) -> Iterator[None]:
    """End a search inside with `OutOfTime` at the first iteration after which ``is_over()`` is true."""
    before = _is_over.set(is_over)
    try:
        yield
    finally:
        _is_over.reset(before)


def check_time() -> None:
    """`OutOfTime` if the innermost `time_limit` is over."""
    is_over = _is_over.get()
    if is_over is not None and is_over():
        raise OutOfTime


def report(value: float) -> None:
    """One more iteration is done, and this is the objective now."""
    check_time()
    bar = _bar.get()
    if bar is not None:
        bar.step(value)
