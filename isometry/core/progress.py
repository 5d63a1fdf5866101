"""A bar of iterations for whoever asked for one, and silence for all others.

Solvers call `report` after every iteration. Whether anything shows is decided by the innermost `progress` around them,
so that no method has to hand a bar down to its solver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_bar: ContextVar[Any] = ContextVar("isometry_progress", default=None)  # the tqdm bar that is shown now, or None


@contextmanager
def progress(verbose: bool | int, title: str = "", total: int | None = None) -> Iterator[None]:
    """Show the iterations reported inside in a tqdm bar; if not ``verbose``, show none of them."""
    bar = None
    if verbose:
        from tqdm.auto import tqdm

        bar = tqdm(total=total, desc=title, file=sys.stderr, leave=True)
    before = _bar.set(bar)
    try:
        yield
    finally:
        _bar.reset(before)
        if bar is not None:
            bar.close()


def report(value: float) -> None:
    """One more iteration is done, and this is the objective now."""
    bar = _bar.get()
    if bar is not None:
        bar.set_postfix_str(f"objective {value:.6g}", refresh=False)
        bar.update()
