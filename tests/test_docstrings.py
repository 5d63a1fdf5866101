"""Docstrings of public names are numpydoc: types, defaults and meanings of parameters, and examples that run."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.base import BaseEstimator

from isometry.registry import METHODS

numpydoc = pytest.importorskip("numpydoc.docscrape")
docutils = pytest.importorskip("docutils.core")

# the packages whose public names must be documented; add "isometry.deep" as soon as its docstrings are of this form
PACKAGES = (
    "isometry",
    "isometry.eval",
    "isometry.io",
    "isometry.registry",
    "isometry.report",
    "isometry.search",
    "isometry.select",
)
PROSE = re.compile(r"[:;.](\s|$)|\b(the|that|which|whether|of each|see)\b")  # what a type is not made of


def public_names() -> Iterator[tuple[str, Any]]:
    """Classes and functions of the packages, each under the first name that leads to it."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and value not in seen:
                seen.add(value)
                yield f"{package}.{name}", value


def public_methods() -> Iterator[tuple[str, Any]]:
    """Methods and properties that the classes or their bases of this package define."""
    seen = set()
    for _, value in NAMES:
        for base in value.__mro__ if inspect.isclass(value) else ():
            if not base.__module__.startswith("isometry"):
                continue
            for name, member in vars(base).items():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if name.startswith("_") or not inspect.isfunction(function) or function in seen:
                    continue
                if function.__module__ == base.__module__:
                    seen.add(function)
                    yield f"{base.__module__}.{base.__name__}.{name}", member


NAMES = list(public_names())
MEMBERS = list(public_methods())
ROWS = {row.target for row in METHODS}  # what has an equation, and a paper
IDS = {"argvalues": NAMES, "ids": [name for name, _ in NAMES]}


def parsed(value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an unknown or doubled section
        return numpydoc.NumpyDocString(inspect.cleandoc(value.__doc__ or ""))


def parameters(value: Any) -> dict[str, inspect.Parameter]:
    """What a call takes, under the names that numpydoc gives it; exceptions take what those of Python do."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return {}
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {
        stars.get(p.kind, "") + p.name: p
        for p in inspect.signature(value).parameters.values()
        if p.name not in ("self", "cls")
    }


def _is_method(value: Any) -> bool:
    return f"{value.__module__}:{value.__name__}" in ROWS


def described(entries: list[Any]) -> dict[str, Any]:
    """One entry for each name, though several that are alike may stand in one."""
    return {name: entry for entry in entries for name in entry.name.split(", ")}


@pytest.mark.parametrize("name, value", **IDS)
def test_the_first_line_is_a_sentence(name, value):
    first, *rest = inspect.cleandoc(value.__doc__ or "").splitlines()
    assert re.match(r"[^a-z\s]", first) and first.endswith("."), first
    assert not rest or not rest[0], "one line, then an empty one"


@pytest.mark.parametrize("name, value", **IDS)
def test_every_parameter_has_a_type_its_default_and_a_meaning(name, value):
    doc = parsed(value)
    section = "Attributes" if _holds_fields(value) else "Parameters"
    told, taken = described(doc[section]), parameters(value)
    assert list(told) == list(taken), f"the section {section} and the signature differ"
    for parameter, given in taken.items():
        check_entry(parameter, told[parameter])
        if given.default is not inspect.Parameter.empty and not _holds_fields(value):
            check_default(parameter, told[parameter].type, given.default)
    for entry in doc["Attributes"]:
        check_entry(entry.name, entry)


def _holds_fields(value: Any) -> bool:
    """Whether a class only holds what was found: its fields stand as attributes, and nobody calls it."""
    plain = inspect.isclass(value) and not issubclass(value, BaseEstimator)
    return plain and (issubclass(value, tuple) or dataclasses.is_dataclass(value))


def check_entry(parameter: str, entry: Any) -> None:
    assert entry.type, f"{parameter} has no type"
    kind = re.sub(r'"[^"]*"|\{[^}]*\}|\(.*?\)|, default=.*$', "", entry.type)
    assert not PROSE.search(kind), f"{parameter} : {entry.type} is no type"
    text = " ".join(entry.desc).strip()
    assert text.endswith((".", ")", "::")), f"{parameter}: {text!r} is no sentence"


def check_default(parameter: str, kind: str, default: Any) -> None:
    found = re.search(r", (?:default=(.+)|optional)$", kind)
    assert found, f"{parameter} : {kind} does not end with its default, {default!r}"
    if default is None or isinstance(default, bool | int | float | str):
        assert found[1] is not None, f"{parameter} : {kind} does not say that the default is {default!r}"
        assert ast.literal_eval(found[1]) == default, f"{parameter} : {kind}, but the default is {default!r}"


@pytest.mark.parametrize("name, value", **IDS)
def test_functions_say_what_they_return(name, value):
    if inspect.isfunction(value) and inspect.signature(value).return_annotation not in (None, "None"):
        returns = parsed(value)["Returns"]
        assert returns and all(entry.type and " ".join(entry.desc).strip().endswith(".") for entry in returns)


@pytest.mark.parametrize("name, value", **IDS)
def test_notes_say_for_whom_a_method_is_and_what_it_costs(name, value):
    if _is_method(value):
        notes = "\n".join(parsed(value)["Notes"])
        assert "O(" in notes, "the section Notes does not say what it costs"
        assert parsed(value)["References"] or value.__name__ == "Euclidean"


@pytest.mark.parametrize("name, value", **IDS)
def test_inline_markup_is_whole(name, value):
    check_markup(value)


@pytest.mark.parametrize("name, member", MEMBERS, ids=[name for name, _ in MEMBERS])
def test_methods_are_documented(name, member):
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    overridden = name.rpartition(".")[2] in {n.rpartition(".")[2] for n, m in MEMBERS if m is not member and m.__doc__}
    assert function.__doc__ or overridden
    if not function.__doc__:
        return
    first, *rest = inspect.cleandoc(function.__doc__).splitlines()
    assert first.endswith(".") and (not rest or not rest[0]), first
    doc = parsed(function)
    told, taken = described(doc["Parameters"]), parameters(function)
    assert list(told) == list(taken), "the section Parameters and the signature differ"
    for parameter, given in taken.items():
        check_entry(parameter, told[parameter])
        if given.default is not inspect.Parameter.empty:
            check_default(parameter, told[parameter].type, given.default)
    check_markup(function)


def check_markup(value: Any) -> None:
    """What docutils says of the prose; the equation is no prose, and is rendered as mathematics."""
    doc = parsed(value)
    summary = doc["Extended Summary"]
    if _is_method(value):
        summary = "\n".join(summary).partition("\n\n")[2].splitlines()
    prose = ["\n".join(doc["Summary"]), "\n".join(summary)]
    prose += ["\n".join(doc[section]) for section in ("Notes", "References")]
    sections = ("Parameters", "Attributes", "Returns", "Raises")
    prose += ["\n".join(entry.desc) for section in sections for entry in doc[section]]
    for text in prose:
        said: list[str] = []
        tree = docutils.publish_doctree(
            text, settings_overrides={"report_level": 1, "warning_stream": Said(said), "halt_level": 5}
        )
        assert not said, f"{''.join(said)}\nin: {text}"
        initials = list(tree.findall(lambda node: node.tagname == "enumerated_list"))
        assert not initials, f"an initial at the start of a line is taken for a number: begin it with '| '\nin: {text}"


class Said:
    """A stream that keeps what is written to it."""

    def __init__(self, into: list[str]) -> None:
        self.into = into

    def write(self, text: str) -> None:
        if text.strip():
            self.into.append(text)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name, value", **IDS)
def test_examples_run(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files
    found = doctest.DocTestParser().get_doctest(value.__doc__ or "", {}, name, None, 0)
    assert found.examples, "there is no example"
    assert any(example.want for example in found.examples), "the example shows nothing"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    result = runner.run(found, out=said.append)
    assert not result.failed, "".join(said)
