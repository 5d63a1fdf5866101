"""Writes what follows from the method table: `make tables`. With --check, says which files are old.

These are docs/methods.md, docs/errata.md, docs/examples.md, and a stub `__init__.pyi` for each package whose names are
loaded on first use: editors and type checkers know the names from there.
"""

from __future__ import annotations

import argparse
import ast
import sys
import textwrap
from pathlib import Path

from isometry.registry import FAMILIES, METHODS
from isometry.registry.exports import targets

ROOT = Path(__file__).resolve().parents[1]
NOTE = "written by docs/build.py from isometry/registry; do not edit"


def cell(text: str) -> str:
    """A cell of a table, of one line or several."""
    return "<br>".join(" ".join(line.split()) for line in text.replace("|", "\\|").splitlines()) or "—"


def method_table() -> str:
    lines = [
        *(f"<!-- {NOTE} -->", "", "# Methods", ""),
        "Every method of the survey, by family, and methods beyond it (B…). `isometry info NAME` shows more.",
    ]
    for family in FAMILIES:
        lines += [
            *("", f"## {family.capitalize()}", ""),
            "| id | name | learns from | solves | reference |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {m.key} | `{m.name}` | {cell(m.sees)} | {cell(m.equation)} | {cell(m.cite)} |"
            for m in METHODS
            if m.family == family
        ]
    return "\n".join([*lines, ""])


def examples_page() -> str:
    """Every example that draws a picture, with what its first lines say."""
    lines = [f"<!-- {NOTE.replace('isometry/registry', 'examples')} -->", "", "# Studies with pictures", ""]
    lines += [
        "Studies on real sets. Each picture is that of a stored run of the script that its heading names, and is drawn",
        "again by `python -m examples.NAME`; the sets lie outside the repository (`ISOMETRY_DATA`).",
        "",
    ]
    for path in sorted((ROOT / "examples").glob("*.py")):
        if (ROOT / "docs" / "images" / f"{path.stem}.png").exists():
            said = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0]
            prose = textwrap.wrap(said, 118, break_long_words=False, break_on_hyphens=False)
            lines += [f"## {path.stem}", "", *prose, "", f"![{path.stem}](images/{path.stem}.png)", ""]
    return "\n".join(lines)


def errata() -> str:
    lines = [
        *(f"<!-- {NOTE} -->", "", "# Where the code departs from the survey's print, and why", ""),
        "The survey *Spectral, Probabilistic, and Deep Metric Learning* has misprints, as every long text has.",
        "Each entry says what we compute instead. Methods without an entry follow the print.",
        "",
        "Of what is beyond the survey, entries B… say what is ours in a method, and entries E… what we compute where a",
        "paper and the code of its authors, or of others, differ.",
    ]
    for m in METHODS:
        if m.deviates:
            prose = textwrap.wrap(m.deviates, 118, break_long_words=False, break_on_hyphens=False)
            lines += ["", f"## {m.key} {m.name}: {m.section}", "", *prose]
    return "\n".join([*lines, ""])


def stub(package: str) -> str:
    """The names that a package exports, as plain imports."""
    tree = ast.parse(ROOT.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8"))
    tables = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("_OTHERS", "_PACKAGES", "__version__")
    }
    found = [target.split(":") for target in targets(package, tables.get("_OTHERS", {})).values()]
    imports = [*found, *([package, name] for name in tables.get("_PACKAGES", ()))]
    imports.sort(key=lambda i: (i[0], not i[1].isupper(), i[1].islower(), i[1]))  # the order ruff asks for
    lines = [f"from {module} import {name} as {name}" for module, name in imports]
    version = ["", "__version__: str"] if "__version__" in tables else []
    return "\n".join([f"# {NOTE}", "", *lines, *version, ""])


def files() -> dict[str, str]:
    """Path → text."""
    packages = ("isometry", *(f"isometry.{family}" for family in FAMILIES))
    stubs = {f"{package.replace('.', '/')}/__init__.pyi": stub(package) for package in packages}
    pages = {"docs/methods.md": method_table(), "docs/errata.md": errata(), "docs/examples.md": examples_page()}
    return {**pages, **stubs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file is not up to date")
    check = parser.parse_args().check
    old = {p: text for p, text in files().items() if not (ROOT / p).exists() or (ROOT / p).read_text("utf-8") != text}
    for path, text in old.items():
        if check:
            print(f"{path} is not up to date: run `make tables`", file=sys.stderr)
        else:
            (ROOT / path).write_text(text, "utf-8")
            print(path)
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
