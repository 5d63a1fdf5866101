"""Losses and miners by name: ``"Triplet(margin=0.3, miner=BatchHard)"`` is read as data, never run as code."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Mapping
from typing import Any

from isometry.parameters import expected_type, union_members
from isometry.registry import all_methods, get

KINDS = {"loss": ("loss", "head", "objective"), "miner": ("miner",)}  # rows of the method table, for suggestions
EXAMPLES = {"loss": "'Triplet' or 'ProxyNCA'", "miner": "'BatchHard' or 'BatchSemiHard'"}


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """``"Name"`` or ``"Name(key=value, …)"`` as the name and the values.

    Values are Python literals. A bare word is text, and so is a name with values of its own, for `make_named`.
    """
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name, {}
    wrong = ValueError(f"{text!r} cannot be read: expected a name, or a name with values such as 'Triplet(margin=0.3)'")
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise wrong from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise wrong
    params: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in params:
            raise wrong
        params[keyword.arg] = _value(keyword.value, text)
    return name.strip(), params


def _value(node: ast.expr, text: str) -> Any:
    if isinstance(node, (ast.Name, ast.Call)):
        return ast.unparse(node)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"{text!r}: {ast.unparse(node)} is no value; numbers, text, True, False, None, lists and tuples are"
        ) from error


def make_named(
    what: str,
    text: str,
    kinds: tuple[type, ...],
    known: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """The loss or miner that a text names.

    Parameters
    ----------
    what : str
        What is made, "loss" or "miner", for messages.
    text : str
        A name of the method table, with values in brackets if there are any.
    kinds : tuple of type
        Classes it may be of.
    known : dict or None, default=None
        Values for those of its arguments that have these names; None: there are none.
    params : dict or None, default=None
        Further values, which overrule those in the text; None: there are none.
    """
    from isometry.deep.pair_form import PairForm  # which itself takes names

    name, written = parse_call(text)
    try:
        row = get(name, KINDS[what])
    except KeyError as error:
        raise ValueError(f"{what}={text!r}: {error.args[0]}") from error
    found = row.load()
    if not (isinstance(found, type) and issubclass(found, kinds)):
        if row.kind in KINDS[what] and any(issubclass(kind, PairForm) for kind in kinds):
            raise ValueError(f"{row.name} is no loss of columns by itself; take Ranking, InfoNCE or SigLIP")
        article = "an" if row.kind[0] in "aeiou" else "a"
        raise ValueError(f"{row.name} is {article} {row.kind}; a {what} is expected, such as {EXAMPLES[what]}")
    if inspect.isabstract(found):
        made = {m.name: m.load() for m in all_methods(family="deep") if m.kind in KINDS[what]}
        names = [n for n, kind in made.items() if isinstance(kind, type) and issubclass(kind, found)]
        raise ValueError(f"{row.name} is what {', '.join(names)} have in common, and no {what} by itself: choose one")
    variant = row.params if "[" in row.name else {}  # such as Lifted[max]
    given = {**variant, **written, **(params or {})}
    taken = _arguments(found)
    arguments = {k: v for k, v in (known or {}).items() if k in taken}
    _check(row.name, found, given, arguments)
    for part in KINDS:
        if isinstance(given.get(part), str):
            given[part] = make_named(part, given[part], _kinds_of(part), known)
    return found(**{**arguments, **given})


def _kinds_of(part: str) -> tuple[type, ...]:
    from isometry.deep.loss import Loss  # which itself takes miners by name
    from isometry.deep.miners import Miner

    return (Loss,) if part == "loss" else (Miner,)


def _arguments(kind: type) -> dict[str, inspect.Parameter]:
    """Those that have a name; a module without ``__init__`` takes any, and uses none."""
    parameters = inspect.signature(kind).parameters
    return {k: p for k, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _check(name: str, kind: type, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Arguments that exist, are complete, and are numbers where numbers are expected; or an error that says which."""
    taken = _arguments(kind)
    unknown = [k for k in given if k not in taken]
    if unknown:
        raise ValueError(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(taken) or 'none'}")
    missing = [k for k, p in taken.items() if p.default is p.empty and k not in given and k not in known]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}: write '{name}({missing[0]}=…)'")
    hints = typing.get_type_hints(kind.__init__)  # type: ignore[misc]
    for k, value in given.items():
        expected = expected_type(value, union_members(hints.get(k, object)))
        if expected:
            raise ValueError(f"{name}({k}={value!r}): {k} must be {expected}")
