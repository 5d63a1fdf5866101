"""How a learner declares its parameters: as annotated names with defaults, in the order of its arguments.

The annotation also says which values are allowed: `Positive`, `Count` and the others here, and ``Literal`` for names.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
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
    "Rule",
    "Seed",
    "Share",
    "check_choices",
    "check_parameters",
    "checked",
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


MOST_SEED = 2**32 - 1  # what numpy takes
Seed = (
    Annotated[int, Rule(lambda v: 0 <= v <= MOST_SEED, f"must be a whole number between 0 and {MOST_SEED}")]
    | np.random.RandomState
    | None
)
Positive = Annotated[float, Rule(lambda v: v > 0, "must be positive")]
NotNegative = Annotated[float, Rule(lambda v: 0 <= v < np.inf, "must not be negative or infinite")]
Share = Annotated[float, Rule(lambda v: 0 <= v <= 1, "must lie in [0, 1]")]
PositiveShare = Annotated[float, Rule(lambda v: 0 < v <= 1, "must lie in (0, 1]")]
Count = Annotated[int, Rule(lambda v: v >= 1, "must be at least 1")]
Iterations = Annotated[int, Rule(lambda v: v >= 0, "must not be negative")]
NUMBERS: dict[Any, str] = {float: "a number", int: "a whole number"}


@dataclass_transform(eq_default=False)
def parameters(learner: type[Learner]) -> type[Learner]:
    """The annotated names of a class become the arguments of ``__init__``, which only stores them.

    This is what scikit-learn asks of every estimator, whose ``repr`` and identity stay as they are.
    """
    return dataclass(eq=False, repr=False)(learner)


def check_parameters(learner: Any) -> None:
    """Refuse a value that the annotation of its parameter does not allow; also in a sampler or learner within."""
    of_class: Any = type(learner)
    for name, kinds in _annotations(of_class).items():
        value = getattr(learner, name)
        _check(name, value, kinds)
        if is_dataclass(value) and not isinstance(value, type):
            check_parameters(value)


def checked(name: str, value: Any, kind: Any) -> Any:
    """The value, if it is finite and an annotation such as `Positive` allows it."""
    _check(name, value, (kind,))
    if not np.isfinite(value):
        raise ValueError(f"{name}={value!r} must be finite")
    return value


def _check(name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """Refuse a value that is of none of the kinds, the members of its parameter's annotation."""
    if any(_admits(kind, value) for kind in kinds):
        return
    rules = [typing.get_args(kind) for kind in kinds if typing.get_origin(kind) is Annotated]
    if rules and _is_number(value):
        number, rule = rules[0]
        wrong = "must be a whole number" if number is int and not isinstance(value, Integral) else rule.words
        raise ValueError(f"{name}={value!r} {wrong}")
    words = [words for kind in kinds for words in _words(kind)]
    expected = sorted(dict.fromkeys(words), key=lambda w: (w == "None", not w.startswith("'")))  # names come first
    raise ValueError(f"{name}={value!r:.80} is unknown; expected {' or '.join(expected)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_finite(values: Any) -> bool:
    """Whether all entries of an array are finite numbers."""
    try:
        return bool(np.isfinite(np.asarray(values, dtype=np.float64)).all())
    except (TypeError, ValueError):  # no numbers, or lists of unequal lengths
        return False


def _admits(kind: Any, value: Any) -> bool:
    """Whether a value is of one kind: a type, a number with a rule, one of some names, a sequence."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin is Annotated:
        number, rule = args
        return _is_number(value) and (number is float or isinstance(value, Integral)) and bool(rule.holds(value))
    if origin is Literal:
        return isinstance(value, str | bool | None) and value in args
    if origin in (tuple, Sequence):
        return isinstance(value, tuple | list | range | np.ndarray) and _admits_all(origin, args, value)
    if kind is float or kind is int:
        return _is_number(value) and (value == value if kind is float else isinstance(value, Integral))
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is np.ndarray:
        return (isinstance(value, list | tuple) or hasattr(value, "__array__")) and _is_finite(value)
    if (origin or kind) is Callable:
        return callable(value)
    return isinstance(value, origin or kind)


def _admits_all(origin: Any, args: tuple[Any, ...], values: Any) -> bool:
    """Whether every member of a sequence is of the kind that its annotation gives: one for all, or one for each."""
    if not args:
        return True
    each = args if origin is tuple and Ellipsis not in args else args[:1] * len(values)
    return len(values) == len(each) and all(_admits(kind, v) for kind, v in zip(each, values, strict=True))


def _words(kind: Any) -> list[str]:
    """What an error calls a kind of values."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return [repr(choice) for choice in args]
    if origin is Annotated or kind in NUMBERS:
        return [NUMBERS[args[0] if origin is Annotated else kind]]
    if origin in (tuple, Sequence):
        number = NUMBERS.get(args[0], "a value").split(" ", 1)[1] if args else "value"
        return [f"{len(args)} {number}s" if origin is tuple and Ellipsis not in args else f"a list of {number}s"]
    known = {type(None): "None", bool: "True or False", str: "a name", np.ndarray: "an array of finite numbers"}
    return [known.get(kind) or f"a {getattr(origin or kind, '__name__', str(kind))}"]


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
