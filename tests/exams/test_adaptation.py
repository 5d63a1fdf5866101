"""Exams of `isometry adapt` on real embeddings: what it says of new classes must hold for classes it has never met."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from isometry import Pairs, adapt, load
from isometry.cli import app
from isometry.eval import retrieval

DATA = Path(os.environ.get("ISOMETRY_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data"))
NAMES = ("banking77_minilm", "clinc150_minilm", "news20_minilm")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA"),
]


def some(name, each, seed=0):
    """So many rows of each class."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        X, y = arrays["X"], arrays["y"]
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:each] for c in np.unique(y)])
    return X[rows], y[rows]


@pytest.mark.parametrize("each", [5, 20, 100])
@pytest.mark.parametrize("name", NAMES)
def test_the_command_gives_a_table_a_verdict_a_page_and_a_head(name, each, tmp_path):
    X, y = some(name, each)
    np.savez(tmp_path / "e.npz", X=X, y=y)
    head, page = tmp_path / "head.safetensors", tmp_path / "page.html"
    done = CliRunner().invoke(
        app,
        ["adapt", str(tmp_path / "e.npz"), "--save", str(head), "--report", str(page)]
        + ["--no-heads", "--budget", "1e6", "--json"],
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found["scores"]) == {"map@r", "recall@1", "recall@10", "ndcg@10", "pair_auc"}
    main = found["scores"]["map@r"]
    for score, told in found["scores"].items():
        print(name, each, score, {part: round(value, 4) for part, value in told.items()}, found["adapted"])
    assert found["adapted"] == (main["low"] > 0) or not found["adapted"]
    if found["adapted"]:
        assert main["after"] > main["before"]
    else:  # nothing is lost by what is chosen: the head is the identity
        Z = X / np.linalg.norm(X, axis=1, keepdims=True)
        assert np.allclose(load(head).transform(X), Z, atol=1e-6)
    # nor by what other folds would have chosen, but for luck: one row of news20 with 5 a class is a point or two
    assert main["after"] > main["before"] - 0.01 or (each < 20 and main["high"] >= 0)
    assert load(head).transform(X[:5]).shape[0] == 5 and page.stat().st_size > 5_000
    if name != "news20_minilm" and each >= 20:  # ten classes are too few to be sure of anything
        assert found["adapted"] and main["mean"] > 0.02


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_gain_holds_for_classes_that_were_never_met(name):
    """Adapted on half of the classes; the other half tells the truth."""
    X, y = some(name, 40)
    classes = np.random.default_rng(1).permutation(np.unique(y))
    known = np.isin(y, classes[: len(classes) // 2])
    outcome = adapt(X[known], y[known], heads=False)
    assert outcome.adapted
    fresh = X[~known].astype(np.float32)
    unit = fresh / np.linalg.norm(fresh, axis=1, keepdims=True)
    before, after = (retrieval(Z, y[~known]).mean()["map@r"] for Z in (unit, outcome.transform(fresh)))
    print(name, "unseen classes:", round(before, 4), round(after, 4), "told gain", outcome.main.difference)
    assert after - before > 0.5 * outcome.main.difference.mean > 0


@pytest.mark.parametrize("name", NAMES)
def test_pairs_alone(name):
    X, y = some(name, 20)
    i = np.flatnonzero(y[:-1] == y[1:])[::2]
    outcome = adapt(X, Pairs(i, i + 1, np.ones(len(i)), n=len(y)), heads=False)
    print(name, "pairs alone:", len(i), outcome.main.before, outcome.main.after, outcome.verdict)
    assert outcome.kind == "pairs" and outcome.main.difference.mean > -0.01
