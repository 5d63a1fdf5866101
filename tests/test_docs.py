"""The generated files are up to date, the README's Python runs, and CONTRIBUTING shows code that is there."""

from __future__ import annotations

import json
import re
import shlex
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
    assert "Covariance" in reasons
    table = {m.name: m.below_euclidean for m in all_methods()}
    assert reasons == {name: table[name] for name in reasons}


def test_citations_name_title_and_place():
    cites = {m.key: m.cite for m in all_methods()}
    assert cites["M07"] == cites["M20"]
    assert cites["M07"].endswith('contextual constraints for image retrieval", CVPR 2006')
    for key in ("M12", "M12h"):
        assert cites[key].startswith("P. A. Poorheravi") and "Computational Vision and Imaging Systems" in cites[key]


def test_every_picture_is_shown_on_a_page():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = set()
    for page in pages:
        for target in re.findall(r"!\[[^]]*\]\(([^)]+\.png)\)", page.read_text()):
            picture = (page.parent / target).resolve()
            assert picture.exists(), f"{page.name} shows {target}, which is not there"
            shown.add(picture)
    assert set((ROOT / "docs" / "images").glob("*.png")) == shown


def test_the_picture_of_the_readme_is_that_of_make_demo(monkeypatch):
    """Its numbers were made by the command of the Makefile, and closed forms give them again."""
    monkeypatch.syspath_prepend(str(ROOT))
    from docs.pictures import NUMBERS, demo_command, rows_of, run_demo

    kept = json.loads(NUMBERS.read_text())
    command = demo_command()
    assert kept["command"] == shlex.join(command)
    assert "make demo" in (ROOT / "README.md").read_text()
    methods = command.index("--methods") + 1
    assert kept["rows"].keys() == {"Euclidean", "Covariance", *command[methods].split(",")}
    quick = ["RCA", "FisherML", "GMML"]
    again = run_demo([*command[:methods], ",".join(quick), *command[methods + 1 :]])
    for name in quick:
        for part in ("score", "difference"):
            for end, value in again[name][part].items():
                assert value == pytest.approx(kept["rows"][name][part][end], abs=1e-3), (name, part, end)
    assert rows_of({"results": []}) == {}


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs/results").glob("*.md") if p.name != "index.md"))
def test_a_page_of_results_names_the_command_that_remakes_it(page):
    """And the command is there: a module of benchmarks, or a target of the Makefile."""
    text = (ROOT / "docs/results" / page).read_text()
    index = (ROOT / "docs/results/index.md").read_text()
    row = re.search(rf"^\| \[[^]]+\]\({page}\) \|.*\| `(.+?)` \|$", index, flags=re.MULTILINE)
    assert row is not None, f"docs/results/index.md does not list {page}"
    command = row[1]
    assert command.split(" --")[0] in text, f"{page} does not say {command}"
    tool, *words = command.split()
    if tool == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    else:
        assert words[0] == "-m" and (ROOT / (words[1].replace(".", "/") + ".py")).exists(), command
