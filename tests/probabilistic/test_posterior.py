"""Only methods with a posterior answer questions about it; others say who does."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import truncnorm
from sklearn.exceptions import NotFittedError

import isometry
from isometry.base import POSTERIOR_METHODS
from isometry.core.probability import isotonic_link
from isometry.probabilistic.posterior import MetricPosterior, positive_gaussian
from isometry.registry import all_methods
from tests.conftest import make_blobs

WITH_POSTERIOR = {m.load().__name__ for m in all_methods(kind="estimator") if "posterior" in m.traits}


@pytest.mark.parametrize("name", POSTERIOR_METHODS)
def test_a_point_method_names_those_with_a_posterior(name):
    X, y = make_blobs()
    for learner in (isometry.RCA(reg=0.0), isometry.RCA(reg=0.0).fit(X, y)):
        assert not hasattr(learner, name)
        with pytest.raises(AttributeError, match=f"RCA learns one metric.*{name}.*BayesianML and BNCA have"):
            getattr(learner, name)
    for other in WITH_POSTERIOR:
        assert callable(getattr(getattr(isometry, other)(), name))


def test_the_list_of_questions_and_of_those_who_answer_is_complete():
    public = {name for name, value in vars(MetricPosterior).items() if callable(value) and not name.startswith("_")}
    assert set(POSTERIOR_METHODS) == public - {"pair_probability"}  # a point method may have that, as LDML has
    classical = [row.load() for row in all_methods(kind="estimator") if row.family != "deep"]
    assert {c.__name__ for c in classical if isinstance(c, type) and issubclass(c, MetricPosterior)} == WITH_POSTERIOR


def test_other_missing_attributes_fail_in_their_own_words():
    learner = isometry.RCA(reg=0.0)
    with pytest.raises(AttributeError, match="'RCA' object has no attribute 'sample_metrics'"):
        learner.sample_metrics  # noqa: B018
    with pytest.raises(NotFittedError, match="not fitted"):  # a property that raises is not hidden
        learner.mahalanobis_  # noqa: B018
    X, y = make_blobs()
    learner.fit(X, y)
    assert pickle.loads(pickle.dumps(learner)).get_params() == copy.deepcopy(learner).get_params()


def test_truncated_draws_are_those_of_the_gaussian_that_are_not_negative():
    """P09, psd="truncate": Gibbs draws against plain rejection, and far in a tail where rejection finds nothing."""
    rng = np.random.RandomState(0)
    mean, V = np.array([0.3, -0.4, 1.0]), np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
    plain = rng.multivariate_normal(mean, V, size=20_000)
    accepted = plain[(plain >= 0).all(axis=1)]
    draws = positive_gaussian(np.ones((len(accepted), 3)), mean, np.linalg.inv(V), rng)
    assert draws.min() >= 0
    assert_allclose(draws.mean(axis=0), accepted.mean(axis=0), atol=0.03)
    assert_allclose(np.cov(draws.T), np.cov(accepted.T), atol=0.04)
    tail = positive_gaussian(np.ones((20_000, 1)), np.array([-30.0]), np.eye(1), rng, sweeps=2)
    assert_allclose(tail.mean(), truncnorm.mean(30, np.inf, loc=-30), rtol=0.03)


def test_sampled_metrics_are_cut_or_truncated():
    X, y = make_blobs()
    fit = isometry.BayesianML(prior_precision=0.5).fit(X[::6], y[::6])
    K = len(fit.basis_)
    scale = np.sum(fit.basis_**2, axis=1)
    cut, positive = (
        np.sum(fit.sample_metric(4000, psd=psd, random_state=0) ** 2, axis=2) / scale for psd in ("clip", "truncate")
    )
    mean, V = fit.posterior_mean_[-K:], fit.posterior_covariance_[-K:, -K:]
    plain = np.random.RandomState(1).multivariate_normal(mean, V, size=200_000)
    accepted = plain[(plain >= 0).all(axis=1)]
    assert_allclose(cut.mean(axis=0), np.maximum(plain, 0).mean(axis=0), rtol=0.05)
    assert_allclose(positive.mean(axis=0), accepted.mean(axis=0), rtol=0.05)
    assert np.any(cut == 0) and np.all(positive > 0)
    with pytest.raises(ValueError, match="psd='drop' is unknown"):
        fit.sample_metric(psd="drop")


def test_isotonic_link_falls_and_keeps_the_shares():
    rng = np.random.default_rng(0)
    excess, weight = rng.standard_normal(4000), rng.uniform(0.5, 2, 4000)
    similar = rng.random(4000) < 0.8 / (1 + np.exp(3 * excess))
    x, p = isotonic_link(excess, similar, weight, 40)
    assert len(x) == 40
    assert np.all(np.diff(x) > 0) and np.all(np.diff(p) <= 0) and 0 < p[-1] < p[0] < 1
    # 100 pairs a bin, each bin with four more of the base rate: 0.05 is the error of a share, 4 times that for 40 bins
    assert_allclose(p, 0.8 / (1 + np.exp(3 * x)), atol=0.2)
    order = np.argsort(excess)
    bins = [
        (s @ w, w.sum()) for s, w in zip(similar[order].reshape(40, -1), weight[order].reshape(40, -1), strict=True)
    ]
    base, added = np.average(similar, weights=weight), 4 * weight.mean()
    plain = np.array([(s + base * added) / (w + added) for s, w in bins])
    level = np.cumsum(np.append(True, np.diff(p) < 0))  # bins of one level are pooled: their mean is the level
    for k in np.unique(level):
        pooled = np.average(
            plain[level == k], weights=[w for (_, w), here in zip(bins, level == k, strict=True) if here]
        )
        assert_allclose(p[level == k], pooled, rtol=1e-9)
    one = isotonic_link(np.array([0.3]), np.array([True]), np.ones(1), 5)
    assert_allclose(one, [[0.3], [1.0]])


def test_what_a_posterior_needs_survives_the_store(tmp_path):
    X, y = make_blobs()
    first, second = slice(0, None, 2), slice(1, None, 2)
    for learner in (isometry.BNCA(), isometry.BayesianML(), isometry.BayesianML(memory=100)):
        fit = learner.fit(X[first], y[first])
        fit.save(tmp_path / "fit.safetensors")
        again = isometry.load(tmp_path / "fit.safetensors")
        if isinstance(fit, isometry.BayesianML):
            fit.partial_fit(X[second], y[second])
            again.partial_fit(X[second], y[second])
        pairs = np.array([[0, 1], [0, 40], [3, 30]])
        for name in ("pair_probability", "pair_sqdist_moments"):
            assert_allclose(getattr(again, name)(X, pairs), getattr(fit, name)(X, pairs), rtol=1e-12)
        assert_allclose(again.select_queries(X, 3, strategy="bald")[1], fit.select_queries(X, 3, strategy="bald")[1])
        assert again.elbo_ == pytest.approx(fit.elbo_)
