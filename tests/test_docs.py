"""The generated files are up to date, the README's Python runs, and CONTRIBUTING shows code that is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from isometry.registry import all_methods

ROOT = Path(__file__).resolve().parents[1]


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, "-m", "docs.build", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def code_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["README.md"])
def test_python_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks(page)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_contributing_shows_code_that_is_there():
    blocks = code_blocks("CONTRIBUTING.md")
    assert len(blocks) == 4  # a closed form, an objective, a loss, a row
    for block in blocks:
        path, *lines = map(str.strip, block.splitlines())
        source = map(str.strip, (ROOT / path.removeprefix("# ")).read_text().splitlines())
        missing = [line for line in lines if line and line not in source]  # ``in`` goes on where it stopped: in order
        assert not missing, f"{path} has no line {missing[0]!r}"


def test_the_readme_gives_the_range_of_the_triplet_loss():
    table = (ROOT / "docs/results/deep_speed.md").read_text()
    readme = " ".join((ROOT / "README.md").read_text().split())
    ratios = {int(b): float(r) for b, r in re.findall(r"\| Triplet, all \| (\d+) \|.*?\*\*([\d.]+) ×\*\*", table)}
    told = re.search(
        r"([\d.]+) times faster than pytorch-metric-learning at B = 1024, ([\d.]+) at B = 64, ([\d.]+) at", readme
    )
    assert told is not None
    assert [float(x) for x in told.groups()] == [round(ratios[1024]), ratios[64], ratios[4096]]


def test_reasons_on_the_accuracy_page_are_those_of_the_method_table():
    page = (ROOT / "docs/results/accuracy.md").read_text()
    reasons = dict(re.findall(r"^- (\S+) \([^)]*\): (.*)$", page, flags=re.MULTILINE))
    assert {"MarginSVM", "KernelMarginSVM", "DMBK", "BayesianML", "PrivilegedML"} <= set(reasons)
    table = {m.name: m.below_euclidean for m in all_methods()}
    assert reasons == {name: table[name] for name in reasons}


def test_citations_name_title_and_place():
    cites = {m.key: m.cite for m in all_methods()}
    assert cites["M07"] == cites["M20"]
    assert cites["M07"].endswith('contextual constraints for image retrieval", CVPR 2006')
    for key in ("M12", "M12h"):
        assert cites[key].startswith("P. A. Poorheravi") and "Computational Vision and Imaging Systems" in cites[key]
