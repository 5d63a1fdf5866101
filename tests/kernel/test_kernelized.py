"""Kernelized: any learner in the feature space of any kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import isometry
from isometry import DCA, GMML, LLMA, NCA, Euclidean, FisherML, Kernelized, Labels, LLERegularizedML, Pairs
from isometry.core.distance import sqdist
from isometry.registry import all_methods

KERNELS = {
    "linear": (lambda x, y: x @ y, {}),
    "rbf": (lambda x, y: np.exp(-0.3 * np.sum((x - y) ** 2)), {"gamma": 0.3}),
    "poly": (lambda x, y: (0.3 * (x @ y) + 2.0) ** 2, {"gamma": 0.3, "degree": 2, "coef0": 2.0}),
    "laplacian": (lambda x, y: np.exp(-0.3 * np.sum(np.abs(x - y))), {"gamma": 0.3}),
    "cosine": (lambda x, y: x @ y / np.sqrt((x @ x) * (y @ y)), {}),
}


def rbf(x, y):
    return float(np.exp(-0.3 * np.sum((x - y) ** 2)))


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_distances_are_those_of_the_feature_space(data, gram, distances, name, center):
    X, _, new = data
    k, params = KERNELS[name]
    K, N = gram(k, X), gram(k, new, X)
    model = Kernelized(Euclidean(), name, center=center, **params).fit(X)
    expected = np.diag(K)[:, None] + np.diag(K) - 2 * K
    assert_allclose(distances(model, X), expected, atol=1e-9 * expected.max())
    H = np.eye(25) - center / 25
    pinv, rows = np.linalg.pinv(H @ K @ H, rcond=1e-9, hermitian=True), range(len(new))
    # a new image is seen through its projection on the span of the images, or of their differences if centred
    seen = np.array([[(N[i] - N[j]) @ H @ pinv @ H @ (N[i] - N[j]) for j in rows] for i in rows])
    assert_allclose(distances(model, new), seen, atol=1e-6 * seen.max())


def test_a_function_and_a_precomputed_kernel_equal_the_name(data, gram, distances):
    X, y, new = data
    named = Kernelized(DCA(reg=1e-3), "rbf", gamma=0.3).fit(X, y)
    function = Kernelized(DCA(reg=1e-3), rbf).fit(X, y)
    matrix = Kernelized(DCA(reg=1e-3), "precomputed").fit(gram(rbf, X), y)
    expected = distances(named, new)
    assert_allclose(distances(function, new), expected, rtol=1e-7)
    assert_allclose(distances(matrix, gram(rbf, new, X)), expected, rtol=1e-7)


def test_landmarks_are_nystroem(data, gram, distances):
    X, y, new = data
    model = Kernelized(Euclidean(), gamma=0.3, landmarks=9, random_state=3).fit(X)
    marks = model.landmarks_
    assert len(marks) == 9 and all(any(np.array_equal(m, x) for x in X) for m in marks)
    every, N = np.r_[X, new], gram(rbf, np.r_[X, new], marks)
    K = N @ np.linalg.inv(gram(rbf, marks)) @ N.T  # the kernel that Nyström sees
    assert_allclose(distances(model, every), np.diag(K)[:, None] + np.diag(K) - 2 * K, atol=1e-9)
    all_of_them = Kernelized(GMML(reg=0.1), gamma=0.3, landmarks=99).fit(X, y)
    assert_allclose(distances(all_of_them, new), distances(Kernelized(GMML(reg=0.1), gamma=0.3).fit(X, y), new))


def test_dual_coefficients_are_the_map(data, gram):
    X, y, new = data
    N = gram(rbf, new, X)
    plain = Kernelized(DCA(reg=1e-3), gamma=0.3).fit(X, y)
    assert_allclose(plain.transform(new), N @ plain.dual_coef_.T, atol=1e-9)
    model = Kernelized(DCA(reg=1e-3), gamma=0.3, center=True).fit(X, y)
    assert_allclose(model.transform(new), (N - model.kernel_means_) @ model.dual_coef_.T, atol=1e-9)
    assert_allclose(model.kernel_means_, gram(rbf, X).mean(axis=0), rtol=1e-12)
    assert_allclose(model.dual_coef_.sum(axis=1), 0, atol=1e-9)  # so that centring the rows is free


def test_a_learner_that_is_not_linear_works_on_the_coordinates(data):
    X, y, new = data
    model = Kernelized(LLMA(n_neighbors=4), gamma=0.3, center=True, max_rank=4).fit(X, y)
    assert model.dual_coef_ is None
    F, G = model._phi(X), model._phi(new)
    assert_allclose(model.transform(new), LLMA(n_neighbors=4).fit(F, y).transform(G), atol=1e-9)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_variance_keeps_the_fewest_components_with_that_share(data, gram, share):
    X = data[0]
    l = np.linalg.eigvalsh(centred(gram(rbf, X)))[::-1]
    r = next(r for r in range(1, 26) if l[:r].sum() >= share * l.sum())
    model = Kernelized(Euclidean(), gamma=0.3, center=True, variance=share).fit(X)
    assert_allclose(model.spectrum_, l[:r], rtol=1e-9)
    assert_allclose(model.transform(X).T @ model.transform(X), np.diag(l[:r]), atol=1e-9)


def test_auto_variance_keeps_all_of_a_flat_spectrum(data):
    """95 % of the trace if four fifths of the components carry it, else near samples come to lie nearer to the mean."""
    X = data[0]
    for gamma, flat in ((5.0, True), (0.3, False)):
        l = np.linalg.eigvalsh(centred(np.exp(-gamma * sqdist(X))))[::-1][:-1]  # the last is 0
        r = next(r for r in range(1, 25) if l[:r].sum() >= 0.95 * l.sum())
        assert (r > 0.8 * 24) == flat
        model = Kernelized(Euclidean(), gamma=gamma, center=True, variance="auto").fit(X)
        assert len(model.spectrum_) == (24 if flat else r)
    # images of far samples are nearly orthogonal: the kernel's Euclidean distance is that of X
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(30, 60)), rng.normal(size=(20, 60))
    model = Kernelized(Euclidean(), center=True, variance="auto").fit(A)
    near = sqdist(model.transform(B), model.transform(A)).argmin(axis=1)
    assert (near == sqdist(B, A).argmin(axis=1)).all()


@pytest.mark.parametrize("max_rank, kept", [(3, 3), (0.25, 6), (1e-9, 1), (500, 25)])
def test_max_rank_is_a_number_or_a_share(data, max_rank, kept):
    model = Kernelized(Euclidean(), gamma=0.3, max_rank=max_rank).fit(data[0])
    assert model.basis_.shape == (25, kept) and model.transform(data[2]).shape == (6, kept)


def test_components_are_capped_at_the_rank(data):
    X, y, _ = data
    model = Kernelized(NCA(9, strength=1.0), kernel="linear").fit(X, y)
    assert model.transform(X).shape == (25, 3) and model.learner.n_components == 9


def test_a_common_offset_hides_no_direction(distances):
    """The offset makes the kernel's largest eigenvalue 10¹² times that of the direction that matters."""
    X = np.random.default_rng(1).standard_normal((30, 2)) * [1.0, 1e-2] + [1e4, 0.0]
    expected = (X[:, None, 1] - X[None, :, 1]) ** 2
    got = distances(Kernelized(Euclidean(), "linear").fit(X), X) - (X[:, None, 0] - X[None, :, 0]) ** 2
    assert_allclose(got, expected, atol=1e-2 * expected.max())


def test_wide_data_equal_the_linear_method(distances):
    """d ≫ n: the same metric from an n × n problem."""
    rng = np.random.default_rng(2)
    y = np.arange(24) % 3
    X, new = rng.standard_normal((24, 300)) + rng.standard_normal((3, 300))[y], rng.standard_normal((5, 300))
    for learner in (
        FisherML(2, constraint="orthonormal", reg=1e-6),
        FisherML(2, constraint="trace", reg=1e-6),
        DCA(reg=0.1),
    ):
        model = Kernelized(learner, "linear", center=True).fit(X, y)
        assert model.basis_.shape == (24, 23)
        expected = distances(clone(learner).fit(X, y), new)
        assert_allclose(distances(model, new), expected, rtol=1e-6, atol=1e-9 * expected.max())


def test_pairs_are_passed_on(data, distances):
    X, y, new = data
    side = Labels(y)
    pairs = Pairs.from_edges(side.similar, side.dissimilar, len(y))
    A, B = (Kernelized(GMML(reg=0.1), gamma=0.3).fit(X, s) for s in (y, pairs))
    assert_allclose(distances(A, new), distances(B, new), rtol=1e-8)
    with pytest.raises(TypeError, match="NCA learns from labels"):
        Kernelized(NCA(strength=1.0)).fit(X, pairs)
    with pytest.raises(ValueError, match="at least 2 classes"):
        Kernelized(GMML(reg=0.0)).fit(X, np.zeros(25))


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_unlabelled_rows_span_the_space_but_teach_nothing(data, gram, distances, kernel):
    X, y, _ = data
    known = np.arange(25) % 3 > 0
    table = gram(rbf, X) if kernel == "precomputed" else X
    side = Labels(np.where(known, y, -1), unlabelled=-1)
    model = Kernelized(GMML(reg=0.1), kernel, gamma=0.3).fit(table, side)
    F = model._phi(table)
    assert F.shape == (25, 25)
    expected = distances(GMML(reg=0.1).fit(F[known], y[known]), F)
    assert_allclose(distances(model, table), expected, atol=1e-8 * expected.max())
    semi = Kernelized(LLERegularizedML(2, reg=1.0), gamma=0.3, center=True).fit(X, np.where(known, y, -1))
    expected = distances(LLERegularizedML(2, reg=1.0).fit(semi._phi(X), np.where(known, y, -1)), semi._phi(X))
    assert_allclose(distances(semi, X), expected, rtol=1e-5, atol=1e-9 * expected.max())


def test_parameters_reach_the_learner(data):
    X, y, _ = data
    model = Kernelized(GMML(reg=0.1), gamma=0.3)
    assert model.get_params()["learner__reg"] == 0.1
    twin = clone(model).set_params(learner__reg=2.0, gamma=0.7)
    assert twin.learner.reg == 2.0 and model.learner.reg == 0.1
    assert_allclose(twin.fit(X, y).transform(X), Kernelized(GMML(reg=2.0), gamma=0.7).fit(X, y).transform(X))
    grid = {"kernelized__learner__reg": [0.01, 1.0], "kernelized__gamma": [0.1, 1.0]}
    search = GridSearchCV(make_pipeline(Kernelized(GMML(reg=0.0)), KNeighborsClassifier(1)), grid, cv=2).fit(X, y)
    assert len(search.cv_results_["params"]) == 4 and search.best_score_ > 1 / 3


def test_cross_validation_cuts_both_sides_of_a_precomputed_kernel(data, gram):
    X, y, _ = data
    scores = cross_val_score(
        make_pipeline(Kernelized(DCA(reg=0.1), "precomputed"), KNeighborsClassifier(1)), gram(rbf, X), y, cv=3
    )
    same = cross_val_score(make_pipeline(Kernelized(DCA(reg=0.1), gamma=0.3), KNeighborsClassifier(1)), X, y, cv=3)
    assert_allclose(scores, same)


def test_output_names(data):
    pytest.importorskip("pandas")
    X, y, _ = data
    frame = Kernelized(DCA(reg=1e-3)).set_output(transform="pandas").fit_transform(X, y)
    assert list(frame.columns) == ["kernelized0", "kernelized1"]


@pytest.mark.parametrize(
    "params",
    [{"gamma": 0.3}, {"kernel": "precomputed"}, {"landmarks": 7, "random_state": 0}, {"center": True, "variance": 0.9}],
)
def test_save_and_load(data, gram, tmp_path, params):
    X, y, new = data
    if params.get("kernel") == "precomputed":
        X, new = gram(rbf, X), gram(rbf, new, X)
    for learner in (DCA(reg=1e-3), LLMA(n_neighbors=4, tol=1e-3)):
        model = Kernelized(learner, **params).fit(X, y)
        isometry.save(model, tmp_path / "m.safetensors")
        again = isometry.load(tmp_path / "m.safetensors")
        assert repr(again) == repr(model)
        assert hasattr(again, "learner_") == (model.dual_coef_ is None)  # a linear learner is in the coefficients
        assert_allclose(again.transform(new), model.transform(new), rtol=0, atol=0)


def test_blocks_of_rows_change_nothing(data):
    X, y, _ = data
    model = Kernelized(DCA(reg=1e-3), center=True).fit(X, y)
    whole = model.transform(X)
    with config_context(working_memory=1e-3):  # a kilobyte: two rows at a time
        assert_allclose(model.transform(X), whole, rtol=1e-12)


def test_how_the_learner_ended_is_told(data):
    X, y, _ = data
    model = Kernelized(NCA(2, reg=1e-2, strength=1.0)).fit(X, y)
    assert model.n_iter_ == model.learner_.n_iter_ >= 1 and model.converged_
    assert_allclose(model.history_, model.learner_.history_)
    assert not hasattr(Kernelized(DCA(reg=1e-3)).fit(X, y), "n_iter_")


def test_a_fit_that_fails_in_the_learner_keeps_the_last_metric(data):
    X, y, _ = data
    model = Kernelized(DCA(reg=1e-3)).fit(X, y)
    before = model.transform(X)
    with pytest.raises(ValueError, match="algorithm='no'"):
        model.set_params(learner__algorithm="no").fit(2 * X[:20], y[:20])
    assert_allclose(model.transform(X), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"kernel": "no"}, "kernel='no' is unknown; expected a function"),
        ({"kernel": "sigmoid", "coef0": -3.0}, "not positive semi-definite"),
        ({"variance": 0.0}, r"variance=0.0 must lie in \(0, 1\]"),
        ({"max_rank": 0}, "max_rank=0 must be positive"),
        ({"landmarks": 0}, "landmarks=0 must be at least 1"),
        ({"kernel": "precomputed"}, "must be square"),
    ],
)
def test_wrong_parameters_are_named(data, params, message):
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        Kernelized(DCA(reg=1e-8), **params).fit(X, y)


def test_what_is_no_kernel_or_no_learner_is_refused(data, gram):
    X, y, _ = data
    K = gram(rbf, X)
    with pytest.raises(ValueError, match="not positive semi-definite: its eigenvalues go from -"):
        Kernelized(DCA(reg=1e-8), "precomputed").fit(-K, y)
    with pytest.raises(ValueError, match="must be symmetric"):
        Kernelized(DCA(reg=1e-8), "precomputed").fit(np.triu(K), y)
    with pytest.raises(ValueError, match="do not go with a precomputed kernel"):
        Kernelized(DCA(reg=1e-8), "precomputed", landmarks=5).fit(K, y)
    with pytest.raises(ValueError, match=r"one point of the kernel's feature space: nothing can be learned$"):
        Kernelized(DCA(reg=1e-8), "rbf", gamma=1e-20).fit(X, y)
    with pytest.raises(ValueError, match="kernel='chi2' is for counts and shares, but X holds negative numbers"):
        Kernelized(DCA(reg=1e-8), "chi2").fit(X, y)
    with pytest.raises(TypeError, match="learner must be a metric learner such as GMML"):
        Kernelized(LinearDiscriminantAnalysis()).fit(X, y)


@pytest.mark.parametrize("method", all_methods(kind="estimator", family="kernel"), ids=lambda m: m.key)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_large_offset_changes_nothing(data, distances, method):
    """Also of one column alone. Without an origin amid the samples, the kernel has negative eigenvalues there."""
    X, y, new = data
    offset = np.array([0.0, 2.0**30, -(2.0**20)])
    X, new = X + offset - offset, new + offset - offset  # now the offset can be added without rounding
    learner = method.example()
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    near, tol = distances(learner.fit(X, y), new), 1e-3 if "iterative" in method.traits else 1e-7
    assert_allclose(distances(learner.fit(X + offset, y), new + offset), near, atol=tol * near.max())


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kernel", ["linear", "laplacian", "rbf"])
def test_a_kernel_of_differences_is_taken_about_the_mean(data, distances, kernel, center):
    X, y, new = data
    offset = np.array([2.0**30, 0.0, 2.0**30])
    X, new = X + offset - offset, new + offset - offset
    learner = Kernelized(GMML(reg=0.1), kernel, gamma=0.3, center=center)
    near = distances(learner.fit(X, y), new)
    assert_allclose(learner.origin_, X.mean(axis=0))
    assert_allclose(distances(learner.fit(X + offset, y), new + offset), near, atol=1e-7 * near.max())
    again = clone(learner).fit(X.astype(np.float32) + np.float32(2**10), y)
    assert again.origin_.dtype == np.float64 and again.origin_[0] > 2**10 - 5


@pytest.mark.parametrize("kernel", ["poly", "cosine"])
def test_a_kernel_that_knows_the_origin_sees_the_samples_as_they_are(data, kernel):
    """Far from 0 it loses digits, and says so; farther away it sees one point."""
    X, y, _ = data
    assert Kernelized(GMML(reg=0.1), kernel).fit(X + 10, y).origin_ is None
    with pytest.warns(UserWarning, match=f"digits are lost to rounding. kernel='{kernel}' depends on where 0 is"):
        Kernelized(GMML(reg=0.1), kernel).fit(X + 1e6, y)
    with pytest.raises(
        ValueError, match=f"one point of the .* kernel='{kernel}' depends on where 0 is: subtract the mean"
    ):
        Kernelized(GMML(reg=0.1), kernel).fit(X + 1e9, y)
