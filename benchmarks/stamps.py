"""Stamps of code: equal as long as nothing that a result depends on has changed.

A stamp covers the definitions that can be reached from some names: functions, classes and constants of the project,
followed from one to the next through the names that they use. Of a class that is reached, a method counts if what is
reached names it anywhere: ``save`` has no part in a fit, ``_fit`` has. Docstrings, comments, formatting and annotations
of functions never count. A stamp is made of the text alone, without running anything, so that that of an earlier commit
can be computed from its files.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("isometry", "benchmarks")
Name = tuple[str, str]  # module and the name in it; "" for all of the module
Reader = Callable[[str], str | None]  # path from the root → text, None if there is no such file


@cache
def on_disk(path: str) -> str | None:
    """The text of a file of this checkout."""
    file = ROOT / path
    return file.read_text("utf-8") if file.is_file() else None


@dataclass
class _Module:
    """What a module binds at its top level; methods are definitions of their own, by the names "Class.method"."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Name] = field(default_factory=dict)
    methods: dict[str, list[str]] = field(default_factory=dict)  # by class


class _Digest(NamedTuple):
    """Of a definition: its hash, the definitions that it uses, and the words in it that may name methods."""

    text: str
    used: frozenset[Name]
    words: frozenset[str]


class Code:
    """The definitions of a checkout, read as they are needed."""

    def __init__(self, read: Reader = on_disk):
        self._read = read
        self._modules: dict[str, _Module | None] = {}
        self._digests: dict[Name, _Digest] = {}

    def stamp(self, roots: Iterable[Name], *, calls: Collection[str] = (), without: Collection[str] = ()) -> str:
        """Eight hexadecimal digits of all that can be reached; for the arguments see `reachable`."""
        reached = sorted(self.reachable(roots, calls=calls, without=without))
        text = "\n".join(f"{module}:{name} {self._digest((module, name)).text}" for module, name in reached)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def reachable(
        self, roots: Iterable[Name], *, calls: Collection[str] = (), without: Collection[str] = ()
    ) -> set[Name]:
        """Definitions that some names use, directly or through others.

        ``calls`` are methods that are called from outside. Modules and packages ``without`` do not count, nor what is
        reached through them alone; the methods that they call do.
        """
        waiting = [found for root in roots for found in self._resolve(root)]
        reached: set[Name] = set()
        words, dormant = set(calls), defaultdict[str, list[Name]](list)  # methods that nothing has named so far
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            digest = self._digest(name)
            waiting += [used for used in digest.used if used[0] == name[0] or not _inside(name[0], without)]
            for word in digest.words - words:
                waiting += dormant.pop(word, ())
            words |= digest.words
            module = self._module(name[0])
            for method in module.methods.get(name[1], ()) if module else ():
                full = name[0], f"{name[1]}.{method}"
                if method in words or method.startswith("__"):
                    waiting.append(full)
                else:
                    dormant[method].append(full)
        return {name for name in reached if not _inside(name[0], without)}

    def _digest(self, name: Name) -> _Digest:
        if name not in self._digests:
            module = self._module(name[0])
            nodes = module.definitions[name[1]] if module else []
            text = hashlib.sha256("".join(_plain(node) for node in nodes).encode()).hexdigest()
            used = frozenset(found for node in nodes for found in self._used(name[0], node))
            words = frozenset(word for node in nodes for part in _walk(node) for word in _words(part))
            self._digests[name] = _Digest(text, used, words)
        return self._digests[name]

    def _used(self, module: str, node: ast.stmt) -> Iterator[Name]:
        bound = self._module(module)
        assert bound is not None
        names = bound.imports | dict(_imported(module, node))  # those inside functions, too
        for part in _walk(node):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in names:
                source, name = names[part.value.id]
                whole = f"{source}.{name}" if name else source
                yield from self._resolve((whole, part.attr))  # of a module that was imported
            elif isinstance(part, ast.Name):
                if part.id in names:
                    yield from self._resolve(names[part.id])
                elif part.id in bound.definitions:
                    yield module, part.id

    def _resolve(self, name: Name) -> list[Name]:
        """Where a name is defined, through modules that only pass it on; nothing, if that is not the project."""
        for _ in range(8):
            module = self._module(name[0])
            if module is None:
                return []
            if name[1] in module.definitions:
                return [name]
            if name[1] not in module.imports or self._module(f"{name[0]}.{name[1]}"):  # a module is no definition
                return []
            name = module.imports[name[1]]
        raise ValueError(f"imports of {name} go round in a circle")

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            self._modules[name] = self._parse(name) if name.split(".")[0] in PROJECT else None
        return self._modules[name]

    def _parse(self, name: str) -> _Module | None:
        path = name.replace(".", "/")
        places = (f"{path}.py", f"{path}/__init__.pyi", f"{path}/__init__.py")  # a stub says where lazy names are
        text = next((text for place in places if (text := self._read(place)) is not None), None)
        if text is None:
            return None
        found = _Module()
        for node in _top_level(ast.parse(text).body):
            found.imports |= dict(_imported(name, node)) if isinstance(node, ast.Import | ast.ImportFrom) else {}
            if isinstance(node, ast.ClassDef):
                functions = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
                node.body = [part for part in node.body if part not in functions]
                found.methods[node.name] = list(dict.fromkeys(part.name for part in functions))
                for part in functions:
                    found.definitions.setdefault(f"{node.name}.{part.name}", []).append(part)
            for bound in _bound(node):
                found.definitions.setdefault(bound, []).append(node)
        return found


def _inside(module: str, packages: Collection[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that bind names of a module, those under conditions too; not what is for type checkers alone."""
    for node in body:
        if isinstance(node, ast.If):
            typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            yield from _top_level([*([] if typing else node.body), *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _top_level([*node.body, *(s for h in node.handlers for s in h.body), *node.orelse])
        else:
            yield node


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _imported(module: str, node: ast.stmt) -> Iterator[tuple[str, Name]]:
    """Names that imports in a statement bind, with what they stand for."""
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            for alias in part.names:
                yield alias.asname or alias.name.split(".")[0], (alias.name, "")
        elif isinstance(part, ast.ImportFrom):
            assert not part.level, f"{module} has relative imports, which stamps do not follow"
            for alias in part.names:
                yield alias.asname or alias.name, (part.module or "", alias.name)


def _children(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Fields of a node that matter when it runs: no docstring, and no annotation of a function."""
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.arg) and name in ("annotation", "returns"):
            continue
        if name in ("type_comment", "type_params", "kind", "ctx"):
            continue
        if name == "body" and isinstance(value, list) and value and _is_text(value[0]):
            value = value[1:]
        yield name, value


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _words(node: ast.AST) -> Iterator[str]:
    """Names of attributes, also of those that are looked up by a string."""
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        yield node.value


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for _, value in _children(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _walk(part)


def _plain(value: object) -> str:
    """A tree as text, the same for every version of Python."""
    if isinstance(value, list):
        return f"[{','.join(map(_plain, value))}]"
    if isinstance(value, ast.AST):
        fields = (f"{name}={_plain(part)}" for name, part in _children(value) if part not in (None, []))
        return f"{type(value).__name__}({','.join(fields)})"
    return repr(value)
