"""How far a learned metric goes from Euclidean distance: chosen by samples held out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import isometry
from isometry import GMML, ITML, LMNN, RCA, Covariance, FisherML, Labels, Pairs, Shrunk, Targets, TraceRatioML, Triplets
from isometry.core.distance import sqdist
from isometry.registry import all_methods
from isometry.strength import REGS, SHARES, analytic_choice, choose, mixed_map, mixture, weakest_of_the_best
from isometry.trial import NEIGHBORS, ComparisonTrial, NeighborTrial, PairTrial, trial_of

NOT_FOR_NEIGHBOURS = {  # why the published method is worse than Euclidean distance where wide features say nothing
    "LFDA[self]": "half of S_b is the scatter of all samples, half of S_w the identity: wide directions win",
    "FishMML": "nothing divides by the variation within classes, and a term in the total variance favours loud ones",
    "MarginSVM": "dissimilar pairs are to be far apart: wide features bring them furthest",
    "KernelMarginSVM": "dissimilar pairs are to be far apart: wide features bring them furthest",
    "LowRankGMML": "its objective prefers directions in which both scatters are large, not those that separate",
}
AXES = "its W is diagonal: one weight for each feature"
EXCEPTIONS = {  # of what follows neither the order of rows, nor the names of classes, nor the axes: by definition
    "RelativeML[diagonal]": ({"rotation"}, AXES),
    "MMC[diagonal]": ({"rotation"}, AXES),
    "FishMML": ({"rotation"}, "its views are groups of features, which a rotation mixes"),
    "HierarchicalLMNN": ({"rotation"}, "its balls are drawn in the box that holds the points, along the axes"),
    "SDML": ({"rotation"}, "its penalty is a sum over single entries of W"),
    "RelativeML[ordinal]": ({"names"}, "names of classes say which are next to one another"),
    "MLKR": ({"names"}, "y holds numbers to predict"),
    "RVML[landmarks]": ({"order"}, "landmarks are drawn by row number"),
}
EXACT = {  # settings that leave nothing to chance
    "RGML": {"n_pairs": 5_000},  # all of them
    "DMBK": {"n_init": 1, "tol": 1e-8},  # further starts are random subspaces
    "SCML": {"tol": 1e-8},
}
# rounding decides where within ``tol`` of a minimum they end, which is within √tol of where it lies
CLOSENESS = {"KernelFastNCA": 3e-3, "DMBK": 1e-3, "SCML": 1e-3}
AUTOMATIC = [row for row in all_methods(kind="estimator") if row.published]


def planted(seed=0, n=150, noise=12, classes=3):
    """Classes apart in two features, beside wide features that say nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    angle = 2 * np.pi * y / classes
    signal = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.3 * rng.standard_normal((n, 2))
    return np.column_stack([signal, 2 * rng.standard_normal((n, noise))]), y


def choice_of(learner):
    """Share of the learned metric, and why it was chosen."""
    inner = getattr(learner, "learner_", learner)  # of a kernel
    if hasattr(inner, "strength_"):
        return inner.strength_, inner.strength_reason_
    return inner.share_, inner.reg_reason_


def hits(learner, X, y, Z, labels):
    """Share of the three nearest of each row that have its label."""
    D = sqdist(np.asarray(learner.transform(Z), dtype=float), np.asarray(learner.transform(X), dtype=float))
    return float((y[np.argsort(D, axis=1)[:, :3]] == labels[:, None]).mean())


def seeded(learner):
    return learner.set_params(**{name: 0 for name in learner.get_params() if name.endswith("random_state")})


@pytest.mark.parametrize("row", AUTOMATIC, ids=lambda row: row.key)
def test_a_planted_direction_is_found(row):
    """By what looks for it; where the published method makes neighbours worse, Euclidean distance is kept."""
    X, y = planted()
    Z, labels = planted(1)
    learner = seeded(row.make()).fit(X, y)
    plain = hits(isometry.Euclidean().fit(X, y), X, y, Z, labels)
    share, reason = choice_of(learner)
    if row.name in NOT_FOR_NEIGHBOURS:
        assert hits(seeded(row.make(**row.published)).fit(X, y), X, y, Z, labels) < plain
        assert share == 0 and reason.startswith("Euclidean distance")
        return
    assert share > 0
    assert reason.startswith("gained")
    assert hits(learner, X, y, Z, labels) > plain + 0.05


@pytest.mark.parametrize(
    ("learner", "least"),
    [
        (RCA(), 17),
        (FisherML(), 17),
        (GMML(), 19),
        (TraceRatioML(), 17),
        (Shrunk(RCA(reg=0.0)), 19),
        (Shrunk(LMNN()), 19),
    ],
    ids=repr,
)
def test_shuffled_labels_leave_euclidean_distance(learner, least):
    """With a ridge to choose as well there are four times as many metrics, one of which may seem better by chance."""
    kept = 0
    for seed in range(20):
        X, y = planted(seed, n=120, noise=6)
        fitted = learner.fit(X, np.random.default_rng(seed).permutation(y))
        kept += (fitted.strength_ if isinstance(learner, Shrunk) else fitted.share_) == 0
    assert kept >= least


def test_euclidean_distance_is_the_identity_and_says_why():
    X, y = planted(n=60)
    y = np.random.default_rng(0).permutation(y)
    model = RCA().fit(X, y)
    assert model.share_ == 0 and model.reg_ == np.inf
    assert_allclose(model.components_, np.eye(X.shape[1]))
    assert model.reg_reason_.startswith("Euclidean distance: ")
    assert len(model.reg_path_["score"]) == 1 + len(REGS) * len(SHARES)


def test_a_number_is_the_published_method():
    X, y = planted()
    within = sum(len(g) * np.cov(g.T, ddof=0) for g in (X[y == c] for c in range(3))) / len(X)
    assert_allclose(RCA(reg=0).fit(X, y).mahalanobis_, np.linalg.inv(within), rtol=1e-8, atol=1e-10)
    assert not hasattr(RCA(reg=0).fit(X, y), "share_")


def test_the_metric_is_the_mixture_that_was_chosen():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    for learner in (RCA(), FisherML(), GMML(), TraceRatioML()):
        chosen = learner.fit(X, y)
        given = type(learner)(reg=chosen.reg_).fit(X, y)
        W = given.mahalanobis_
        T = np.cov(X.T, ddof=0)
        size = np.trace(W @ T) / np.trace(T)  # both parts have the same mean squared distance
        expected = (1 - chosen.share_) * size * np.eye(len(W)) + chosen.share_ * W
        assert_allclose(chosen.mahalanobis_, expected, rtol=1e-8, atol=1e-8 * np.abs(W).max())


def test_the_unit_of_the_features_does_not_matter():
    X, y = planted()
    for learner in (RCA, GMML, FisherML, TraceRatioML):
        a, b = learner().fit(X, y), learner().fit(1e5 * X, y)
        assert a.share_ == b.share_ > 0
        assert b.reg_ == pytest.approx(a.reg_ * (1e10 if learner.reg_has_unit else 1))
        D, E = sqdist(a.transform(X)), sqdist(b.transform(1e5 * X))
        assert_allclose(D / D.mean(), E / E.mean(), rtol=0, atol=1e-7 * D.max() / D.mean())


@pytest.mark.parametrize("row", AUTOMATIC, ids=lambda row: row.key)
def test_order_names_and_rotation_do_not_matter(row):
    excepted, _ = EXCEPTIONS.get(row.name, (set(), ""))
    X, y = planted()
    rng = np.random.default_rng(3)
    order = np.arange(len(X)) if "order" in excepted else rng.permutation(len(X))
    Q = np.linalg.qr(rng.standard_normal((X.shape[1], X.shape[1])))[0]
    Q = np.eye(X.shape[1]) if "rotation" in excepted else Q
    names = y if "names" in excepted else np.array(["z", "a", "m"])[y]
    a, b = (seeded(row.make(**EXACT.get(row.name, {}))) for _ in range(2))
    a.fit(X, y)
    b.fit((X @ Q)[order], names[order])
    D, E = sqdist(np.asarray(a.transform(X))), sqdist(np.asarray(b.transform(X @ Q)))
    assert_allclose(D, E, rtol=0, atol=CLOSENESS.get(row.name, 1e-6) * D.max())


def test_exceptions_are_of_methods_that_there_are():
    names = {row.name for row in AUTOMATIC}
    assert {*NOT_FOR_NEIGHBOURS, *EXCEPTIONS, *EXACT, *CLOSENESS} <= names
    follow_axes = {name for name, (what, _) in EXCEPTIONS.items() if "rotation" in what}
    assert follow_axes == {row.name for row in AUTOMATIC if "rotation" not in row.traits}


def test_the_weakest_that_does_as_well_as_the_best():
    steps = [(0.0, np.inf), (0.5, 1.0), (1.0, 1.0)]
    rng = np.random.default_rng(0)
    base = rng.standard_normal(400)
    noise = 0.1 * rng.standard_normal((2, 400))
    noise -= noise.mean(axis=1, keepdims=True)
    error = noise.std(axis=1, ddof=1) / 20
    better = np.stack(
        [base, base + 3 * error[0] + noise[0], base + 3 * error[0] + noise[0] + 0.5 * error[1] + noise[1]]
    )
    assert weakest_of_the_best(steps, better).share == 0.5  # the stronger one gains half a standard error more
    better[2] += error[1]
    assert weakest_of_the_best(steps, better).share == 1.0  # one and a half
    small = np.stack([base, base + 1.9 * error[0] + noise[0], base - 1 + noise[1]])
    assert weakest_of_the_best(steps, small).share == 0.0
    # as good as the best within a standard error, but only because it varies: alone it would not be taken
    sure, varied = base + 3 * error[0] + noise[0], base + 2 * error[0] + 20 * noise[1]
    assert weakest_of_the_best(steps, np.stack([base, varied, sure])).share == 1.0
    same = weakest_of_the_best(steps, np.stack([base, base, base]))
    assert same.share == 0.0 and "nothing did better" in same.reason


def test_neighbour_values_by_loops():
    X, y = planted(n=40)
    trial = trial_of(X, Labels(y))
    assert isinstance(trial, NeighborTrial) and not trial.open
    held = np.sort(np.concatenate([split.held for split in trial.splits]))
    assert_allclose(held, np.arange(40))
    for split in trial.splits:
        assert not set(split.learn) & set(split.held)
        got = trial.values(trial.distances(lambda rows: X[rows], split), split)
        for i, value in zip(split.held, got, strict=True):
            d = [(np.sum((X[i] - X[j]) ** 2), j) for j in split.gallery]
            assert value == pytest.approx(np.mean([y[j] == y[i] for _, j in sorted(d)[:NEIGHBORS]]))


def test_with_many_classes_whole_classes_are_held_out():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 25
    X = rng.standard_normal((25, 6))[y] + 0.5 * rng.standard_normal((200, 6))
    trial = trial_of(X, Labels(y))
    assert trial.open
    for split in trial.splits:
        assert not set(y[split.learn]) & set(y[split.held])
        got = trial.values(trial.distances(lambda rows: X[rows], split), split)
        expected = isometry.eval.retrieval(X[split.held], y[split.held])
        per_class = [expected.map_at_r[y[split.held][expected.queries] == c].mean() for c in np.unique(y[split.held])]
        assert_allclose(np.sort(got), np.sort(per_class), atol=1e-6)
    assert not trial_of(X, Labels(y), protocol="closed").open
    assert trial_of(X, Labels(y % 8), protocol="open").open


def test_pairs_and_comparisons_have_trials():
    X, y = planted(n=60)
    side = Labels(y)
    pairs = Pairs.from_edges(side.similar, side.dissimilar, 60)
    trial = trial_of(X, pairs)
    assert isinstance(trial, PairTrial)
    for split in trial.splits:
        D = trial.distances(lambda rows: X[rows], split)
        held = pairs[split.held]
        near, far = D[held.similarity == 1], D[held.similarity == 0]
        area = np.mean((near[:, None] < far) + 0.5 * (near[:, None] == far))
        assert trial.values(D, split).mean() == pytest.approx(area)
    rng = np.random.default_rng(0)
    a = rng.integers(60, size=300)
    p, n = (a + 3 * rng.integers(1, 19, size=300)) % 60, (a + 1) % 60
    triplets = Triplets(a, p, n, n_samples=60)
    trial = trial_of(X, triplets)
    assert isinstance(trial, ComparisonTrial)
    split = trial.splits[0]
    held = triplets[split.held]
    H = X[split.held]
    expected = [np.sum((H[i] - H[j]) ** 2) < np.sum((H[i] - H[k]) ** 2) for i, j, k in zip(held.a, held.p, held.n)]
    assert_allclose(trial.values(trial.distances(lambda rows: X[rows], split), split), expected)


def test_the_choice_sees_the_distances_of_each_mixture():
    """Values of every step by explicit maps: the root of the mixture instead of mixed distances."""
    X, y = planted(n=60)
    trial = trial_of(X, Labels(y))
    L = np.diag([3.0, 3.0, *[0.1] * 12])
    choice = choose(
        trial, [X] * len(trial.splits), ([lambda R: R @ L.T] for _ in trial.splits), (0.25, 1.0), regs=(1.0,)
    )
    for k, share in enumerate((0.0, 0.25, 1.0)):
        values = []
        for split in trial.splits:
            T = np.cov(X[split.learn].T, ddof=0)
            root = mixture(L, share, np.trace(T) / np.trace(L @ T @ L.T))
            values.append(trial.values(trial.distances(lambda rows, root=root: X[rows] @ root, split), split))
        assert choice.path["score"][k] == pytest.approx(np.concatenate(values).mean(), abs=1e-6)


def test_mixture_is_a_symmetric_root():
    L = np.random.default_rng(0).standard_normal((2, 5))
    M = mixture(L, 0.3, 4.0)
    assert_allclose(M, M.T)
    assert_allclose(M @ M, 0.7 / 4 * np.eye(5) + 0.3 * L.T @ L, atol=1e-12)


def test_chunks_take_the_ridge_of_the_moments():
    X, y = planted(n=400)
    model = RCA()
    for part in np.array_split(np.arange(400), 4):
        model.partial_fit(X[part], y[part])
    assert "OAS" in model.reg_reason_ and model.share_ == 1
    within = X - np.stack([X[y == c].mean(axis=0) for c in range(3)])[y]
    from sklearn.covariance import oas

    shrinkage = oas(within, assume_centered=True)[1]
    assert model.reg_ == pytest.approx(shrinkage / (1 - shrinkage), rel=1e-6)
    assert_allclose(model.mahalanobis_, RCA(reg=model.reg_).fit(X, y).mahalanobis_, rtol=1e-6, atol=1e-9)


def test_analytic_amount_of_a_multiple_of_the_identity_is_the_most():
    assert analytic_choice(2 * np.eye(3), 100, "why").reg == REGS[0]


@pytest.mark.parametrize("learner", [Covariance(), Covariance(shrinkage=0.1)], ids=repr)
def test_without_labels_the_amount_is_analytic(learner):
    X, _ = planted()
    assert "OAS" in learner.fit(X).reg_reason_


@pytest.mark.parametrize("learner", [RCA(), GMML(), Covariance()], ids=repr)
def test_a_mapped_file_is_not_copied(learner, tmp_path):
    """The strength is chosen by some of its rows; the metric is learned from all of them, block by block."""
    import tracemalloc

    n, d = 200_000, 40
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(n, d))
    y = np.arange(n) % 3
    for part in np.array_split(np.arange(n), 20):
        X[part] = rng.standard_normal((len(part), d)) + 2 * np.eye(3, d)[y[part]]
    tracemalloc.start()
    model = learner.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * X.nbytes  # 32 MB; labels and their checks take some, too
    assert model.reg_reason_ and np.isfinite(model.components_).all()


def test_too_little_data_says_so():
    X, _ = planted(n=6)
    assert RCA().fit(X[:4], [0, 0, 1, 1]).reg_reason_
    assert FisherML().fit(X, [0, 0, 0, 1, 1, 1]).components_.shape == (14, 14)
    fitted = Shrunk(RCA(reg=0.1)).fit(X[:3], [0, 0, 1])
    assert fitted.strength_ == 0 and fitted.reason_.startswith("Euclidean")
    one = RCA().fit(X[:, :1], [0, 0, 0, 1, 1, 1])
    assert np.isfinite(one.components_).all() and one.components_.any()


@pytest.mark.parametrize("n", [4, 5])
def test_few_rows_are_held_out_one_at_a_time(n):
    """Of four or five rows each is a fold of its own; the reason says so."""
    X, _ = planted(n=8)
    y = np.array([0, 0, 0, 1, 1])[:n]
    assert [len(split.held) for split in trial_of(X[:n], Labels(y)).splits] == [1] * n
    assert "one was held out at a time" in RCA().fit(X[:n], y).reg_reason_


def test_pairs_in_few_groups_are_tried_in_fewer_folds():
    X, _ = planted(n=16)
    i, j = np.array([0, 1, 4, 5, 8, 9, 12, 13]), np.array([1, 2, 5, 6, 9, 10, 13, 14])
    pairs = Pairs(i, j, np.tile([True, False], 4), n=16)  # four groups, each with both kinds
    k = len(trial_of(X, pairs).splits)
    assert 2 <= k < 5
    assert f"tried in {k} folds, more would be too small" in GMML().fit(X, pairs).reg_reason_


def test_where_a_part_is_not_enough_the_amount_is_analytic():
    """One class of two rows and others of one: without either of the two, there is nothing to learn."""
    X, _ = planted(n=6)
    model = RCA().fit(X, [0, 0, 1, 2, 3, 4])
    assert model.reg_reason_.startswith("a part of the data is not enough to learn from") and "OAS" in model.reg_reason_
    assert model.share_ == 1 and np.isfinite(model.components_).all()


ONCE = [row for row in AUTOMATIC if not row.variant]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ONCE, ids=lambda row: row.key)
def test_one_feature_constant_columns_and_fewer_rows_than_features(row):
    X, y = planted(n=45)
    constant = np.column_stack([X, np.full(45, 7.0), np.zeros(45)])
    wide = np.random.default_rng(0).standard_normal((45, 60)) + 3 * np.eye(3, 60)[y]
    for table in (X[:, :1], constant, wide):
        learner = row.make()
        if "random_state" in learner.get_params():
            learner.set_params(random_state=0)
        learner.fit(table, y)
        share, reason = choice_of(learner)
        Z = np.asarray(learner.transform(table))
        assert 0 <= share <= 1 and reason
        assert np.isfinite(Z).all() and np.ptp(Z) > 0


@pytest.mark.parametrize("learner", [RCA, FisherML, GMML, LMNN, ITML])
def test_of_equal_strengths_the_one_nearest_to_euclidean_distance_is_taken(learner):
    """All metrics of one feature are multiples of one another, so that all do equally well."""
    X, y = planted(n=60)
    share, reason = choice_of(learner().fit(X[:, :1], y))
    assert share == 0 and reason == "Euclidean distance: nothing did better on what was held out"


@pytest.mark.parametrize("learner", [RCA(), GMML(), Shrunk(RCA(reg=0.0))], ids=repr)
def test_a_planted_direction_is_found_whatever_the_draw(learner):
    for seed in range(20):
        X, y = planted(seed)
        fitted = learner.fit(X, y)
        assert (fitted.strength_ if isinstance(learner, Shrunk) else fitted.share_) > 0


def test_fewer_dimensions_than_features_begin_at_principal_components():
    X, y = planted()
    model = FisherML(2).fit(X, y)
    assert model.components_.shape == (2, 14) and model.share_ > 0
    assert model.reg_ in REGS
    nothing = FisherML(2).fit(X, np.random.default_rng(1).permutation(y))
    assert nothing.share_ == 0 and "in the first 2 principal components: " in nothing.reg_reason_
    assert_allclose(sqdist(nothing.transform(X)), sqdist(PCA(2).fit_transform(X)), atol=1e-8)


def test_all_rows_have_a_say_in_the_principal_components():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 40)) * np.r_[1.3, 1.25, np.ones(38)]  # of 2,000 rows they would be others
    model = RCA(2).fit(X, rng.integers(0, 5, len(X)))
    assert model.share_ == 0
    assert_allclose(sqdist(model.transform(X[:50])), sqdist(PCA(2).fit(X).transform(X[:50])), atol=1e-6)


def test_a_trial_in_fewer_dimensions_sees_the_maps_that_are_kept():
    """Values of every step by the map that ``mixed_map`` makes of the rows to learn from."""
    X, y = planted(n=60)
    trial = trial_of(X, Labels(y))
    L = np.random.default_rng(0).standard_normal((2, 14))
    choice = choose(
        trial, [X] * len(trial.splits), ([lambda R: R @ L.T] for _ in trial.splits), (0.25, 1.0), regs=(1.0,), p=2
    )
    for k, share in enumerate((0.0, 0.25, 1.0)):
        values = []
        for split in trial.splits:
            M = mixed_map(L, share, X[split.learn], 2)
            assert M.shape == (2, 14)
            values.append(trial.values(trial.distances(lambda rows, M=M: X[rows] @ M.T, split), split))
        assert choice.path["score"][k] == pytest.approx(np.concatenate(values).mean(), abs=1e-6)


def test_rows_are_valued_by_the_score_that_is_aimed_at():
    X, y = planted(n=60)
    trials = {}
    for scoring in ("map@r", "precision@5", "pair_auc", "knn"):
        with isometry.aiming_at(scoring):
            trials[scoring] = trial_of(X, Labels(y))
    assert trial_of(X, Labels(y)).aim.score == "neighbors"  # as before
    split = trials["knn"].splits[0]
    D = trials["knn"].distances(lambda rows: X[rows], split)
    found = isometry.eval.retrieval(
        X[split.held], y[split.held], gallery=X[split.gallery], gallery_y=y[split.gallery], ks=(3, 5)
    )
    assert_allclose(trials["map@r"].values(D, split), found.map_at_r, atol=1e-6)
    assert_allclose(trials["precision@5"].values(D, split), found.precision_at[5], atol=1e-12)
    assert_allclose(trials["knn"].values(D, split), found.precision_at[3], atol=1e-12)
    same = y[split.held][:, None] == y[split.gallery]
    near, far = D[same], D[~same]
    area = np.mean((near[:, None] < far) + 0.5 * (near[:, None] == far))
    got = trials["pair_auc"].values(D, split)
    assert got.mean() == pytest.approx(area) and got.std() > 0


def test_a_search_of_ones_own_can_aim_at_a_score_and_a_protocol():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 25
    X = rng.standard_normal((25, 6))[y] + 0.5 * rng.standard_normal((200, 6))
    assert trial_of(X, Labels(y)).open
    with isometry.aiming_at("precision@10", protocol="closed"):
        trial = trial_of(X, Labels(y))
        assert not trial.open and trial.aim.n_neighbors == 10
        with isometry.aiming_at("map@r", protocol="open"):
            assert trial_of(X, Labels(y % 8)).open
        assert trial_of(X, Labels(y)).aim.n_neighbors == 10
    with isometry.aiming_at("recall@1"):
        assert trial_of(X, Labels(y % 8)).aim.n_neighbors == NEIGHBORS
    with pytest.raises(ValueError, match="scoring='accuracy' is unknown: choose 'knn'"), isometry.aiming_at("accuracy"):
        pass


def test_targets_are_predicted_by_their_neighbours():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5))
    t = X[:, 0] + 0.1 * rng.standard_normal(80)
    trial = trial_of(X, Targets(t))
    z = (t - t.mean()) / t.std()
    for split in trial.splits:
        assert not set(split.learn) & set(split.held)
        got = trial.values(trial.distances(lambda rows: X[rows], split), split)
        for i, value in zip(split.held, got, strict=True):
            nearest = sorted(split.gallery, key=lambda j: np.sum((X[i] - X[j]) ** 2))[:NEIGHBORS]
            assert value == pytest.approx(1 - (z[i] - z[nearest].mean()) ** 2)
    model = isometry.MLKR(random_state=0).fit(X, Targets(t))
    assert model.strength_ > 0 and model.strength_reason_.startswith("gained")
    assert trial_of(X[:4], Targets(t[:4])) is None and trial_of(X, Targets(np.ones(80))) is None


def test_shrunk_goes_from_euclidean_to_the_learned_metric():
    X, y = planted(n=90)
    learned = LMNN(random_state=0, strength=1.0).fit(X, y)
    D0, D1 = sqdist(X), sqdist(learned.transform(X))
    off = ~np.eye(len(X), dtype=bool)
    unit0, unit1 = (2 * np.var(Z, axis=0).sum() for Z in (X, learned.transform(X)))
    for s in (0.0, 0.4, 1.0):
        Z = Shrunk(LMNN(random_state=0), strength=s).fit(X, y).transform(X)
        assert_allclose(sqdist(Z)[off], ((1 - s) * D0 / unit0 + s * D1 / unit1)[off], rtol=1e-6)


def test_shrunk_of_a_kernel_metric_is_a_mixture_too(tmp_path):
    X, y = planted(n=60)
    learner = isometry.KernelNCA(2, max_iter=5)
    model = Shrunk(learner, strength=0.5).fit(X, y)
    assert model.components_ is None
    D = 0.5 * sqdist(X) / model.units_[0] + 0.5 * sqdist(model.learner_.transform(X)) / model.units_[1]
    assert_allclose(sqdist(model.transform(X)), D, atol=1e-9)
    model.save(tmp_path / "m.safetensors")
    assert_allclose(isometry.load(tmp_path / "m.safetensors").transform(X), model.transform(X))


def test_shrunk_learns_from_pairs_and_triplets():
    X, y = planted(n=90)
    side = Labels(y)
    pairs = Pairs.from_edges(side.similar, side.dissimilar, 90)
    assert Shrunk(GMML(reg=0.1)).fit(X, pairs).strength_ > 0
    a = np.arange(90)
    triplets = Triplets(
        np.tile(a, 3), np.concatenate([(a + k) % 90 for k in (3, 6, 9)]), np.tile((a + 1) % 90, 3), n_samples=90
    )
    model = Shrunk(LMNN(max_iter=50)).fit(X, triplets)
    assert 0 <= model.strength_ <= 1 and model.reason_


def test_saved_choices_are_read_again(tmp_path):
    X, y = planted()
    for learner in (RCA(), Shrunk(RCA(reg=0.0))):
        learner.fit(X, y).save(tmp_path / "m.safetensors")
        again = isometry.load(tmp_path / "m.safetensors")
        assert_allclose(again.transform(X), learner.transform(X))
        name = "path_" if isinstance(learner, Shrunk) else "reg_path_"
        assert_allclose(getattr(again, name)["score"], getattr(learner, name)["score"])


def test_on_wine_it_is_no_worse_than_euclidean_in_cross_validation():
    X, y = load_wine(return_X_y=True)
    scores = {name: [] for name in ("plain", "auto")}
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        scaler = StandardScaler().fit(X[train])
        A, B = scaler.transform(X[train]), scaler.transform(X[test])
        model = RCA().fit(A, y[train])
        for name, (C, E) in {"plain": (A, B), "auto": (model.transform(A), model.transform(B))}.items():
            scores[name].append(KNeighborsClassifier(3).fit(C, y[train]).score(E, y[test]))
    assert np.mean(scores["auto"]) >= np.mean(scores["plain"])
