"""How metric-learn's estimators behave, over our learners and `PairVerifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from isometry import FixedMetric, PairVerifier
from isometry.registry import get


def as_published(learner: Any) -> Any:
    """A learner whose strength is not chosen by the data, as theirs is not."""
    params, row = learner.get_params(), get(type(learner).__name__)
    return learner.set_params(**{name: value for name, value in row.published.items() if params[name] == "auto"})


class MahalanobisMixin(TransformerMixin, BaseEstimator):
    """A learner over samples, or names of samples and a preprocessor."""

    preprocessor: Any = None

    def _prepare_inputs(self, X: Any, y: Any = None, type_of_inputs: str = "classic", **more: Any) -> Any:
        """What their tests' own learners call first; checks are left to `PairVerifier`."""
        X = np.asarray(X)
        return X if y is None else (X, np.asarray(y))

    def _rng(self) -> Any:
        return check_random_state(self.random_state)

    def _points(self, X: Any) -> Any:
        if self.preprocessor is None or np.ndim(X) > 1:
            return X
        X = np.asarray(X)
        return self.preprocessor(X) if callable(self.preprocessor) else np.asarray(self.preprocessor)[X]

    def _side(self, X: Any, y: Any) -> Any:
        return y

    def fit(self, X: Any, y: Any = None) -> Any:
        X = self._points(X)
        self.metric_ = as_published(self._learner())
        self.metric_.fit(X, None if y is None else self._side(np.asarray(X), y))
        self.n_features_in_ = self.metric_.n_features_in_
        if hasattr(self.metric_, "n_iter_"):
            self.n_iter_ = self.metric_.n_iter_
        return self

    @property
    def components_(self) -> Any:
        return self.metric_.components_

    @components_.setter
    def components_(self, L: Any) -> None:
        """Their tests put a known map into a learner."""
        L = np.atleast_2d(L)
        self.metric_ = FixedMetric(components=L).fit(np.vstack([np.zeros(L.shape[1]), np.eye(L.shape[1])]))
        self.verifier_ = PairVerifier(FrozenEstimator(self.metric_), preprocessor=self.preprocessor)
        self.verifier_.metric_, self.verifier_.n_features_in_ = self.metric_, L.shape[1]

    def transform(self, X: Any) -> Any:
        check_is_fitted(self, "metric_")
        return self.metric_.transform(self._points(X))

    def _tuples(self, T: Any) -> Any:
        T = np.asarray(T)
        if self.preprocessor is None or T.ndim == 3:
            return T
        return self._points(T.ravel()).reshape(*T.shape, -1)

    def pair_distance(self, T: Any) -> Any:
        check_is_fitted(self, "metric_")
        return self.metric_.pair_distance(self._tuples(T))

    def pair_score(self, T: Any) -> Any:
        check_is_fitted(self, "metric_")
        return self.metric_.pair_score(self._tuples(T))

    score_pairs = pair_distance

    def get_metric(self) -> Any:
        check_is_fitted(self, "metric_")
        return self.metric_.get_metric()

    def get_mahalanobis_matrix(self) -> Any:
        check_is_fitted(self, "metric_")
        return self.metric_.get_mahalanobis_matrix()


class _Tuples:
    """A learner over tuples: `PairVerifier` with the threshold of the training pairs, as there."""

    def fit(self, T: Any, y: Any = None, calibration_params: dict[str, Any] | None = None) -> Any:
        learner = as_published(self._learner())
        self.verifier_ = PairVerifier(learner, calibration="train", preprocessor=self.preprocessor).fit(T, y)
        self.metric_ = self.verifier_.metric_
        if isinstance(self, _PairsClassifierMixin):
            self.verifier_.calibrate_threshold(T, y, **(calibration_params or {}))
        return self

    def decision_function(self, T: Any) -> Any:
        check_is_fitted(self, "metric_")
        return self.verifier_.decision_function(T)

    def predict(self, T: Any) -> Any:
        check_is_fitted(self, "metric_")
        return self.verifier_.predict(T)

    def score(self, T: Any, y: Any = None) -> Any:
        return self.verifier_.score(T, y)


class _PairsClassifierMixin(_Tuples):
    @property
    def classes_(self) -> Any:
        return self.verifier_.classes_

    @property
    def threshold_(self) -> Any:
        return self.verifier_.threshold_

    @threshold_.setter
    def threshold_(self, value: Any) -> None:
        self.verifier_.threshold_ = self.verifier_.reject_threshold_ = value

    def set_threshold(self, threshold: Any) -> Any:
        check_is_fitted(self, "metric_")
        self.verifier_.set_threshold(threshold)
        return self

    def calibrate_threshold(self, T: Any, y: Any, strategy: str = "accuracy", **more: Any) -> Any:
        check_is_fitted(self, "metric_")
        self.verifier_.calibrate_threshold(T, y, strategy=strategy, **more)
        return self


class _TripletsClassifierMixin(_Tuples):
    pass


class _QuadrupletsClassifierMixin(_Tuples):
    pass


class ArrayIndexer:
    def __init__(self, X: Any):
        self.X = np.asarray(X)

    def __call__(self, indices: Any) -> Any:
        return self.X[indices]


__all__ = ["ArrayIndexer", "MahalanobisMixin"]
