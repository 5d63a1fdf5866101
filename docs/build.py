"""Writes docs/methods.md and docs/errata.md from the method table: `make docs`. With --check, says if they are old."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from isometry.registry import FAMILIES, METHODS, Method

HERE = Path(__file__).resolve().parent
NOTE = "<!-- written by docs/build.py from isometry/registry; do not edit -->"


def escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def method_table() -> str:
    lines = [NOTE, "", "# Methods", "", "Every method of the survey, by family. `isometry info NAME` shows more."]
    for family in FAMILIES:
        rows = [m for m in METHODS if m.family == family]
        if not rows:
            continue
        lines += [
            "",
            f"## {family.capitalize()}",
            "",
            "| id | name | learns from | solves | reference |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {m.key} | `{m.name}` | {escape(m.sees)} | {escape(m.equation)} | {escape(m.cite)} |" for m in rows
        ]
    return "\n".join([*lines, ""])


def errata() -> str:
    lines = [
        NOTE,
        "",
        "# Where the code departs from the survey's print, and why",
        "",
        "The survey *Spectral, Probabilistic, and Deep Metric Learning* has misprints, as every long text has.",
        "Each entry says what we compute instead. Methods without an entry follow the print.",
    ]
    for m in METHODS:
        if m.deviates:
            lines += ["", f"## {m.key} {m.name}: {m.section}", "", *wrap(m)]
    return "\n".join([*lines, ""])


def wrap(m: Method) -> list[str]:
    import textwrap

    return textwrap.wrap(m.deviates, 118, break_long_words=False, break_on_hyphens=False)


PAGES = {"methods.md": method_table, "errata.md": errata}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a page is not up to date")
    check = parser.parse_args().check
    old = [name for name, page in PAGES.items() if not (HERE / name).exists() or (HERE / name).read_text() != page()]
    if check:
        for name in old:
            print(f"docs/{name} is not up to date: run `make docs`", file=sys.stderr)
        return 1 if old else 0
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
