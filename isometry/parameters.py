"""How a learner declares its parameters: as annotated names with defaults, in the order of its arguments.

The annotation also says which values are allowed: `Positive`, `Count` and the others here, and ``Literal`` for names.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, fields
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

import numpy as np

__all__ = [
    "KW_ONLY",
    "Count",
    "Iterations",
    "NotNegative",
    "Positive",
    "PositiveShare",
    "Seed",
    "Share",
    "check_choices",
    "check_parameters",
    "expected_type",
    "one_of",
    "parameter_types",
    "parameters",
    "union_members",
]

TYPE_WORDS = {int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}
Learner = TypeVar("Learner")
Choice = TypeVar("Choice", str, str | None)


@dataclass(frozen=True)
class Rule:
    """What holds for every allowed number, and how an error says it."""

    holds: Callable[[Any], bool]
    words: str


Seed = int | np.random.RandomState | None
Positive = Annotated[float, Rule(lambda v: v > 0, "must be positive")]
NotNegative = Annotated[float, Rule(lambda v: v >= 0, "must not be negative")]
Share = Annotated[float, Rule(lambda v: 0 <= v <= 1, "must lie in [0, 1]")]
PositiveShare = Annotated[float, Rule(lambda v: 0 < v <= 1, "must lie in (0, 1]")]
Count = Annotated[int, Rule(lambda v: v >= 1, "must be at least 1")]
Iterations = Annotated[int, Rule(lambda v: v >= 0, "must not be negative")]


@dataclass_transform(eq_default=False)
def parameters(learner: type[Learner]) -> type[Learner]:
    """The annotated names of a class become the arguments of ``__init__``, which only stores them.

    This is what scikit-learn asks of every estimator, whose ``repr`` and identity stay as they are.
    """
    return dataclass(eq=False, repr=False)(learner)


def check_parameters(learner: Any) -> None:
    """Refuse a value that the annotation of its parameter does not allow."""
    of_class: Any = type(learner)
    for name, kinds in _annotations(of_class).items():
        _check(name, getattr(learner, name), kinds)


def _check(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    choices = [choice for kind in kinds if typing.get_origin(kind) is Literal for choice in typing.get_args(kind)]
    numbers = [kind for kind in kinds if typing.get_origin(kind) is Annotated]
    others = [kind for kind in kinds if kind not in numbers and typing.get_origin(kind) not in (Literal, Annotated)]
    if value is None and type(None) in kinds:
        return
    if numbers and isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        kind, rule = typing.get_args(numbers[0])
        if kind is int and not isinstance(value, Integral):
            raise ValueError(f"{name}={value!r} must be a whole number")
        if not rule.holds(value):
            raise ValueError(f"{name}={value!r} {rule.words}")
        return
    if (isinstance(value, str) and value in choices) or not (choices or numbers):
        return
    if str not in kinds if isinstance(value, str) else not set(others) - {type(None)}:
        expected = [*map(repr, choices), *["a number"] * bool(numbers or float in kinds)]
        expected += ["None"] * (type(None) in kinds)
        raise ValueError(f"{name}={value!r} is unknown; expected {' or '.join(expected)}")


def parameter_types(learner: Any) -> dict[str, tuple[Any, ...]]:
    """The types that a parameter may have, without the rules for its values."""
    of_class: Any = type(learner)
    return {
        name: tuple(typing.get_args(k)[0] if typing.get_origin(k) is Annotated else k for k in kinds)
        for name, kinds in _annotations(of_class).items()
    }


@cache
def _annotations(learner: Any) -> dict[str, tuple[Any, ...]]:
    """The parts of the annotation of every parameter: of a union its members."""
    hints = typing.get_type_hints(learner, include_extras=True)
    names = [field.name for field in fields(learner)] if hasattr(learner, "__dataclass_fields__") else []
    return {n: union_members(hints[n]) for n in names}


def union_members(kind: Any) -> tuple[Any, ...]:
    """The parts of an annotation: of a union its members."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def expected_type(value: Any, kinds: Collection[Any]) -> str:
    """What a value must be if only numbers, truth values or None are allowed and it is none of these; "" if it may."""
    if not set(kinds) <= TYPE_WORDS.keys() or type(value) in kinds or (type(value) is int and float in kinds):
        return ""
    return " or ".join(TYPE_WORDS[kind] for kind in kinds)


def check_choices(learner: Any, **choices: Collection[str | None]) -> None:
    """Refuse a parameter that is none of its choices."""
    for name, allowed in choices.items():
        one_of(name, getattr(learner, name), allowed)


def one_of(name: str, value: Choice, allowed: Collection[str | None]) -> Choice:
    """``value`` if it is allowed, else an error that lists what is."""
    if value not in allowed:
        *most, last = map(repr, allowed)
        raise ValueError(f"{name}={value!r} is unknown; expected {', '.join(most)}{' or ' if most else ''}{last}")
    return value
