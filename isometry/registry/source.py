"""What a method says of itself, read from its source: listing methods imports none of them, nor torch."""

from __future__ import annotations

import ast
import re
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[2]  # the folder that holds the package
# what labels and pairs can be turned into (`Supervision.to`): a learner that names chunklets takes them too
MADE_OF = {"chunklets": ("labels", "pairs"), "candidates": ("labels",)}
AFTER_A_DEFINITION = re.compile(r"^[^\s)]", re.MULTILINE)
FIRST_METHOD = re.compile(r"^    (?:def \w+\(|@\w|class \w+[(:])", re.MULTILINE)


class Docs(NamedTuple):
    """The parts of a docstring that the method table shows."""

    title: str  # the summary up to its colon
    equation: str  # the paragraph after the summary, of one line or several
    references: tuple[str, ...]  # entries of the section References; an entry ends where a line ends with a full stop


@cache
def docs(target: str) -> Docs:
    """The docstring of a class or function that is named as "module:attribute"."""
    summary, equation, *more = (ast.get_docstring(_definition(target)) or "").split("\n\n")
    references = next((part for part in more if part.startswith("References\n")), "\n")
    entries = re.split(r"(?<=\.)\n", references.split("\n", 2)[-1])
    return Docs(
        summary.partition(":")[0].rstrip("."),
        cleandoc(equation).rstrip(","),
        tuple(" ".join(entry.split()).rstrip(".") for entry in entries if entry),
    )


@cache
def sees(target: str) -> tuple[str, ...]:
    """The kinds of supervision that a learner takes: those its class names, and what they can be made of."""
    named, needs_y = _attribute(target, "_sees"), _attribute(target, "_needs_y")
    assert isinstance(named, ast.Tuple) and needs_y is not None, f"{target} is no learner: it has no _sees"
    kinds = [ast.unparse(kind).lower() for kind in named.elts]
    without = [] if kinds and ast.literal_eval(needs_y) else ["none"]
    return tuple(dict.fromkeys([*without, *kinds, *(k for kind in kinds for k in MADE_OF.get(kind, ()))]))


def _attribute(target: str, name: str) -> ast.expr | None:
    """What a class, or the first of its bases that does, assigns to a name."""
    node = _definition(target)
    for statement in node.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            assigned = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(assigned, ast.Name) and assigned.id == name:
                return statement.value
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    ours = filter(None, (_found(target.split(":")[0], ast.unparse(base)) for base in bases))
    return next(filter(None, (_attribute(base, name) for base in ours)), None)


@cache
def _definition(target: str) -> ast.ClassDef | ast.FunctionDef:
    """A class without its methods, or a function: to parse no more than that takes a tenth of the time."""
    module, name = target.split(":")
    text = _text(module)
    start = re.search(rf"^(class|def) {name}\b", text, re.MULTILINE)
    if start is None:
        raise LookupError(f"{module} defines no {name}")
    end = AFTER_A_DEFINITION.search(text, start.end())
    part = text[start.start() : end and end.start()]
    method = FIRST_METHOD.search(part) if start[1] == "class" else None
    (node,) = ast.parse(part[: method and method.start()]).body
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    return node


def _found(module: str, name: str) -> str | None:
    """Where a class that this module uses is defined, as "module:attribute"; None if it is not one of ours."""
    text = _text(module)
    if re.search(rf"^class {name}\b", text, re.MULTILINE):
        return f"{module}:{name}"
    for home, names in re.findall(r"^from (isometry[\w.]*) import (\([^)]*\)|.*)", text, re.MULTILINE):
        if name in re.findall(r"\w+", names):
            return f"{home}:{name}"
    return None


@cache
def _text(module: str) -> str:
    return HERE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
