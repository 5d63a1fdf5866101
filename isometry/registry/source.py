"""What a method says of itself, read from the text of its source: listing methods imports none of them, nor torch.

Targets are named as "module:attribute". Of a class only the part before its first method is looked at, which holds the
docstring and what it assigns. tests/test_architecture.py compares all of it with the imported classes.
"""

from __future__ import annotations

import os
import re
from functools import cache
from inspect import cleandoc

HERE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # the folder that holds the package
# what labels and pairs can be turned into (`Supervision.to`): a learner that names chunklets takes them too
MADE_OF = {"chunklets": ("labels", "pairs"), "candidates": ("labels",)}
# the first method of a class, or what comes after a class or function
END = re.compile(r"^(?:    (?:def \w+\(|@\w|class \w+[(:])|[^\s)])", re.MULTILINE)
IMPORT = re.compile(r"^from (isometry[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def title(target: str) -> str:
    """The summary of the docstring up to its colon."""
    return _docstring(target)[0].partition(":")[0].rstrip(".")


def equation(target: str) -> str:
    """The paragraph after the summary, of one line or several."""
    return cleandoc(_docstring(target)[1]).rstrip(",")


def references(target: str) -> list[str]:
    """The entries of the section References, a line block whose lines begin with a bar."""
    section = next((part for part in _docstring(target) if part.startswith("References\n")), "\n\n")
    entries = re.split(r"(?<=\.)\n", section.split("\n", 2)[2])
    return [" ".join(entry.split()).removeprefix("| ").rstrip(".") for entry in entries if entry]


@cache
def sees(target: str) -> tuple[str, ...]:
    """The kinds of supervision that a learner takes: those its class names, and what they can be made of."""
    kinds = [kind.lower() for kind in re.findall(r"\w+", _assigned(target, "_sees"))] or ["none"]
    kinds.sort(key="none".__ne__)  # first
    return tuple(dict.fromkeys([*kinds, *(k for kind in kinds for k in MADE_OF.get(kind, ()))]))


@cache
def _assigned(target: str, name: str) -> str:
    """What a class, or the first of its bases that does, assigns to a name; "" if none does."""
    head = _head(target)
    found = re.search(rf"^    {name}\b[^=\n]*= ([^#\n]*)", head, re.MULTILINE)
    if found:
        return found[1].strip()
    bases = re.match(r"class \w+\(([^)]*)\)", head)
    homes = (_home(target.split(":")[0], base) for base in bases[1].split(", ")) if bases else ()
    return next(filter(None, (_assigned(home, name) for home in homes if home)), "")


def _docstring(target: str) -> list[str]:
    """The paragraphs of a docstring."""
    return _head(target).split('"""')[1].replace("\n    ", "\n").strip().split("\n\n")


@cache
def _head(target: str) -> str:
    """The text of a class up to its first method, or of a function."""
    module, name = target.split(":")
    text = _text(module)
    start = _start(text, name)
    if not start:
        raise LookupError(f"{module} defines no {name}")
    end = END.search(text, start + 1)
    return text[start : end and end.start()]


def _start(text: str, name: str) -> int:
    """Where a class or function is defined in a text; 0 if it is not."""
    return max(text.find(f"\n{head}") for head in (f"class {name}(", f"class {name}:", f"def {name}(")) + 1


def _home(module: str, name: str) -> str:
    """Where a class that this module uses is defined; "" if it is not one of ours."""
    text = _text(module)
    if _start(text, name):
        return f"{module}:{name}"
    return next((f"{home}:{name}" for home, names in IMPORT.findall(text) if name in re.findall(r"\w+", names)), "")


@cache
def _text(module: str) -> str:
    with open(os.path.join(HERE, *module.split(".")) + ".py", encoding="utf-8") as file:
        return file.read()
