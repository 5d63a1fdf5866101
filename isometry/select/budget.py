"""How long a comparison may take: what its fits will cost, and which candidates there is time for.

Nothing here knows how fast anything is: costs are measured, by a clock that a test can replace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

DEFAULT_BUDGET = 60.0  # seconds, on the command line
MAX_EXPONENT = 3.0  # of the number of rows: no method of the table grows faster
USUAL_EXPONENT = 1.5
SHORTEST = 1e-3  # seconds: below, a measurement says nothing of how the time grows
TOLERANCE = 0.1  # share of the budget by which later folds may overrun before a candidate is given up
TRIAL = 0.1  # share of the budget that one fit of the first fold may take
DOUBT = 50.0  # few rows need many iterations: a fit may well take a fiftieth of what they let expect


@dataclass(frozen=True)
class Budget:
    """Seconds that the fits of a comparison may take.

    Parameters
    ----------
    seconds : float
        Seconds of all fits and their scores, together.
    clock : callable, default=time.monotonic
        Function that gives seconds since some moment.
    reserve : float, default=0.0
        Share of the seconds that is kept for what follows the fits of the folds.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    reserve: float = 0.0

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"budget={self.seconds} is the number of seconds that fits may take: choose it above 0")


def extrapolate(sizes: Sequence[int], seconds: Sequence[float], n: int, exponent: float | None = None) -> float:
    """Seconds at n rows, from those at a few smaller numbers of rows: t = t_last (n / n_last)^p.

    If p is not given as ``exponent``, it is the least-squares slope of log t over log n through the last point. Few
    rows, quick fits and a busy machine make it uncertain, so one doubling with the exponent 3/2 counts as a further
    measurement.
    """
    if exponent is not None:
        return float(seconds[-1] * (n / sizes[-1]) ** exponent)
    x = np.log(np.asarray(sizes) / sizes[-1])
    y = np.log(np.maximum(seconds, SHORTEST) / max(seconds[-1], SHORTEST))
    doubling = np.log(2) ** 2
    p = (x @ y + USUAL_EXPONENT * doubling) / (x @ x + doubling)
    return float(seconds[-1] * (n / sizes[-1]) ** np.clip(p, 0, MAX_EXPONENT))


@dataclass
class Costs:
    """Seconds of one fit of each candidate: expected at first, measured as soon as one has finished."""

    n: int  # candidates
    workers: int = 1
    expected: dict[int, float] = field(default_factory=dict)
    measured: dict[int, list[float]] = field(default_factory=dict)

    def add(self, c: int, seconds: float) -> None:
        self.measured.setdefault(c, []).append(seconds)

    def of(self, c: int, default: float = 0.0) -> float:
        """Of one fit; ``default`` where nothing is known yet."""
        return float(np.mean(self.measured[c])) if c in self.measured else self.expected.get(c, default)

    def rest(self, tasks: Sequence[int]) -> float | None:
        """Seconds until these fits, given by their candidates, have been made; None where nothing is known."""
        known = [self.of(c) for c in range(self.n) if c in self.measured or c in self.expected]
        if not known:
            return None
        typical = float(np.median(known))
        return sum(self.of(c, typical) for c in tasks) / self.workers

    def order(self) -> list[int]:
        """Candidates, the cheapest first; costs within a factor of about four are equal, and equals as they came."""
        return sorted(range(self.n), key=lambda c: round(np.log(max(self.of(c), SHORTEST)) / np.log(4)))


@dataclass
class Schedule:
    """Which candidates a budget has time for. ``always`` take part, whatever they cost."""

    budget: Budget
    costs: Costs
    needed: int  # folds that a candidate must be able to finish
    always: frozenset[int]
    unstoppable: frozenset[int]  # no iteration ends them early
    left_out: dict[int, str]  # candidate → why; filled here
    started: float  # by the budget's clock
    networks: frozenset[int] = frozenset()  # what they will cost is known well: so many batches of the same size

    @property
    def left(self) -> float:
        """Seconds."""
        return (1 - self.budget.reserve) * self.budget.seconds - (self.budget.clock() - self.started)

    def kept(self) -> list[int]:
        return [c for c in self.costs.order() if c not in self.left_out]

    def trim(self, split: int) -> None:
        """Before a fold: give up candidates that there will be no time for.

        Before the first one these are such as nothing could stop and are expected to take too long: all others are
        tried. Later it goes by what was measured, the costliest first, until the rest can finish the folds needed.
        """
        folds = max(self.needed - split, 1)
        if split == 0:
            share = self.left * self.costs.workers / folds
            for c in self.kept():
                if c in self.unstoppable and self.costs.of(c) > share:
                    self._leave_out(c)
            return
        kept = self.kept()
        time = (self.left + TOLERANCE * self.budget.seconds * (split > 1)) * self.costs.workers
        while sum(map(self.costs.of, kept)) * folds > time and not self.always.issuperset(kept):
            last = [c for c in kept if c not in self.always][-1]
            kept.remove(last)
            self._leave_out(last)

    def _leave_out(self, c: int) -> None:
        cost = self.costs.of(c)
        self.left_out[c] = f"{duration(cost)} a fit" if cost > 0 else "no time was left"

    def allowance(self, c: int, split: int) -> float:
        """Seconds that a fit of c may take.

        In the first fold: so long that there is time for as many in the other folds, too, beside the candidates that
        have had their turn, and no longer than a tenth of the budget. Later: what is left of it.
        """
        if c in self.always:
            return np.inf
        if split > 0:
            return self.left + TOLERANCE * self.budget.seconds
        promised = sum(self.costs.of(k) for k in self.kept() if k in self.costs.measured) * (self.needed - 1)
        share = (self.left * self.costs.workers - promised) / self.needed
        allowed = min(self.left, share, TRIAL * self.budget.seconds)
        if self.costs.of(c) <= (1.0 if c in self.networks else DOUBT) * allowed:
            return allowed
        self._leave_out(c)
        return 0.0

    def has_time_for_a_fold(self) -> bool:
        return sum(map(self.costs.of, self.kept())) <= self.left * self.costs.workers

    def give_up(self, c: int, seconds: float) -> None:
        """A fit was stopped."""
        self.left_out[c] = f"stopped after {duration(seconds, about=False)}"

    def note(self, names: Sequence[str]) -> list[str]:
        """What was left out, in one line."""
        if not self.left_out:
            return []
        listed = ", ".join(f"{names[c]} ({why})" for c, why in sorted(self.left_out.items()))
        return [
            f"left out, since {self.needed} fits of each do not fit into the budget of "
            f"{duration(self.budget.seconds, about=False)}: {listed}. A larger budget (--budget) lets them in"
        ]


def duration(seconds: float, about: bool = True) -> str:
    """Seconds in words, in the unit that suits them; ``about`` marks an estimate."""
    if not np.isfinite(seconds):
        return "hours"
    number, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "min")
    number, unit = (number, unit) if number < 100 else (number / 60, "h")
    text = f"{number:.0f}" if number >= 10 or float(number).is_integer() else f"{number:.1f}"
    return f"{'about ' if about else ''}{text} {unit}"
