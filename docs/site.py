"""Builds the site into site/: `make docs`, or `python -m docs.site`.

The pages that are written by hand are copied to build/docs, those that follow from the method table, from docstrings
and from what was measured are written beside them, and Sphinx makes HTML of all. A warning is an error, and so is a
link that leads nowhere, or a file loaded from another host.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, BUILD, SITE = ROOT / "docs", ROOT / "build" / "docs", ROOT / "site"
COPIED = ("*.md", "conf.py", "guides/*", "results/*.md", "images/*.png", "_static/*")
LEFT_OUT = ("methods.md", "errata.md")  # for readers of the repository; the site has more of the same


def put(path: Path, text: str) -> None:
    """Writes a file unless it is there already, so that Sphinx reads only what changed."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def gather() -> None:
    """The pages written by hand, and those of the repository's root that the site shows."""
    paths = [p for pattern in COPIED for p in SOURCE.glob(pattern) if p.is_file() and p.name not in LEFT_OUT]
    for path in [*paths, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]:
        target = BUILD / (path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else path.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != path.read_bytes():
            shutil.copyfile(path, target)


def write() -> None:
    """The pages that follow from the method table and the docstrings."""
    from docs import api_pages, method_pages, proofs, survey

    for module in (method_pages, proofs, api_pages, survey):
        for path, text in module.pages().items():
            put(BUILD / path, text)


def pictures(jobs: int) -> None:
    from docs import survey_figures, toys

    print(f"{toys.draw_all(jobs)} pictures of methods drawn", flush=True)
    survey_figures.draw_all(BUILD / "_static" / "survey")


def sphinx(jobs: int) -> int:
    from sphinx.cmd.build import main as build

    cache = BUILD.parent / "doctrees"
    return build(
        ["-b", "html", "-W", "--keep-going", "-n", "-q", "-j", str(jobs), "-d", str(cache), str(BUILD), str(SITE)]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes that draw and build")
    parser.add_argument("--fresh", action="store_true", help="forget earlier builds")
    given = parser.parse_args()
    start = time.perf_counter()
    if given.fresh:
        for folder in (BUILD, BUILD.parent / "doctrees", SITE):
            shutil.rmtree(folder, ignore_errors=True)
    gather()
    write()
    pictures(given.jobs)
    failed = sphinx(given.jobs)
    from docs.links import broken

    wrong = broken(SITE)
    for problem in wrong:
        print(problem, file=sys.stderr)
    n = sum(1 for _ in SITE.rglob("*.html"))
    took = time.perf_counter() - start
    print(f"{n} pages, {SITE.relative_to(ROOT)}/index.html; {took:.0f} s, {len(wrong)} broken links")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
