"""Only methods with a posterior answer questions about it; others say who does."""

from __future__ import annotations

import copy
import pickle

import pytest
from sklearn.exceptions import NotFittedError

import isometry
from isometry.base import POSTERIOR_METHODS, WITH_POSTERIOR
from isometry.probabilistic.posterior import MetricPosterior
from isometry.registry import all_methods
from tests.conftest import make_blobs


@pytest.mark.parametrize("name", POSTERIOR_METHODS)
def test_a_point_method_names_those_with_a_posterior(name):
    X, y = make_blobs()
    for learner in (isometry.RCA(), isometry.RCA().fit(X, y)):
        assert not hasattr(learner, name)
        with pytest.raises(AttributeError, match=f"RCA learns one metric.*{name}.*BayesianML and BNCA have"):
            getattr(learner, name)
    for other in WITH_POSTERIOR:
        assert callable(getattr(getattr(isometry, other)(), name))


def test_the_list_of_questions_and_of_those_who_answer_is_complete():
    public = {name for name in vars(MetricPosterior) if not name.startswith("_")}
    assert set(POSTERIOR_METHODS) == public - {"pair_probability"}  # a point method may have that, as LDML has
    classical = [row.load() for row in all_methods(kind="estimator") if row.family != "deep"]
    assert {c.__name__ for c in classical if isinstance(c, type) and issubclass(c, MetricPosterior)} == set(
        WITH_POSTERIOR
    )


def test_other_missing_attributes_fail_in_their_own_words():
    learner = isometry.RCA()
    with pytest.raises(AttributeError, match="'RCA' object has no attribute 'sample_metrics'"):
        learner.sample_metrics  # noqa: B018
    with pytest.raises(NotFittedError, match="not fitted"):  # a property that raises is not hidden
        learner.mahalanobis_  # noqa: B018
    X, y = make_blobs()
    learner.fit(X, y)
    assert pickle.loads(pickle.dumps(learner)).get_params() == copy.deepcopy(learner).get_params()
