"""Searches over rows and pairs in chunks: the sums over chunks are those of one process, and so is the metric."""

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale

from isometry import DRML, ITML, LDML, LMNN, MCML, NCA, PCCA, Euclidean, FastNCA, Labels, Pairs, Triplets
from isometry import chunks as chunks_module
from isometry.chunks import DaskParts, gathered
from isometry.core import parts as parts_module
from isometry.core.edges import ListedEdges
from isometry.core.objective import DistanceObjective
from isometry.core.parts import HeldParts, MeanObjective, current_source, deal, rows_elsewhere
from isometry.core.softmax import SoftmaxEdges
from isometry.probabilistic.ldml import mean_logistic
from isometry.probabilistic.nca import log_objective, same_class, sum_loss, sum_objective
from isometry.sampling import RandomPairs, SignedEdges
from isometry.spectral.impostor_parts import ImpostorsOfParts
from tests.conftest import assert_refitted
from tests.differences import central_differences


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def table(n=600, d=12):
    X, y = load_digits(return_X_y=True)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((64, d)))[0]
    return scale(X[:n] @ turn), y[:n]


class Chunks:
    """Chunks in the memory of this process, for comparison: what Dask must agree with."""

    def __init__(self, X, side, bounds, centre):
        self.X, self.side, self.bounds, self.centre = X, side, bounds, centre

    def parts(self, make):
        spans = [slice(a, b) for a, b in zip(self.bounds[:-1], self.bounds[1:])]
        share = [(s.stop - s.start) / len(self.X) for s in spans]
        return HeldParts([(w, make(self.X[s] - self.centre, self.side[s])) for w, s in zip(share, spans)])


def test_rows_are_dealt_evenly_and_small_classes_stay_together():
    rng = np.random.default_rng(0)
    codes = np.concatenate([np.repeat(np.arange(5), 400), np.repeat(np.arange(5, 25), 12), [25]])
    codes = rng.permutation(codes)
    X = rng.standard_normal((len(codes), 4))
    parts = deal(X, codes, 500, np.random.RandomState(0))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(X)))
    assert len(parts) == -(-len(X) // 500)
    sizes = np.array([len(rows) for rows in parts])
    assert sizes.max() - sizes.min() <= 40
    counts = np.array([np.bincount(codes[rows], minlength=26) for rows in parts])  # (parts, classes)
    assert counts[:, :5].min() == counts[:, :5].max() == 400 / len(parts)
    assert np.all(np.sum(counts[:, 5:] > 0, axis=0) == 1)  # twelve members make one part of at least ten


def test_neither_the_order_of_rows_nor_names_of_classes_change_the_parts():
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((300, 5)), rng.integers(0, 7, 300)
    parts = deal(X, codes, 100, np.random.RandomState(0))
    order = rng.permutation(300)
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    again = deal(X[order] @ turn + 3, (6 - codes)[order], 100, np.random.RandomState(0))
    assert all(set(rows) == set(order[others]) for rows, others in zip(parts, again, strict=True))


@pytest.mark.parametrize("make", [sum_objective, log_objective, MCML()._objective, FastNCA()._accuracy])
def test_the_mean_over_parts_has_the_gradient_of_its_value(make):
    X, y = table(180, 5)
    labels = Labels(y)
    parts = deal(X, labels.codes, 60, np.random.RandomState(0))
    objective = parts_module.mean_over_parts(make, X, labels, parts)
    L = np.random.default_rng(0).standard_normal((3, 5)) / 3
    value, gradient = objective(L)
    assert_allclose(value, sum(len(r) / len(X) * make(X[r], labels[r])(L)[0] for r in parts), rtol=1e-12)
    assert_allclose(gradient, central_differences(lambda M: objective(M)[0], L), atol=1e-6 * np.abs(gradient).max())
    assert_allclose(gradient, 2 * L @ objective.metric_gradient(L), atol=1e-9 * np.abs(gradient).max())
    assert_allclose(parts_module.mean_over_parts(make, X, labels)(L)[0], make(X, labels)(L)[0], rtol=1e-14)


def test_softmax_of_one_part_is_the_whole():
    X, y = table(150, 5)
    whole = DistanceObjective(X, SoftmaxEdges(y), sum_loss(same_class(Labels(y)), len(X)))
    one = MeanObjective(HeldParts([(1.0, sum_objective(X, Labels(y)))]))
    L = np.eye(5)
    assert_allclose(one(L)[0], whole(L)[0], rtol=1e-14)
    assert_refitted(one(L)[1], whole(L)[1], rtol=1e-13)


def test_impostors_of_parts_are_the_sum_of_their_objectives():
    X, y = table(200, 5)
    labels, learner = Labels(y), LMNN()
    rows = deal(X, labels.codes, 70, np.random.RandomState(0))
    parts = [learner._impostors(X[r], labels[r], None) for r in rows]
    problem = ImpostorsOfParts(X, HeldParts([(1.0, part) for part in parts]), 1.0)
    L, mu, tau = np.random.default_rng(0).standard_normal((5, 5)) / 2, 0.4, 0.1
    value, gradient, sharp = problem(L, mu, tau)
    assert_allclose(value, sum(part(L, mu, tau)[0] for part in parts), rtol=1e-12)
    assert_allclose(sharp, sum(part.value(L, mu) for part in parts), rtol=1e-9)
    assert_allclose(problem.value(L, mu), sharp, rtol=1e-9)
    assert_allclose(gradient, central_differences(lambda M: problem(M, mu, tau)[0], L), rtol=1e-5, atol=1e-5)
    push, _ = problem.push_gradient(L, tau)
    assert_allclose(gradient, 2 * L @ ((1 - mu) * problem.target_scatter + mu * push), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("learner", [NCA(max_iter=20), FastNCA(max_iter=20), MCML(max_iter=10), LMNN(max_iter=30)])
def test_many_rows_are_divided_and_it_says_so(monkeypatch, learner):
    X, y = table(900)
    monkeypatch.setattr(parts_module, "MOST_WORK", 1e6)
    monkeypatch.setattr(parts_module, "PART_ROWS", 300)
    learner.set_params(strength=1.0, random_state=0)
    with pytest.warns(UserWarning, match="max_iter"):
        fitted = learner.fit(X, y)
        L = fitted.components_
        assert fitted.n_parts_ == 3 and "one of 3 parts" in fitted.stop_reason_
        assert fitted.history_[-1] < fitted.history_[0]
        assert_refitted(learner.fit(X, y).components_, L)
        whole = learner.set_params(batch_size=None).fit(X, y)
    assert whole.n_parts_ == 1 and "parts" not in whole.stop_reason_
    assert not np.allclose(whole.components_, L, rtol=1e-3)


@pytest.mark.parametrize(
    "learner", [NCA(max_iter=15), FastNCA(max_iter=15), MCML(max_iter=8), LMNN(max_iter=15, n_neighbors=2)]
)
def test_rows_in_dask_chunks_give_the_metric_of_one_process(learner):
    X, y = table()
    learner.set_params(strength=1.0, random_state=0)
    bounds = (0, 250, 400, 600)
    rows = da.from_array(X, chunks=((250, 150, 200), (5, 7)))
    assert np.array_equal(gathered(rows, y, "NCA")[0], X)  # fewer than are sampled of a large table
    with rows_elsewhere(Chunks(X, Labels(y), bounds, X.mean(axis=0))), pytest.warns(UserWarning, match="max_iter"):
        expected = learner._record(learner._fit(X, Labels(y))) or learner.components_
    with pytest.warns(UserWarning, match="max_iter"):
        fitted = learner.fit(rows, da.from_array(y, chunks=100))
    assert_allclose(fitted.components_, expected, atol=1e-9 * np.abs(expected).max())
    assert_allclose(fitted.transform(rows).compute(), fitted.transform(X), atol=1e-12)
    assert current_source() is None


@pytest.mark.parametrize("learner", [PCCA(4, reg=0.01, max_iter=20), ITML(max_iter=20), LDML(reg=1e-3, max_iter=20)])
def test_pairs_in_dask_chunks_give_the_metric_of_one_process(monkeypatch, learner):
    monkeypatch.setattr(chunks_module, "PAIRS_OF_A_CHUNK", 150)
    X, y = table()
    pairs = RandomPairs(260).draw(X, Labels(y), np.random.RandomState(0))
    used = np.unique(np.concatenate([pairs.i, pairs.j]))
    X, pairs = X[used], pairs[used]
    learner.set_params(strength=1.0, random_state=0)
    with pytest.warns(UserWarning, match="max_iter"):
        expected = learner.fit(X, pairs).mahalanobis_
    with pytest.warns(UserWarning, match="max_iter"):
        fitted = learner.fit(da.from_array(X, chunks=(100, 5)), pairs)
    assert_allclose(fitted.mahalanobis_, expected, atol=1e-7 * np.abs(expected).max())


def test_the_gradient_over_chunks_of_pairs_is_exact(monkeypatch):
    monkeypatch.setattr(chunks_module, "PAIRS_OF_A_CHUNK", 70)
    X, y = table(200, 6)
    pairs = RandomPairs(120).draw(X, Labels(y), np.random.RandomState(0))
    _, _, source = gathered(da.from_array(X, chunks=(60, 6)), pairs, "LDML")
    parts = source.parts(mean_logistic)
    assert isinstance(parts, DaskParts) and len(parts.items) == 4
    sign = np.repeat([1.0, -1.0], 120)
    i, j = (np.concatenate(ends) for ends in zip(pairs.similar[:2], pairs.dissimilar[:2]))
    listed = SignedEdges(ListedEdges(i, j, len(X)), 120.0, 120.0, sign=sign, weight=np.ones(240))
    whole = mean_logistic(X, listed)
    x = [np.random.default_rng(0).standard_normal((6, 6)) / 4, np.array([0.7])]
    value, of_map, of_bias = parts.total(lambda part, x: (part[1](x)[0], *part[1](x)[1]), x)
    assert_allclose(value, whole(x)[0], rtol=1e-12)
    assert_allclose(of_map, whole(x)[1][0], atol=1e-12)
    assert_allclose(of_bias, whole(x)[1][1], atol=1e-12)


def test_automatic_strength_on_dask_chunks(monkeypatch):
    monkeypatch.setattr(chunks_module, "SAMPLED_ROWS", 400)
    X, y = table(900)
    fitted = NCA(random_state=0).fit(da.from_array(X, chunks=(300, 12)), y)
    assert fitted.strength_ > 0 and fitted.n_features_in_ == 12
    assert fitted.score(X, y) > Euclidean().fit(X, y).score(X, y)


def test_what_chunks_cannot_do_is_said():
    X, y = table(60)
    rows = da.from_array(X, chunks=(30, 12))
    for learner, target, message in (
        (NCA(), None, "requires y"),
        (DRML(), y, "needs its rows in memory"),
        (LMNN(), Triplets([0], [1], [2], n_samples=60), "with Labels; it cannot use triplets"),
        (PCCA(2), y, "with Pairs; it cannot use labels"),
        (LMNN(max_impostors=3, strength=1.0), y, "max_impostors=None"),
        (FastNCA(n_updates=1, strength=1.0), y, "n_updates needs all rows"),
        (ITML(prior="covariance", strength=1.0), Pairs([0, 1], [2, 3], [1, 0], n=60), "prior='identity'"),
        (ITML(prior=np.eye(12), strength=1.0), Pairs([0, 1], [2, 3], [1, 0], n=60), "prior='identity'"),
        (NCA(batch_size=32), y, "batch_size=32 is for rows in memory"),
        (NCA(), Labels(np.where(y == 0, -1, y), unlabelled=-1), "no label"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            learner.fit(rows, target)
    with pytest.raises(ValueError, match="got 3 dimensions"):
        NCA().fit(da.zeros((4, 4, 4)), y[:4])
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        NCA().fit(rows[rows[:, 0] > 0], y)
    with pytest.raises(ValueError, match="expecting 12 features"):
        NCA().fit(X, y).transform(da.zeros((4, 3)))
