"""Does LMNN end at the minimum of its objective on real data, raw or standardised, where it says so?"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from isometry import LMNN
from tests.exams.test_real_data import DATA

pytestmark = pytest.mark.slow

EMBEDDED = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
SHARED = ("glass", "ionosphere", "vehicle", "ecoli", "pima", "dermatology", "balance", "segment")


@pytest.mark.parametrize("scale", [False, True], ids=["raw", "standardised"])
@pytest.mark.parametrize("name", [*EMBEDDED, *SHARED])
def test_default_objective_is_the_minimum_or_a_warning_says_so(name, scale):
    if name in EMBEDDED:
        X, y = EMBEDDED[name](return_X_y=True)
    elif not DATA.is_dir():
        pytest.skip(f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA")
    else:
        with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
            X, y = arrays["X"], arrays["y"]
    X, y = X[:1000].astype(np.float64), y[:1000]
    if scale:
        X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        learner = LMNN(strength=1.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        longer = LMNN(tol=1e-8, max_iter=5000, strength=1.0).fit(X, y)
    excess = learner.objective_ / longer.objective_ - 1
    print(f"{name}: {learner.objective_:.6g}, {excess:.1e} above the longest search; proven {learner.gap_:.1e}")
    assert learner.converged_ == (not said)
    assert not learner.converged_ or excess <= 1e-3
    assert longer.objective_ >= (1 - learner.gap_) * learner.objective_
