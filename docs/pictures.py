"""Draws the picture of the README from the comparison of `make demo`: `python -m docs.pictures`.

The command is read from the Makefile and run. Its numbers are kept in docs/images/demo.json, beside the picture.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from isometry.eval import Interval
from isometry.report import forest

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "docs" / "images" / "demo.json"


def demo_command() -> list[str]:
    """What `make demo` runs, without how many processes do it and where the report goes."""
    recipe = re.search(r"^demo:.*\n((?:\t.*\n?)+)", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert recipe is not None, "the Makefile has no target demo"
    words = shlex.split(recipe[1].replace("\\\n", " ").replace("$(BIN)/", ""))
    for option in ("--jobs", "--report"):
        at = words.index(option)
        del words[at : at + 2]
    return words


def run_demo(command: list[str]) -> dict[str, Any]:
    """The rows of the comparison that a command prints, by name."""
    line = [sys.executable, "-m", "isometry.cli", *command[1:], "--json"]
    done = subprocess.run(line, capture_output=True, check=True)
    return rows_of(json.loads(done.stdout))


def rows_of(found: dict[str, Any]) -> dict[str, Any]:
    """What the picture shows of each row."""
    return {r["name"]: {k: r[k] for k in ("score", "difference", "reliable")} for r in found["results"]}


def draw(rows: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = [
        SimpleNamespace(name=name, reliable=r["reliable"], difference=r["difference"] and Interval(**r["difference"]))
        for name, r in rows.items()
    ]
    figure, ax = plt.subplots(figsize=(8, 4.5))
    forest(SimpleNamespace(results=drawn, scoring="MAP@R", level=0.95), ax)  # type: ignore[arg-type]
    ax.set_title("Retrieval on digits: paired difference to Euclidean in MAP@R, 95 % intervals", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    command = demo_command()
    rows = run_demo(command)
    NUMBERS.write_text(json.dumps({"command": shlex.join(command), "rows": rows}, indent=1) + "\n", "utf-8")
    draw(rows, NUMBERS.with_suffix(".png"))


if __name__ == "__main__":
    main()
