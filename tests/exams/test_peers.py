"""Exams against other libraries, in environments of their own: an objective no worse. Run by `make test-all`."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from benchmarks.environments import run
from isometry import LMNN
from isometry.core.graph import target_neighbors
from isometry.spectral.impostors import Impostors

pytestmark = pytest.mark.slow

METRIC_LEARN = """
import sys, warnings
import numpy as np
from metric_learn import LMNN
warnings.simplefilter("ignore")
data = np.load(sys.argv[1])
learner = LMNN(n_neighbors=3, max_iter=1000, regularization=0.5, random_state=0).fit(data["X"], data["y"])
np.save(sys.argv[2], learner.components_)
"""


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_lmnn_objective_is_no_worse_than_metric_learns(load, tmp_path):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    run("metric-learn", METRIC_LEARN, str(tmp_path / "data.npz"), str(tmp_path / "L.npy"))
    theirs = np.load(tmp_path / "L.npy")
    objective = Impostors(X, y, target_neighbors(X, y, 3), 1.0, None)
    ours = LMNN(strength=1.0).fit(X, y)
    print(load.__name__, ours.objective_, objective.value(theirs, 0.5))
    assert ours.objective_ <= objective.value(theirs, 0.5) * (1 + 1e-6)
