"""The tests that stand behind a method, shown on pages of the site."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from isometry.registry import METHODS, Method

ROOT = Path(__file__).resolve().parents[1]
MOST = 12  # tests of one method on its page


@dataclass(frozen=True)
class Proof:
    """A test function."""

    file: str  # tests/spectral/test_closed_forms.py
    name: str  # test_rca_is_…
    source: str

    @property
    def page(self) -> str:
        """The page that shows the tests of its file."""
        return "tests/" + Path(self.file).relative_to("tests").with_suffix("").as_posix().replace("/", "-")

    @property
    def anchor(self) -> str:
        return f"{self.page.removeprefix('tests/')}-{self.name}".replace("_", "-").lower()

    @property
    def words(self) -> str:
        return self.name.removeprefix("test_").replace("_", " ")


@cache
def tests() -> tuple[Proof, ...]:
    """Every test function of the quick tests and the exams."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                source = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
                found.append(Proof(path.relative_to(ROOT).as_posix(), node.name, source))
    return tuple(found)


@cache
def words_of_tests() -> tuple[frozenset[str], ...]:
    """The words in the source of each test."""
    return tuple(frozenset(re.findall(r"\w+", t.source)) for t in tests())


@cache
def proofs(method: Method) -> tuple[Proof, ...]:
    """The tests that name the class of a method, or its key: those of its own family, if there are any."""
    name = method.target.split(":")[1]
    wanted = {name, method.key}
    hits = [t for t, words in zip(tests(), words_of_tests(), strict=True) if wanted & words]
    if not hits:  # named in a table at the head of the file, which its tests go through
        files = {t.file for t in tests() if "tests/exams" not in t.file}
        files = {file for file in files if re.search(rf"\b{name}\b", (ROOT / file).read_text("utf-8"))}
        hits = [t for t in tests() if t.file in files]
    family = f"tests/{method.family}/"
    counts: dict[str, int] = {}
    for t in hits:
        counts[t.file] = counts.get(t.file, 0) + 1
    key = method.key.lower()
    hits.sort(key=lambda t: (not t.file.startswith(family), key not in t.name.lower(), -counts[t.file], t.file))
    own = [t for t in hits if t.file.startswith(family)] or hits
    return tuple(own[:MOST])


def pages() -> dict[str, str]:
    """Path → text: a page for each file of tests, with those of its tests that a method points to."""
    wanted: dict[str, dict[str, Proof]] = {}
    for method in METHODS:
        for proof in proofs(method):
            wanted.setdefault(proof.page, {})[proof.name] = proof
    out = {}
    for page, found in wanted.items():
        file = next(iter(found.values())).file
        # whoever searches looks for words of guides and methods, which source text would bury
        lines = [":orphan:", ":nosearch:", "", f"``{file}``", "=" * (len(file) + 4), ""]
        lines += ["What the tests of this file that a method points to say, word for word.", ""]
        for proof in found.values():
            lines += [f".. _{proof.anchor}:", "", proof.words, "-" * len(proof.words), ""]
            lines += [".. code-block:: python", "", *(f"   {line}".rstrip() for line in proof.source.splitlines()), ""]
        out[f"{page}.rst"] = "\n".join(lines)
    return out
