"""Docstrings as the site shows them: equations as mathematics, plain text that looks like markup as text."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from typing import Any

from docs.equations import display
from isometry.registry import METHODS
from isometry.registry.source import equation as written

PACKAGES = (
    "isometry",
    *(f"isometry.{part}" for part in ("deep", "eval", "search", "select", "io", "report", "registry")),
)
NAME = re.compile(r"(?<![`:\w])`(\w+)`(?![`_\w])")
FIELD = re.compile(r"\s*\*{0,2}\w+(, \*{0,2}\w+)* : ")  # a parameter and its type
# p_i, Σ_{j≠i}, λ_max: one letter, or an operator, and what is set lower; other words with underscores are names of code
LETTERS = r"[^\W\d_]?[^\W\d_][\u0302-\u0307]?|max|min|mean|argmax|argmin|cos|var|pos|Sim|Dis|LMNN"
LOW = r"\{[^{}]*\}|(?:[A-Za-z0-9]{1,2}|max|min|neg|pos|sym|gen|apn)(?![A-Za-z0-9_α-ω])|[*⁺⁻]"
SCRIPT = re.compile(rf"(?<![\w`.])({LETTERS})\\?_({LOW})|(?<=[\w)\]])\^(\{{[^{{}}]*\}}|[\w±*](?!\w))")
SMALL = dict(zip("ijklmnprstuva", "ᵢⱼₖₗₘₙₚᵣₛₜᵤᵥₐ", strict=True))
LITERAL = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`_?)")


@cache
def equations() -> dict[tuple[str, str], str]:
    """(Module, name) → the equation in the docstring of what a row of the method table names."""
    return {tuple(m.target.split(":")): written(m.target) for m in METHODS}  # type: ignore[misc]


def math_block(equation: str) -> list[str]:
    """The directive that shows an equation."""
    return [".. math::", "", *(f"   {line}" for line in display(equation).splitlines()), ""]


def with_mathematics(lines: list[str], equation: str) -> list[str]:
    """Lines of a docstring, its second paragraph shown as mathematics if that is the equation."""
    paragraphs = "\n".join(lines).split("\n\n")
    if len(paragraphs) < 2 or inspect.cleandoc(paragraphs[1]).rstrip(",") != equation:
        return lines
    return "\n\n".join([paragraphs[0], "\n".join(math_block(equation)), *paragraphs[2:]]).splitlines()


def tolerant(lines: list[str]) -> list[str]:
    """Lines in which bars and underscores of plain mathematics are not taken for markup."""
    out, code = [], False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if code is not False and line.strip() and indent <= code:
            code = False
        if code is False and FIELD.match(line):
            out.append(_without_markup(line))
        elif code is False and not line.lstrip().startswith((".. ", ">>>", "...", ":")):
            bar = re.match(r"\s*\| ", line)  # a line block, as references are
            start = bar.end() if bar else 0
            parts = LITERAL.split(line[start:])
            parts[::2] = [_plain(part) for part in parts[::2]]
            out.append(line[:start] + "".join(parts))
        else:
            out.append(line)
        if code is False and (
            line.rstrip().endswith("::") or line.lstrip().startswith((".. math::", ".. code", ">>>"))
        ):
            code = indent if not line.lstrip().startswith(">>>") else False
    return out


@cache
def references() -> dict[str, str]:
    """Public name → markup of a link to its page in the reference."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            found.setdefault(name, f":obj:`{name} <{package}.{name}>`")
    return found


def linked(lines: list[str], links: dict[str, str]) -> list[str]:
    """Lines in which single backticks around a known name have become a link."""
    return [NAME.sub(lambda m: links.get(m[1], m[0]), line) for line in lines]


def with_scripts(text: str) -> str:
    """Plain text with its subscripts and exponents set lower and higher: ``p_i``, ``Σ_{j≠i}``, ``e^{−d}``."""
    return re.sub(r"(?<=`)\\ (?=\s|$)", "", SCRIPT.sub(_role, text))


def _role(found: re.Match[str]) -> str:
    letter, low, high = found.groups()
    return rf"{letter}\ :sub:`{_script(low)}`\ " if high is None else rf"\ :sup:`{_script(high)}`\ "


def _script(text: str) -> str:
    """What is set lower or higher, in which letters may be lower still."""
    return re.sub(r"\\?_([a-z]{1,2})\b", _small, text.strip("{}"))


def _small(found: re.Match[str]) -> str:
    return "".join(map(SMALL.get, found[1])) if set(found[1]) <= SMALL.keys() else found[0]


def _plain(text: str) -> str:
    return with_scripts(_without_markup(text))


def _without_markup(text: str) -> str:
    text = re.sub(r"(?<!\\)\|", r"\\|", text)
    return re.sub(r"(?<=[\w\]₀-₉])_(?=[^\w]|$)", r"\\_", text)


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """For Sphinx's event autodoc-process-docstring, before numpydoc reads the docstring."""
    key = (getattr(obj, "__module__", ""), getattr(obj, "__name__", ""))
    if key in equations():
        lines[:] = with_mathematics(lines, equations()[key])
    lines[:] = linked(tolerant(lines), references())
