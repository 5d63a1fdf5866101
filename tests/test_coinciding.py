"""Samples that coincide: a scatter of theirs is 0 to rounding, and a metric must not be made of its rounding errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import (
    ANMM,
    IGML,
    KISSME,
    LFDA,
    OASIS,
    PLDA,
    RCA,
    RVML,
    SCML,
    XQDA,
    AutoMetric,
    DMLeig,
    FisherML,
    KernelLFDA,
    LLERegularizedML,
    RelativeML,
    Whitening,
    compare,
)
from isometry.core.linalg import SingularMatrixWarning, joint_range, scatter_range
from tests.conftest import make_blobs

X, Y = make_blobs()
CLASSES = X[np.searchsorted(np.sort(Y), Y)]  # all samples of a class in one place
TWO = X[Y % 2]  # so are all samples of two classes
ONE = np.zeros_like(X)  # all but one sample in one place
ONE[1, 1] = 1.0
PLACES = {"classes": CLASSES, "two points": TWO, "all but one": ONE}
LEARNERS = {
    "ANMM": ANMM(),
    "DMLeig": DMLeig(random_state=0),
    "KISSME": KISSME(),
    "KernelLFDA": KernelLFDA(random_state=0),
    "LFDA": LFDA(),
    "PLDA": PLDA(),
    "PLDA, EM": PLDA(estimator="em"),
    "SCML": SCML(random_state=0, max_iter=20),
    "Whitening": Whitening(within=True),
    "XQDA": XQDA(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_metric_that_tells_the_places_apart(name, places):
    Z = LEARNERS[name].fit(PLACES[places], Y).transform(PLACES[places])
    assert np.isfinite(Z).all() and np.ptp(Z, axis=0).max() > 0


@pytest.mark.parametrize(
    "learner",
    [
        LFDA(reg=1e-3),
        PLDA(reg=0.1),
        KISSME(reg=0.1),
        XQDA(reg=0.1),
        Whitening(within=True, reg=0.01),
        DMLeig(strength=1.0),
    ],
)
def test_that_nothing_varies_within_classes_is_said(learner):
    with pytest.warns(SingularMatrixWarning, match="nothing varies within classes"):
        learner.fit(CLASSES, Y)


def test_rounding_errors_beside_a_scatter_have_no_range():
    D, errors = np.diag([4.0, 0.0, 0.0]), 1e-17 * np.diag([1.0, -1.0, 3.0])
    for pair in ((D, errors), (errors, D)):
        assert_allclose(np.abs(joint_range(*pair)), [[1.0], [0.0], [0.0]], atol=1e-12)
    assert joint_range(D, 1e-9 * np.eye(3)).shape == (3, 3)  # small is not 0
    for empty in (lambda: joint_range(0 * D, 0 * D), lambda: scatter_range(0 * D)):
        with pytest.raises(ValueError, match="are all equal"):
            empty()


@pytest.mark.parametrize(
    "learner",
    [OASIS(random_state=0), RelativeML(structure="diagonal", penalty="frobenius", strength=1.0, random_state=0)],
)
def test_a_map_to_one_point_is_said(learner):
    """The one sample that differs should be near its class, which is where other classes are, too."""
    with pytest.warns(UserWarning, match=r"(OASIS|RelativeML) has learned a metric by which all 45 samples are at"):
        learner.fit(ONE, Y)


@pytest.mark.parametrize("fit", [lambda X: AutoMetric([RCA()]).fit(X, Y), lambda X: compare(X, Y, [RCA()])])
def test_equal_samples_are_not_compared(fit):
    with pytest.raises(ValueError, match="all samples are equal: X holds 45 times the same one"):
        fit(np.full_like(X, 3.7))


def test_a_penalty_that_outweighs_all_is_named():
    with pytest.warns(UserWarning, match="a penalty outweighs it"):
        RelativeML(structure="diagonal", reg=1e6, strength=1.0, random_state=0).fit(X, Y)


def test_the_few_rows_that_are_looked_at_first_may_be_equal():
    """Of 640 rows a few are probed; only one among the others differs, which is metric enough."""
    rows, y = np.zeros((640, 2)), np.arange(640) % 2
    rows[7] = 1.0
    assert FisherML(reg=0.1).fit(rows, y).transform(rows)[7].any()


def test_a_part_without_similar_pairs_is_no_part_to_try_a_strength_on():
    """One of two samples of the only class with two is held out: what is left has no similar pair."""
    learner = LLERegularizedML().fit(X[::15], [0, 0, 1])
    assert "not enough to learn from" in learner.reg_reason_ or "too little" in learner.reg_reason_


def test_a_part_of_equal_samples_is_no_part_to_try_a_strength_on():
    rows = np.zeros((20, 2))
    rows[3] = 1.0, 2.0
    learner = IGML().fit(rows, np.arange(20) % 2)
    assert np.isfinite(learner.components_).all() and learner.components_.any()


def test_landmarks_do_not_depend_on_the_names_of_classes():
    learner = RVML(points="landmarks", random_state=0)
    maps = [learner.fit(X, names[Y]).mahalanobis_ for names in (np.array(["a", "b", "c"]), np.array(["b", "c", "a"]))]
    assert_allclose(maps[0], maps[1], rtol=1e-8, atol=1e-12)
