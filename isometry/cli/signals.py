"""What a signal does to a command that has results to keep."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def sigterm_keeps_results() -> Iterator[list[int]]:
    """Inside, SIGTERM interrupts as Ctrl-C does; the list then holds its number."""
    caught: list[int] = []

    def interrupt(number: int, _: object) -> None:
        caught.append(number)
        raise KeyboardInterrupt("terminated")

    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # only the main thread can be told of signals
        yield caught
        return
    try:
        yield caught
    finally:
        signal.signal(signal.SIGTERM, before)
