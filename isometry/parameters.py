"""How a learner declares its parameters: as annotated names with defaults, in the order of its arguments."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar, dataclass_transform

import numpy as np

__all__ = ["KW_ONLY", "Seed", "check_choices", "check_components", "one_of", "parameters"]

Seed = int | np.random.RandomState | None
Learner = TypeVar("Learner")
Choice = TypeVar("Choice", str, str | None)


@dataclass_transform(eq_default=False)
def parameters(learner: type[Learner]) -> type[Learner]:
    """The annotated names of a class become the arguments of ``__init__``, which only stores them.

    This is what scikit-learn asks of every estimator, whose ``repr`` and identity stay as they are.
    """
    return dataclass(eq=False, repr=False)(learner)


def check_choices(learner: Any, **choices: Collection[str | None]) -> None:
    """Refuse a parameter that is none of its choices."""
    for name, allowed in choices.items():
        one_of(name, getattr(learner, name), allowed)


def check_components(p: int | str | None, d: int) -> int | None:
    """``n_components`` if it is at least 1 and at most the number of features; None if it is None or "auto"."""
    if p is None or isinstance(p, str):
        one_of("n_components", p, ("auto", None))
        return None
    if not 1 <= p <= d:
        raise ValueError(f"n_components={p} must be between 1 and the number of features, {d}")
    return int(p)


def one_of(name: str, value: Choice, allowed: Collection[str | None]) -> Choice:
    """``value`` if it is allowed, else an error that lists what is."""
    if value not in allowed:
        *most, last = map(repr, allowed)
        raise ValueError(f"{name}={value!r} is unknown; expected {', '.join(most)}{' or ' if most else ''}{last}")
    return value
