"""What a comparison says while it runs: a bar on a terminal, lines elsewhere, and how long the rest will take."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from isometry.select.budget import Costs, duration
from isometry.select.candidates import Candidate

logger = logging.getLogger("isometry.compare")
SLOW = 10.0  # seconds; a fit that is expected to take longer is announced


class Progress:
    """Counts fits. Lines go to the logger ``isometry.compare``; if nobody listens there, ``verbose`` prints them.

    Parameters
    ----------
    verbose : bool
        Whether to show something.
    clock : callable
        Function that gives seconds since some moment.
    """

    def __init__(self, verbose: bool, clock: Callable[[], float]):
        self.verbose, self.clock = verbose, clock
        self.started = clock()
        self.bar: Any = None
        self.tasks: list[tuple[int, int]] = []
        self.ended: set[int] = set()  # folds

    def begin(
        self,
        candidates: list[Candidate],
        n_splits: int,
        costs: Costs,
        tasks: list[tuple[int, int]],
        within: float = np.inf,
    ) -> None:
        """Say what is planned, and that it will be done ``within`` so many seconds."""
        self.until = self.started + within
        self.names, self.n_splits, self.costs, self.tasks = [c.name for c in candidates], n_splits, costs, list(tasks)
        self.total = len(tasks)
        taking_part = list(dict.fromkeys(c for c, _ in tasks))
        rest = self._rest()
        time = f", {rest}" if rest else ""
        if within < np.inf:
            time = f", within {duration(within, about=False)}"
        self.say(f"{len(taking_part)} metrics on {n_splits} folds: {len(tasks)} fits{time}")
        slow = [f"{self.names[c]} {duration(costs.of(c))}" for c in taking_part if costs.of(c) >= SLOW]
        if slow:
            self.say(f"slow, for each of {n_splits} fits: {', '.join(slow)}")
        if self.verbose and sys.stderr.isatty():
            self.bar = tqdm(total=self.total, desc="compare", unit="fit", file=sys.stderr)

    def done(self, key: tuple[int, int]) -> None:
        """One fit has finished."""
        self.tasks = [task for task in self.tasks if task != key]
        rest = self._rest()
        if self.bar is not None:
            self.bar.set_postfix_str(f"{rest} to go" if rest else "", refresh=False)
            self.bar.update()
        if not any(s == key[1] for _, s in self.tasks):
            self.end_fold(key[1])

    def end_fold(self, split: int) -> None:
        """No fit of this fold will follow."""
        self.tasks = [task for task in self.tasks if task[1] != split]
        if self.bar is None and split not in self.ended:
            rest = self._rest()
            spent = duration(self.clock() - self.started, about=False)
            to_go = f"; {rest} to go" if rest and self.tasks else ""
            self.say(f"fold {split + 1} of {self.n_splits} done after {spent}{to_go}")
        self.ended.add(split)

    def give_up(self, c: int) -> None:
        """The fits of a candidate that are left will not be made."""
        self.tasks = [task for task in self.tasks if task[0] != c]

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def say(self, text: str) -> None:
        """One line."""
        if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
            logger.info(text)
        elif self.verbose:
            start = "\r\x1b[K" if sys.stderr.isatty() else ""  # in place of what `say_now` said
            (tqdm.write if self.bar is not None else print)(f"{start}{text}", file=sys.stderr)

    def say_now(self, text: str) -> None:
        """What is going on, on a terminal only: the next text takes its place."""
        if self.verbose and sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def _rest(self) -> str:
        seconds = self.costs.rest([c for c, _ in self.tasks])
        return "" if seconds is None else duration(min(seconds, max(self.until - self.clock(), 0.0)))
