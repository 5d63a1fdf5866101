"""Rows that a trial holds out are mapped as new rows are: by a kernel map that has not met them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import polynomial_kernel

from isometry import GMLVQ, KDCA, KISSME, LMNN, NCM, RCA, Euclidean, Kernelized, KernelLMNN, Labels, RankOneMMC
from isometry.core.distance import sqdist
from isometry.kernelized import HeldOut, kernel_coordinates
from isometry.trial import Split, as_new, trial_of
from tests.test_strength import planted

GAMMA = 0.05


def coordinates(X, kernel, center, landmarks=None):
    learner = Kernelized(Euclidean(), kernel, gamma=GAMMA, center=center, landmarks=landmarks, random_state=0)
    phi = kernel_coordinates(learner, X, variance=1.0, max_rank=None)
    return phi, phi(X)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "linear"])
def test_a_row_held_out_is_where_a_new_row_would_be(kernel, center):
    """Its distances to the others are those of a metric that was made of the others alone."""
    X, _ = planted(n=50)
    learn, held = np.arange(35), np.arange(35, 50)
    phi, Z = coordinates(X, kernel, center)
    H = HeldOut(phi, X, Z, center, np.arange(50))(learn, held)
    fitted = Kernelized(Euclidean(), kernel, gamma=GAMMA, center=center).fit(X[learn])
    expected = sqdist(fitted.transform(X[held]), fitted.transform(X[learn]))
    assert_allclose(sqdist(H, Z[learn]), expected, rtol=0, atol=1e-6 * expected.max())
    assert_allclose(sqdist(H), sqdist(fitted.transform(X[held])), rtol=0, atol=1e-6 * expected.max())


def test_a_precomputed_kernel_is_held_out_too():
    X, _ = planted(n=40)
    K = polynomial_kernel(X, degree=2)
    learn, held = np.arange(10, 40), np.arange(10)
    phi, Z = coordinates(K, "precomputed", True)
    H = HeldOut(phi, K, Z, True, np.arange(40))(learn, held)
    fitted = Kernelized(Euclidean(), "precomputed", center=True).fit(K[np.ix_(learn, learn)])
    maps = [fitted.transform(K[np.ix_(rows, learn)]) for rows in (held, learn)]
    expected = sqdist(*maps)
    assert_allclose(sqdist(H, Z[learn]), expected, rtol=0, atol=1e-6 * expected.max())


def test_the_neighbours_of_euclidean_distance_stay_the_same():
    """Without the part of its image beyond the span of the others, all distances to these lose the same amount."""
    X, _ = planted(n=60)
    learn, held = np.arange(45), np.arange(45, 60)
    phi, Z = coordinates(X, "rbf", True)
    H = HeldOut(phi, X, Z, True, np.arange(60))(learn, held)
    lost = sqdist(Z[held], Z[learn]) - sqdist(H, Z[learn])
    assert lost.min() > 0
    assert_allclose(lost, np.repeat(lost[:, :1], 45, axis=1), rtol=1e-6)
    assert_allclose(sqdist(H, Z[learn]).argsort(axis=1)[:, :5], sqdist(X[held], X[learn]).argsort(axis=1)[:, :5])


def steep(n=150):
    """Few features with long tails: eigenvalues of the kernel go on down to where they count as zero."""
    return np.random.default_rng(0).standard_t(3, size=(n, 3))


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_old_samples_are_mapped_as_they_were_fitted_also_by_the_last_components(kernel):
    """A centred eigenvector sums to 0; the rounding errors of its sum, divided by √l, were as large as its images."""
    X = steep()
    phi, Z = coordinates(X, kernel, True)
    assert kernel != "rbf" or phi.spectrum[-1] < 1e-8 * phi.spectrum[0]
    assert_allclose(Z, phi.fitted(X), rtol=0, atol=1e-4 * np.sqrt(phi.spectrum[-1]))


def test_neighbours_stay_the_same_where_the_spectrum_falls_to_nothing():
    X = steep()
    learn, held = np.arange(110), np.arange(110, 150)
    phi, Z = coordinates(X, "rbf", True)
    D = sqdist(HeldOut(phi, X, Z, True, np.arange(150))(learn, held), Z[learn])
    true = sqdist(Z[held], Z[learn])
    assert D.max() <= 1.01 * true.max()
    assert_allclose(np.take_along_axis(true, D.argsort(axis=1), axis=1), np.sort(true, axis=1), rtol=0, atol=0.02)


def test_of_landmarks_those_held_out_do_not_span_and_rows_without_a_label_do():
    X, _ = planted(n=60)
    phi, Z = coordinates(X, "rbf", True, landmarks=20)
    kept = np.arange(0, 60, 2)  # the others have no label
    learn, held = np.arange(0, 20), np.arange(20, 30)
    H = HeldOut(phi, X, Z, True, kept)(learn, held)
    marks = [row for row in phi.rows if row % 2 or row < 40]
    assert 2 < len(marks) < 20
    fitted = Kernelized(Euclidean(), "rbf", gamma=GAMMA, center=True).fit(X[marks])
    expected = sqdist(fitted.transform(X[kept[held]]), fitted.transform(X[marks]))
    assert_allclose(sqdist(H, Z[marks]), expected, rtol=0, atol=1e-6 * expected.max())


def test_only_rows_held_out_are_moved_and_only_where_coordinates_are_of_the_samples():
    X, y = planted(n=40)
    split = trial_of(X, Labels(y)).splits[0]
    assert as_new(X, split, None) is X

    class Outside:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

        def __call__(self, learn, held):
            return np.full((len(held), X.shape[1]), 6.0)

    assert as_new(X, split, Outside(39)) is X  # of other rows
    seen = as_new(X, Split(*split), Outside(40), 2.0)
    assert (seen[split.held] == 3).all()
    assert_allclose(seen[split.learn], X[split.learn])


@pytest.mark.parametrize("make", [KernelLMNN, KDCA], ids=lambda make: make.__name__)
def test_what_a_trial_promises_new_rows_get(make):
    """The gain on what was held out is near the gain on new samples; it was nothing when held-out rows spanned."""
    X, y = planted()
    Z, labels = planted(1)
    model = make().fit(X, y)
    path = getattr(model.learner_, "strength_path_", None) or model.learner_.reg_path_
    D = {"learned": sqdist(model.transform(Z), model.transform(X)), "plain": sqdist(Z, X)}
    share = {name: (y[d.argsort(axis=1)[:, :3]] == labels[:, None]).mean() for name, d in D.items()}
    gain = share["learned"] - share["plain"]
    error = path["error"][path["gain"].argmax()]
    assert gain > 0.3
    assert abs(path["gain"].max() - gain) < 4 * error  # of two samples, each with such an error


def test_a_fit_leaves_nothing_of_it_behind():
    X, y = planted(n=60)
    y = np.where(np.arange(60) % 5 == 0, -1, y)
    for learner in (RCA(), LMNN(random_state=0)):
        model = Kernelized(learner, center=True, variance=0.95).fit(X, y)
        assert "_outside" not in vars(model.learner_)
        assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize(
    "method", [KISSME(), RankOneMMC(), LMNN(max_iter=5)], ids=["of a ridge", "of a share", "of a search"]
)
@pytest.mark.parametrize("landmarks", [None, 80])
def test_what_the_kernel_leaves_out_counts_for_euclidean_distance(method, landmarks):
    """Without a gain the neighbours of new rows are those of the samples, though a third of the components is cut."""
    X, y = planted(n=120)
    y = np.random.default_rng(3).permutation(y)
    learner = Kernelized(
        method, gamma=GAMMA, center=True, variance=0.6, max_rank=0.5, landmarks=landmarks, random_state=0
    )
    metric = learner.fit(X, y)
    whole = Kernelized(Euclidean(), gamma=GAMMA, center=True, landmarks=landmarks, random_state=0).fit(X)
    assert "Euclidean distance" in getattr(
        metric.learner_, "reg_reason_", getattr(metric.learner_, "strength_reason_", "")
    )
    new = planted(seed=1, n=40)[0]
    expected = sqdist(whole.transform(new), whole.transform(X))
    found = sqdist(metric.transform(new), metric.transform(X))
    assert_allclose(found / found.mean(), expected / expected.mean(), rtol=0, atol=1e-8)
    if landmarks is None:
        assert (found.argsort(axis=1)[:, :5] == sqdist(new, X).argsort(axis=1)[:, :5]).all()
    assert metric.learner_.transform(metric._phi(new)).shape == metric.transform(new).shape


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_a_mixture_in_feature_space_is_one_with_all_of_it(share):
    """(1 − share) |φ − φ'|² / c₀ + share d²/c₁ with all components in φ, and the metric of the leading ones in d."""
    X, y = planted(n=60)
    options = {"gamma": GAMMA, "center": True, "variance": 0.6}
    plain = sqdist(Kernelized(Euclidean(), gamma=GAMMA, center=True).fit(X).transform(X))
    cut = sqdist(Kernelized(Euclidean(), **options).fit(X).transform(X))
    learned = sqdist(Kernelized(RankOneMMC(strength=1.0), **options).fit(X, y).transform(X))
    found = sqdist(Kernelized(RankOneMMC(strength=share), **options).fit(X, y).transform(X))
    assert abs(cut / cut.mean() - plain / plain.mean()).max() > 0.1  # so that it matters which is mixed
    expected = (1 - share) * plain / plain.mean() + share * learned / learned.mean()
    assert_allclose(found / found.mean(), expected, rtol=0, atol=1e-8)


def test_fewer_dimensions_begin_at_the_leading_components():
    """Components that were left out have no part where so few dimensions are asked for."""
    X, y = planted(n=60)
    y = np.random.default_rng(3).permutation(y)
    metric = Kernelized(KISSME(2), gamma=GAMMA, center=True, variance=0.9).fit(X, y)
    leading = Kernelized(Euclidean(), gamma=GAMMA, center=True, max_rank=2).fit(X).transform(X)
    assert metric.learner_.share_ == 0 and metric.basis_.shape[1] < 59
    found, expected = sqdist(metric.transform(X)), sqdist(leading)
    assert_allclose(found / found.mean(), expected / expected.mean(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("method", [NCM(strength=0.5, random_state=0), GMLVQ(strength=0.5, max_iter=50)], ids=repr)
def test_centres_of_classes_have_a_place_among_all_components(method):
    """In those that the metric does not see they are 0, which leaves all of them equally far from a sample there."""
    X, y = planted(n=90, noise=4)
    metric = Kernelized(method, gamma=GAMMA, center=True, variance=0.9).fit(X, y)
    inner, Z = metric.learner_, metric._phi(X)
    centres = inner.centroids_ if isinstance(inner, NCM) else inner.prototypes_
    beyond = ~centres.any(axis=0)
    assert centres.shape[1] == Z.shape[1] and beyond.any() and Z[:, beyond].any()
    found = inner.predict(Z)
    assert np.array_equal(found, inner.predict(np.where(beyond, 0.0, Z))) and np.mean(found == y) > 0.8
