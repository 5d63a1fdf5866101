"""Every example runs and draws its picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data"))
SHARED = {"contest", "data", "few_shot"}  # not examples themselves; the last writes a page and has its own exam
EXAMPLES = sorted({path.stem for path in (ROOT / "examples").glob("*.py")} - SHARED - {"__init__"})
CODE = """
import importlib, pathlib, sys
from examples import contest
contest.IMAGES = pathlib.Path(sys.argv[2])  # pictures go elsewhere
importlib.import_module("examples." + sys.argv[1]).main()
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA"),
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_runs(name, tmp_path):
    command = [sys.executable, "-c", CODE, name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
    assert list(tmp_path.glob("*.png")), f"{name} saved no picture by examples.contest.save"
