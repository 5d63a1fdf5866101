"""What every estimator of the registry promises, whatever its mathematics."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import isometry
from isometry.core.distance import sqdist
from isometry.registry import all_methods
from isometry.supervision import Labels, Pairs
from tests.conftest import make_blobs, make_planted

pytestmark = pytest.mark.filterwarnings("ignore")

METHODS = [m for m in all_methods(kind="estimator") if m.family != "deep"]
OTHER_SAMPLES = {"matrix-samples", "histograms"}  # these have suites of their own
TABLE = [m for m in METHODS if not OTHER_SAMPLES & set(m.traits)]  # samples are rows of any table


def every(methods=TABLE, *, trait=None, without=None):
    chosen = [
        m for m in methods if (trait is None or trait in m.traits) and (without is None or without not in m.traits)
    ]
    return pytest.mark.parametrize("method", chosen, ids=lambda m: m.key)


@pytest.fixture(autouse=True)
def named_exceptions(request):
    """A test that a row names in ``xfails``, with a reason, must fail for that method: no excuse outlives its cause."""
    params = dict(getattr(getattr(request.node, "callspec", None), "params", {}))
    method, name = params.pop("method", None), request.node.originalname
    test = f"{name}[{params['mess']}]" if "mess" in params else name
    if method is not None and test in method.xfails:
        request.applymarker(pytest.mark.xfail(reason=f"{method.key}: {method.xfails[test]}", strict=True))


def sees(method):
    return set(method.sees.replace(",", " ").split())


def make(method, **params):
    learner = method.example(**{**method.published, **params})
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    return learner


def distances(learner, X):
    return np.sqrt(sqdist(np.asarray(learner.transform(X), dtype=np.float64)))


def assert_same_metric(A, B, rtol=1e-5):
    """Equal distances, up to round-off relative to the largest."""
    assert_allclose(A, B, rtol=0, atol=rtol * max(A.max(), B.max()))


@every()
def test_is_a_metric(method):
    """Symmetric, zero on the diagonal, triangle inequality, and not zero everywhere."""
    X, y = make_blobs()
    learner = make(method).fit(X, y)
    Z = np.asarray(learner.transform(X))
    assert Z.dtype == np.float64 and np.isfinite(Z).all()
    D = np.linalg.norm(Z[:, None] - Z[None], axis=2)  # (n, n)
    assert D.max() > 0
    assert np.all(D[:, :, None] + D[None] + 1e-9 * D.max() >= D[:, None])  # d(i,j) + d(j,k) ≥ d(i,k)
    pairs = np.array([[0, 1], [2, 9], [5, 5]])
    assert_allclose(learner.pair_distance(X, pairs), D[pairs[:, 0], pairs[:, 1]], atol=1e-7 * D.max())
    for row in (-1, len(X)):
        with pytest.raises(ValueError, match=f"but X has rows 0 to {len(X) - 1}"):
            learner.pair_distance(X, [[0, row]])


@every()
def test_deterministic_for_a_seed(method):
    """Up to rounding, which in BLAS may depend on where in memory an array happens to lie."""
    X, y = make_blobs()
    A, B = make(method).fit(X, y), make(method).fit(X, y)
    assert_same_metric(np.asarray(A.transform(X)), np.asarray(B.transform(X)), rtol=1e-9)


@every()
def test_sample_order_and_label_names_do_not_matter(method):
    X, y = make_blobs()
    order = np.random.default_rng(1).permutation(len(X))
    names = np.array(["zebra", "ant", "mole"])[y] if "targets" not in sees(method) else y
    base = distances(make(method).fit(X, y), X)
    moved = distances(make(method).fit(X[order], names[order]), X)
    assert_same_metric(base, moved, rtol=1e-3 if "iterative" in method.traits else 1e-6)


@every(trait="rotation")
def test_rotation_of_the_features_does_not_matter(method):
    X, y = make_blobs()
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    A, B = make(method).fit(X, y), make(method).fit(X @ Q.T, y)
    assert_same_metric(distances(A, X), distances(B, X @ Q.T), rtol=2e-3 if "iterative" in method.traits else 1e-6)


@every(trait="affine")
def test_affine_maps_of_the_features_do_not_matter(method):
    X, y = make_blobs()
    T = np.random.default_rng(1).standard_normal((4, 4)) + 2 * np.eye(4)
    params = {"reg": 0.0} if "reg" in method.example().get_params() else {}
    A, B = make(method, **params).fit(X, y), make(method, **params).fit(X @ T.T + 3.0, y)
    assert_same_metric(distances(A, X), distances(B, X @ T.T + 3.0), rtol=1e-6)


@every()
def test_an_offset_does_not_matter(method):
    X, y = make_blobs()
    offset = 2.0**26
    X = X + offset - offset  # now the offset can be added without rounding
    A, B = (make(method).fit(Y, y).transform(Y).astype(np.float64) for Y in (X, X + offset))
    A, B = (np.sqrt(sqdist(Z - Z[:1])) for Z in (A, B))
    assert_same_metric(A, B, rtol=2e-3 if "iterative" in method.traits else 1e-5)


MESSY = {
    "constant column": lambda X, y: (np.c_[X, np.full(len(X), 7.0)], y),
    "duplicated column": lambda X, y: (np.c_[X, X[:, :1]], y),
    "collinear column": lambda X, y: (np.c_[X, X @ np.array([1.0, -2.0, 0.5, 0.0])], y),
    "duplicated rows": lambda X, y: (np.r_[X, X[:10]], np.r_[y, y[:10]]),
    "equal points of two classes": lambda X, y: (np.r_[X, X[:1], X[-1:]], np.r_[y, y[-1:], y[:1]]),
    "n < d": lambda X, y: (np.c_[X[::3], np.random.default_rng(5).standard_normal((len(X[::3]), 20))], y[::3]),
    "a class with one member": lambda X, y: (X, np.where(np.arange(len(y)) == 0, 9, y)),
    "two classes": lambda X, y: (X, np.minimum(y, 1)),
    "one feature": lambda X, y: (X[:, :1], y),
    "unscaled": lambda X, y: (X * np.array([1e-3, 1.0, 1e3, 10.0]) + 1e4, y),
    "tiny numbers": lambda X, y: (X * 1e-8, y),
    "Fortran order": lambda X, y: (np.asfortranarray(X), y),
}


@pytest.mark.parametrize("mess", MESSY)
@every()
def test_survives(method, mess):
    """Finite, non-trivial output on messy data: no crash, no NaN, no collapse to a point."""
    X, y = MESSY[mess](*make_blobs())
    with np.errstate(all="ignore"):
        Z = np.asarray(make(method).fit(X, y).transform(X))
    assert np.isfinite(Z).all()
    assert np.ptp(Z, axis=0).max() > 0


@every()
def test_float32_in_float32_out(method):
    X, y = make_blobs()
    Z32 = make(method).fit(X.astype(np.float32), y).transform(X.astype(np.float32))
    assert Z32.dtype == np.float32
    D32, D64 = np.sqrt(sqdist(Z32.astype(np.float64))), distances(make(method).fit(X, y), X)
    if "iterative" not in method.traits:
        assert_same_metric(D32, D64, rtol=1e-3)
    assert np.corrcoef(D32.ravel(), D64.ravel())[0, 1] > 0.95


@every()
def test_data_frame_and_set_output(method):
    pd = pytest.importorskip("pandas")
    X, y = make_blobs()
    frame = pd.DataFrame(X, columns=list("abcd"))
    learner = make(method).set_output(transform="pandas").fit(frame, y)
    out = learner.transform(frame)
    assert list(learner.feature_names_in_) == list("abcd") and len(out) == len(X)
    assert list(out.columns) == list(learner.get_feature_names_out())
    plain = distances(make(method).fit(X, y), X)
    assert_same_metric(np.sqrt(sqdist(out.to_numpy())), plain, rtol=1e-3 if "iterative" in method.traits else 1e-7)


@every()
def test_labels_and_all_their_pairs_agree(method):
    """A method that sees labels and pairs gives the same metric from either."""
    if not {"labels", "pairs"} <= sees(method):
        pytest.skip("does not see both")
    X, y = make_blobs()
    params = {"n_components": 2} if method.example().get_params().get("n_components") == "auto" else {}
    side = Labels(y)
    pairs = Pairs.from_edges(side.similar, side.dissimilar, len(y))
    A, B = make(method, **params).fit(X, y), make(method, **params).fit(X, pairs)
    assert_same_metric(distances(A, X), distances(B, X), rtol=1e-3 if "iterative" in method.traits else 1e-7)


SEMI_SUPERVISED = {"B01s", "M09", "M14", "M18", "M19"}  # a plain −1 is no label for these


@every()
def test_minus_one_and_plus_one_are_two_classes(method):
    """For semi-supervised methods too, to which −1 beside other labels means that there is none."""
    X, y = make_blobs()
    y = np.minimum(y, 1)
    learner, semi = make(method), method.key in SEMI_SUPERVISED
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        A = distances(learner.fit(X, 2 * y - 1), X)
    assert any("taken for two classes" in str(w.message) for w in caught) == semi
    assert_same_metric(A, distances(make(method).fit(X, y), X), rtol=1e-6 if "targets" in sees(method) else 1e-9)
    if semi:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*taken for two classes")
            assert_same_metric(distances(make(method).fit(X, Labels(2 * y - 1)), X), A, rtol=1e-9)
            if "dissimilar" in learner._needs:
                with pytest.raises(ValueError, match="needs at least 2 classes; y has 1 class"):
                    make(method).fit(X, Labels(2 * y - 1, unlabelled=-1))
            else:
                make(method).fit(X, Labels(2 * y - 1, unlabelled=-1))
            make(method).fit(X, np.where(np.arange(len(y)) % 3, y, -1))  # −1, 0 and 1


FROM_PAIRS = [m for m in TABLE if {"pairs", "chunklets"} & sees(m)]
# groups made of pairs, lists of partners, and pairs kept apart: all or nothing
CANNOT_WEIGH = {"B16", "B19", "M06", "M07", "M19", "M20", "P16", "P17"}


def some_pairs(seed=0):
    """X, and 60 similar and 60 dissimilar pairs i, j, s of it in mixed order, a third of them marked."""
    (X, y), rng = make_blobs(), np.random.default_rng(seed)
    S, D = Labels(y).similar, Labels(y).dissimilar
    a, b = (rng.choice(len(e.i), 60, replace=False) for e in (S, D))
    order = rng.permutation(120)
    i, j, s = np.r_[S.i[a], D.i[b]][order], np.r_[S.j[a], D.j[b]][order], np.repeat([1.0, 0.0], 60)[order]
    return X, i, j, s, rng.random(120) < 1 / 3


def from_pairs(method, X, i, j, s, weight=None):
    """Distances after a fit; with all its dimensions if their number would depend on the pairs."""
    params = {"n_components": 2} if method.example().get_params().get("n_components") == "auto" else {}
    return distances(make(method, **params).fit(X, Pairs(i, j, s, n=len(X), weight=weight)), X)


def pair_tolerance(method):
    return 2e-3 if "iterative" in method.traits else 1e-6


@every(FROM_PAIRS)
def test_a_pair_of_weight_zero_is_not_there(method):
    """Also if it says the opposite of the others."""
    X, i, j, s, some = some_pairs()
    there, k = np.repeat([1.0, 0.0], [120, some.sum()]), np.flatnonzero(some)
    A = from_pairs(method, X, i, j, s)
    B = from_pairs(method, X, np.r_[i, j[k]], np.r_[j, i[k]], np.r_[s, 1 - s[k]], weight=there)
    assert_same_metric(A, B, pair_tolerance(method))


@every(FROM_PAIRS)
def test_a_pair_of_weight_two_is_a_pair_listed_twice(method):
    X, i, j, s, some = some_pairs()
    everyone = np.ones_like(some)
    for which in (everyone,) if method.key in CANNOT_WEIGH else (everyone, some):
        rows = np.repeat(np.arange(120), 1 + which)
        A = from_pairs(method, X, i[rows], j[rows], s[rows])
        assert_same_metric(A, from_pairs(method, X, i, j, s, weight=1.0 + which), pair_tolerance(method))


@every(FROM_PAIRS)
def test_weights_and_soft_similarities_count_or_are_refused(method):
    """Similarity s is a similar pair of weight s and a dissimilar one of weight 1 − s."""
    X, i, j, s, some = some_pairs()
    soft, weight = np.where(some, 0.2 + 0.5 * s, s), np.where(some, 0.1, 1.0)
    if method.key in CANNOT_WEIGH:
        for refused in ({"s": s, "weight": weight}, {"s": soft}):
            with pytest.raises(ValueError, match="cannot weigh them"):
                from_pairs(method, X, i, j, **refused)
        return
    plain, softly = from_pairs(method, X, i, j, s), from_pairs(method, X, i, j, soft)
    both = from_pairs(method, X, np.r_[i, i], np.r_[j, j], np.repeat([1.0, 0.0], 120), weight=np.r_[soft, 1 - soft])
    assert_same_metric(softly, both, pair_tolerance(method))
    for other in (softly, from_pairs(method, X, i, j, s, weight=weight)):
        assert np.abs(other - plain).max() > 5 * pair_tolerance(method) * plain.max()


@every()
def test_bad_input_is_named(method):
    X, y = make_blobs()
    learner = make(method)
    with pytest.raises(ValueError, match="NaN"):
        learner.fit(np.where(np.arange(X.size).reshape(X.shape) == 3, np.nan, X), y)
    with pytest.raises(ValueError, match="infinity"):
        learner.fit(np.where(np.arange(X.size).reshape(X.shape) == 3, np.inf, X), y)
    with pytest.raises(ValueError, match="could not convert"):
        learner.fit(np.full(X.shape, "text", dtype=object), y)
    if learner.__sklearn_tags__().target_tags.required:
        with pytest.raises(ValueError, match="y has 44 entries but X has 45 rows"):
            learner.fit(X, y[:-1])
        with pytest.raises(ValueError, match=r"missing (label|or infinite target)"):
            learner.fit(X, np.where(np.arange(len(y)) == 2, np.nan, y.astype(float)))
        if "targets" in sees(method):
            with pytest.raises(ValueError, match="y is constant"):
                learner.fit(X, np.ones(len(y)))
        else:
            with pytest.raises(ValueError, match="continuous"):
                learner.fit(X, X[:, 0])
        with pytest.raises(ValueError, match="y to be passed"):
            learner.fit(X)
    learner.fit(X, y)
    with pytest.raises(ValueError, match="features"):
        learner.transform(X[:, :2])


@every()
def test_one_class_or_useless_pairs_are_refused(method):
    """Without any difference to learn from there is an error that says so; methods that need none still fit."""
    X, y = make_blobs()
    learner = make(method)
    if not learner._sees or "dissimilar" not in learner._needs:
        return
    with pytest.raises(ValueError, match=r"at least 2 classes|dissimilar|y is constant"):
        learner.fit(X, np.zeros(len(y)))
    if "targets" in sees(method):
        return
    with pytest.raises(ValueError, match=r"at least 2 samples|similar"):
        learner.fit(X, np.arange(len(y)))
    if "pairs" in method.sees:
        chain = np.arange(len(X) - 1)
        with pytest.raises(ValueError, match="all samples are known to be the same"):
            learner.fit(X, Pairs(chain, chain + 1, np.ones(len(chain)), n=len(X)))
        with pytest.raises(ValueError, match="similar pairs; y holds none"):
            learner.fit(X, Pairs([0, 1], [2, 3], [False, False], n=len(X)))


@every()
def test_a_failed_fit_keeps_the_last_good_metric(method):
    X, y = make_blobs()
    learner = make(method).fit(X, y)
    before = learner.transform(X)
    with pytest.raises(ValueError):
        learner.fit(np.full_like(X, np.nan), y)
    assert_allclose(learner.transform(X), before)


@every()
def test_clone_pickle_save_load(method, tmp_path):
    X, y = make_blobs()
    learner = make(method)
    twin = clone(learner)
    assert repr(twin) == repr(learner)
    learner.fit(X, y)
    Z = learner.transform(X)
    assert_allclose(pickle.loads(pickle.dumps(learner)).transform(X), Z, rtol=0, atol=0)
    assert_allclose(copy.deepcopy(learner).transform(X), Z, rtol=0, atol=0)
    path = tmp_path / "metric.isometry"
    isometry.save(learner, path)
    again = isometry.load(path)
    assert type(again) is type(learner) and repr(again) == repr(learner)
    assert_allclose(again.transform(X), Z, rtol=0, atol=0)


@every(trait="iterative")
def test_reports_how_it_ended(method):
    X, y = make_blobs()
    learner = make(method)
    with warnings.catch_warnings():
        warnings.simplefilter("error", category=ConvergenceWarning)
        learner.fit(StandardScaler().fit_transform(X), y)
    assert learner.converged_ and learner.n_iter_ >= 1 and isinstance(learner.stop_reason_, str)
    assert len(learner.history_) >= 1 and np.isfinite(learner.history_).all()
    if "max_iter" in learner.get_params() and learner.n_iter_ > 2 and "one-step" not in method.traits:
        with pytest.warns(ConvergenceWarning, match="did not converge"):
            clone(learner).set_params(max_iter=1).fit(X, y)


@every()
def test_beats_euclidean_on_a_planted_problem(method):
    """The signal is hidden among noise of larger variance: held-out 1-NN in the learned space finds it."""
    if method.key in ("EUC", "M00", "B25", "B26", "B26k", "B26p"):
        pytest.skip("a baseline: it does not look at the labels")
    from isometry.eval import knn_hits

    X, y = make_planted(n=240, d=20, noise=4.0)
    train, test = np.arange(240) < 160, np.arange(240) >= 160
    learner = make(method).fit(X[train], y[train])
    Z = learner.transform(X)
    learned = knn_hits(Z[train], y[train], Z[test], y[test], k=1).mean()
    plain = knn_hits(X[train], y[train], X[test], y[test], k=1).mean()
    assert learned > plain + 0.1, f"learned {learned:.3f}, Euclidean {plain:.3f}"
