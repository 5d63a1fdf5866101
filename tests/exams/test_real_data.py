"""Exams on real data sets, which lie outside the repository: set ISOMETRY_DATA, or put them in ../shared/data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA"),
]


ROW = r"^(\w+) +(0\.\d{4}|1\.0000) +(\[.*?\]) +([+-]\d\.\d{4})? *(\[.*?\])?"


def isometry(*arguments):
    command = [sys.executable, "-c", "from isometry.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["vehicle", "ionosphere", "glass"])
def test_csv_npz_and_parquet_give_the_same_numbers(name, tmp_path):
    import pandas as pd

    source = DATA / f"{name}.npz"
    with np.load(source, allow_pickle=False) as arrays:
        X, y, classes = arrays["X"], arrays["y"], arrays["classes"]
        names = arrays["feature_names"].astype(str) if "feature_names" in arrays else None
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])] if names is None else names)
    frame["label"] = classes[y]
    frame.to_csv(tmp_path / f"{name}.csv", index=False)
    frame.to_parquet(tmp_path / f"{name}.parquet")
    runs = [
        isometry("compare", path, *target, "--methods", "GMML,RCA,DCA,FisherML,LMNN", "--folds", 3)
        for path, target in (
            (source, ()),
            (tmp_path / f"{name}.csv", ("--target", "label")),
            (tmp_path / f"{name}.parquet", ("--target", "label")),
        )
    ]
    tables = []
    for run in runs:
        assert run.returncode == 0, run.stderr
        rows = re.findall(ROW, run.stdout, flags=re.MULTILINE)
        assert {r[0] for r in rows} >= {"Euclidean", "Covariance", "GMML", "RCA", "DCA", "FisherML", "LMNN"}, run.stdout
        tables.append(rows)
    assert tables[0] == tables[1] == tables[2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["banking77_minilm", "tissue_gene", "orl_faces"])
def test_closed_forms_survive_dead_dimensions_and_more_features_than_rows(name):
    from isometry import DCA, GMML, RCA, Covariance, FisherML
    from isometry.eval import knn_hits

    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        X, y = arrays["X"].astype(np.float32), arrays["y"]
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(X))[:2000]
    X, y = X[rows], y[rows]
    train = np.arange(len(X)) < 0.7 * len(X)
    plain = knn_hits(X[train], y[train], X[~train], y[~train], k=1).mean()
    best = 0.0
    for learner in (Covariance(shrinkage=0.1), FisherML(reg=1e-2), RCA(reg=1e-2), DCA(reg=1e-2), GMML(reg=0.1)):
        Z = learner.fit(X[train], y[train]).transform(X)
        assert np.isfinite(Z).all()
        best = max(best, knn_hits(Z[train], y[train], Z[~train], y[~train], k=1).mean())
    print(name, "Euclidean", plain, "best closed form", best)
    assert best >= plain - 0.02
