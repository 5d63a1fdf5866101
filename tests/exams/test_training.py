"""`isometry train` as a process, on real images: better than pixels and classical metrics, and safe from SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA"),
]
pytest.importorskip("torch")

# lengths for a few minutes on two cores, chosen on splits of other seeds; the seed here is the default, 0
SETS = {
    "mnist": ("--sample", 8000, "--epochs", 5),
    "usps": ("--epochs", 4),
    "omniglot_small": ("--epochs", 10),
}
CLEARLY = 0.05  # of MAP@R


def start(name, out, *options):
    command = [sys.executable, "-m", "isometry.cli", "train", DATA / f"{name}.npz", "-o", out, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(list(map(str, command)), text=True, cwd=ROOT, **pipes)


def finish(process, code=0):
    out, error = process.communicate()
    assert process.returncode == code, error
    return out


@pytest.mark.parametrize("name", SETS)
def test_clearly_above_pixels_and_classical_metrics_on_new_classes(name, tmp_path):
    out = tmp_path / "run"
    print(finish(start(name, out, "--validation", 0.3, *SETS[name])))
    scores = {s["name"]: s for s in json.loads((out / "scores.json").read_text())}
    network = scores.pop("network")
    assert {"raw pixels", "RCA", "DCA", "GMML", "PCA(32)", "PCA(32) + RCA", "PCA(32) + DCA", "PCA(32) + GMML"} == set(
        scores
    )
    for name, other in scores.items():
        assert network["map_at_r"]["mean"] > other["map_at_r"]["mean"] + CLEARLY, name
        assert other["gain"]["low"] > 0, name  # paired, query by query
    page = (out / "report.html").read_text()
    assert "Learning curves" in page and page.count("<img") == 12 * 2 * 9


@pytest.mark.parametrize("name", SETS)
def test_killed_at_random_moments_it_ends_with_the_same_weights(name, tmp_path):
    from isometry import load

    options = ("--sample", 1500, "--epochs", 4, "--validation", 0.3)
    begin = time.monotonic()
    finish(start(name, tmp_path / "whole", *options))
    took = time.monotonic() - begin
    moments = took * np.random.default_rng().uniform(0.2, 0.6, size=2)  # since each start
    print(f"{name}: killed after {moments.round(1)} seconds; a run takes {took:.1f}")
    for moment in moments:
        process = start(name, tmp_path / "killed", *options)
        time.sleep(moment)
        process.kill()
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0)  # the second may have had little left to do
    finish(start(name, tmp_path / "killed", *options))
    whole, killed = (load(tmp_path / run / "model.safetensors") for run in ("whole", "killed"))
    assert whole.weights_.keys() == killed.weights_.keys() and whole.history_ == killed.history_
    for key in whole.weights_:
        assert np.array_equal(whole.weights_[key], killed.weights_[key]), key
