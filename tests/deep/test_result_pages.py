"""What the pages of results of deep losses must show: every item beyond the survey, and none behind its peer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.deep_losses import CONTESTS, RESULTS, ratio, read_page
from isometry.cli import app
from isometry.registry import all_methods

PAGES = Path(__file__).resolve().parents[2] / "docs" / "results"
BEYOND = [m for m in all_methods(family="deep") if "E" <= m.key < "F"]
SIZES = (64, 256, 1024, 4096)
# what many people search for; the rest is good to have
SOUGHT = {
    *("E01", "E02", "E04", "E05", "E09", "E10", "E13", "E14", "E15", "E17", "E18", "E20", "E21", "E22", "E23", "E25"),
    *("E26", "E27", "E28", "E29", "E29b", "E31", "E32", "E33", "E33a", "E33c", "E34", "E34e", "E34k", "E35", "E39"),
    *("E40", "E41", "E46p", "E46t"),
}


def rows(page):
    """The cells of the rows of methods."""
    lines = (PAGES / page).read_text().splitlines()
    cells = ([c.strip() for c in line.strip("|").split("|")] for line in lines if re.match(r"\| [DE]\d\d\w* \|", line))
    return [c for c in cells if c[0] >= "E"]


def test_all_items_are_listed():
    """E01 to E49, of which the last is evaluation."""
    listed = json.loads(CliRunner().invoke(app, ["list", "--family", "deep", "--json"]).stdout)
    keys = {row["key"] for row in listed}
    assert {m.key for m in BEYOND} <= keys
    assert {f"E{n:02}" for n in range(1, 50)} <= {key[:3] for key in keys}


def test_all_items_passed_the_digits_exam_or_the_page_says_why_not():
    text, shown = (PAGES / "deep.md").read_text(), rows("deep.md")
    elsewhere = re.search(r"Items without a row of their own: (.*?)\n\n", text, re.S)[1]
    for m in BEYOND:
        assert m.key in {row[0] for row in shown} or f"`{m.name}` ({m.key})" in elsewhere, m.key
    for row in shown:
        assert row[-1] == "passes" or len(row[-1].removeprefix("below: ")) > 40, row


def test_sought_losses_find_unseen_classes_as_well_as_the_peer():
    """In the mean of three seeds, at the peer's settings: within the spread of the seeds or better."""
    shown = rows("deep_unseen.md")
    compared = set()
    for key, name, _, same, theirs in shown:
        found = [re.match(r"([\d.]+) \[([\d.]+), ([\d.]+)\]", cell) for cell in (same, theirs)]
        if "not finite" in theirs:
            assert found[0]
        elif same:
            (mean, low, high), (peer, *_) = (map(float, match.groups()) for match in found)
            assert mean >= peer - (high - low) / 2, name
        else:
            continue
        compared.add(key)
    assert compared >= SOUGHT


@pytest.mark.parametrize("title", [title for title in CONTESTS if not title.startswith("normalise")])
def test_no_loss_is_slower_than_the_peer_at_any_size(title):
    results = read_page(RESULTS.read_text())
    for size in SIZES:
        both = results[title, size]
        assert {"ms", "mib"} <= both["ours"].keys()
        assert "failure" in both["theirs"] or ratio(results, title, size) >= 1, size


def test_direct_forms_are_much_slower():
    results = read_page(RESULTS.read_text())
    assert ratio(results, "Smooth AP", 256) >= 100 and ratio(results, "Rank-N-contrast", 512) >= 10
