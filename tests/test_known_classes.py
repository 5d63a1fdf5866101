"""A strength that is chosen for new classes, because nobody said what for, does no harm to known ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import isometry
from isometry import LMNN, Labels
from isometry.mixed import FEW_ROWS, FEW_ROWS_FOLDS, MixedMetric
from isometry.parameters import parameters
from isometry.strength import Choice
from isometry.trial import Aim, NeighborTrial, Split


@parameters
class Only(MixedMetric):
    """The metric of one feature, whatever the samples say."""

    _sees = (Labels,)

    feature: int = 0

    def _fit(self, X, side):
        self._store(np.eye(X.shape[1])[[self.feature]], X.dtype)


def spaced(n, blur):
    """24 classes at their distances in two features, the second of which is blurred."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 24
    return np.column_stack([y + 0.1 * rng.standard_normal(n), y + blur * rng.standard_normal(n)]), y


def sparing(feature, share=1.0, n=144, blur=0.3):
    X, y = spaced(n, blur)
    learner = Only(feature=feature)
    learner.n_features_in_ = 2
    choice = Choice(share, 0.0, {}, "gained much")
    return choice, learner._sparing(choice, X, Labels(y), {})


@pytest.mark.parametrize("n", [144, FEW_ROWS + 4])
def test_a_metric_that_serves_known_classes_as_well_is_kept(n):
    choice, found = sparing(feature=0, n=n)
    assert found is choice


def test_of_a_metric_that_harms_known_classes_less_is_mixed_in():
    _, found = sparing(feature=1)
    assert 0 < found.share < 1
    assert found.reason.startswith("gained much (a share of 1 is best for new classes, where known classes lose 0.")
    choice, again = sparing(feature=1, share=found.share)
    assert again is choice  # so much of it does no harm
    X, y = spaced(144, 0.3)
    assert score(X[:, 1:], y) < score(X, y) - 0.1  # alone it does


def test_if_every_share_harms_known_classes_euclidean_distance_is_kept():
    _, found = sparing(feature=1, blur=0.7)
    assert found.share == 0
    assert found.reason.startswith("Euclidean distance: a share of 1 gained much for new classes, where known classes")


def score(X, y):
    """Of leave-one-out votes of three."""
    return cross_val_score(KNeighborsClassifier(3), X, y, cv=LeaveOneOut()).mean()


def test_how_many_folds_and_by_which_value(monkeypatch):
    seen = []
    monkeypatch.setattr(NeighborTrial, "values", spy(NeighborTrial.values, seen))
    sparing(feature=0)
    folds, scores = {id(split) for _, split in seen}, {trial.aim.score for trial, _ in seen}
    assert (len(folds), scores) == (FEW_ROWS_FOLDS, {"vote"})


def spy(values, seen):
    def spied(self, D, split):
        seen.append((self, split))
        return values(self, D, split)

    return spied


def test_a_vote_of_three_is_that_of_k_nearest_neighbours(rng):
    """With three different classes among them, the first neighbour decides."""
    codes, D = rng.integers(4, size=40), rng.random((15, 25))
    split = Split(np.arange(25), np.arange(25, 40), np.arange(25))
    expected = []
    for row, own in zip(D, codes[25:], strict=True):
        near = codes[:25][np.argsort(row)[:3]]
        votes = np.bincount(near)
        expected.append((votes.argmax() if votes.max() > 1 else near[0]) == own)
    found = NeighborTrial(codes, [split], aim=Aim("vote")).values(D, split)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("protocol", ["open", "closed", None])
def test_who_says_what_the_metric_is_for_gets_what_is_best_for_that(protocol, monkeypatch):
    asked = []
    monkeypatch.setattr(LMNN, "_sparing", lambda self, choice, *more: asked.append(choice) or choice)
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(24), 6)
    X = np.column_stack(
        [rng.standard_normal((24, 4))[y] + 0.2 * rng.standard_normal((144, 4)), rng.normal(size=(144, 6))]
    )
    if protocol is None:
        model = LMNN(random_state=0).fit(X, y)
    else:
        with isometry.aiming_at("map@r", protocol=protocol):
            model = LMNN(random_state=0).fit(X, y)
    assert model.strength_ > 0
    assert len(asked) == (protocol is None)
