"""k-nearest-neighbour votes against a count by hand, and against scikit-learn where no vote is tied."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier

from isometry.eval import balanced_accuracy, knn_hits, knn_predict, loo_hits
from isometry.supervision import Labels, Pairs


def slow_predict(Z_train, y_train, Z_test, k, leave=None):
    predicted = []
    for t, z in enumerate(Z_test):
        ranked = sorted((((z - g) ** 2).sum(), i) for i, g in enumerate(Z_train) if leave is None or i != leave[t])
        voters = [y_train[i] for _, i in ranked[:k]]
        votes = Counter(voters)
        predicted.append(next(c for c in voters if votes[c] == max(votes.values())))
    return predicted


def grid_points(seed, n, values=3):
    rng = np.random.default_rng(seed)
    return rng.integers(0, values, size=(n, 2)).astype(float), rng.choice(["ant", "bee", "cow", "dog"], size=n)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 8])
def test_votes_with_ties_and_duplicates(k):
    (Z, y), (T, t) = grid_points(0, 40), grid_points(1, 25)
    expected = slow_predict(Z, y, T, k)
    assert_array_equal(knn_predict(Z, y, T, k), expected)
    assert_array_equal(knn_hits(Z, y, T, t, k), np.array(expected) == t)
    assert 0 < knn_hits(Z, y, T, t, k).sum() < len(t)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_leave_one_out(k):
    Z, y = grid_points(2, 40)
    assert_array_equal(loo_hits(Z, y, k), np.array(slow_predict(Z, y, Z, k, leave=range(40))) == y)


def test_tied_vote_goes_to_the_class_of_the_nearer_neighbour():
    Z, y = np.array([[1.0], [2.0], [3.0], [4.0]]), ["near", "far", "far", "near"]
    assert_array_equal(knn_predict(Z, y, np.array([[0.0]]), 4), ["near"])  # 2 : 2
    assert_array_equal(knn_predict(Z, y, np.array([[0.0]]), 3), ["far"])  # 1 : 2
    assert_array_equal(knn_predict(Z, y, np.array([[0.0]]), 2), ["near"])  # 1 : 1


def test_agrees_with_scikit_learn_where_no_vote_is_tied():
    rng = np.random.default_rng(3)
    Z, y, T = rng.standard_normal((90, 3)), rng.integers(0, 2, 90), rng.standard_normal((60, 3))
    assert_array_equal(knn_predict(Z, y, T, 3), KNeighborsClassifier(3).fit(Z, y).predict(T))


def test_unlabelled_rows_take_no_part():
    Z, y = grid_points(4, 40, values=9)
    T, t = grid_points(5, 20, values=9)
    hidden, hidden_t = y.copy(), t.copy()
    hidden[::4], hidden_t[::3] = "?", "?"
    known, known_t = hidden != "?", hidden_t != "?"
    labels, labels_t = Labels(hidden, unlabelled="?"), Labels(hidden_t, unlabelled="?")
    assert_array_equal(loo_hits(Z, labels, 3), loo_hits(Z[known], y[known], 3))
    assert_array_equal(knn_predict(Z, labels, T, 3), knn_predict(Z[known], y[known], T, 3))
    assert_array_equal(knn_hits(Z, labels, T, labels_t, 3), knn_hits(Z[known], y[known], T[known_t], t[known_t], 3))


def test_cut_labels_are_compared_by_class_not_by_code():
    Z, y = np.arange(6.0)[:, None], Labels(["a", "b", "b", "c", "c", "c"])
    train, test = y[[1, 3]], y[[2, 0, 4]]  # b and c have codes 0 and 1 here, 1 and 2 there
    assert_array_equal(knn_hits(Z[[1, 3]], train, Z[[2, 0, 4]], test), [True, False, True])
    assert_array_equal(knn_hits(Z[[1, 3]], train, Z[[2, 0, 4]], ["b", "a", "c"]), [True, False, True])


def test_a_class_that_was_never_seen_is_never_hit():
    Z = np.array([[0.0], [1.0]])
    assert_array_equal(knn_hits(Z, [5, 6], Z, [7, 6]), [False, True])


def test_balanced_accuracy():
    y = np.array(["a"] * 6 + ["b"] * 2)
    hits = np.array([1, 1, 1, 0, 0, 0, 1, 0], dtype=bool)
    assert balanced_accuracy(hits, y) == pytest.approx((3 / 6 + 1 / 2) / 2)
    hits[-1] = True
    predicted = np.where(hits, y, np.where(y == "a", "b", "a"))
    assert balanced_accuracy(hits, y) == pytest.approx(balanced_accuracy_score(y, predicted)) == pytest.approx(0.75)
    labels = Labels([-1, 3, 3, -1, 8], unlabelled=-1)
    assert balanced_accuracy(np.array([True, False, True]), labels) == pytest.approx(0.75)


def test_errors():
    Z = np.eye(4)
    with pytest.raises(ValueError, match="Z_train has 4 rows but there are 3 labels"):
        knn_predict(Z, [0, 1, 2], Z)
    with pytest.raises(ValueError, match="3 hits but 4 labelled rows"):
        balanced_accuracy(np.ones(3), [0, 0, 1, 1])
    with pytest.raises(TypeError, match="y holds pairs: give labels"):
        loo_hits(Z, Pairs([0], [1], [True], n=4))
    with pytest.raises(ValueError, match="no row of Z has a label"):
        loo_hits(Z, Labels.from_codes(np.full(4, -1)))
