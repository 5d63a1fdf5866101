"""The Python of the README and on the pages of the site runs, page by page, as a reader would."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ["start.md", "choose.md", *sorted(f"guides/{p.name}" for p in (DOCS / "guides").glob("*.md"))]
NEEDS = {"isometry.deep": "torch", ".onnx": "onnxscript", "to_csv": "pandas"}


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["../README.md", *(page for page in PAGES if blocks(page))])
def test_python_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(page):
        missing = [package for sign, package in NEEDS.items() if sign in block and find_spec(package) is None]
        if missing:
            pytest.skip(f"{page} needs {', '.join(missing)}")
        exec(compile(block, page, "exec"), names)


def test_every_task_has_a_guide():
    index = (DOCS / "guides" / "index.md").read_text("utf-8")
    for page in PAGES[2:]:
        name = Path(page).stem
        assert name == "index" or re.search(rf"^{name}$", index, re.MULTILINE), f"the index does not list {page}"
