"""The estimator contract: MetricLearner → LinearMetric → ObjectiveMetric, all abstract."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.core.distance import pair_sqdist
from isometry.core.linalg import fix_signs, row_range
from isometry.core.objective import Objective, minimize_batches, minimize_psd
from isometry.core.solve import Progress, Solution, lbfgs
from isometry.core.start import initial_map
from isometry.supervision import Labels, Pairs, Supervision, as_supervision

__all__ = ["LinearMetric", "Metric", "MetricLearner", "ObjectiveMetric"]

WITH_POSTERIOR = ("BayesianML", "BNCA")  # learners of a distribution over metrics, and what only they can do
POSTERIOR_METHODS = (
    "pair_distance_interval",
    "pair_sqdist_moments",
    "query_score",
    "sample_metric",
    "select_queries",
)


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Abstract: learns a map; the learned distance is the Euclidean one after ``transform``."""

    _sees: ClassVar[tuple[type[Supervision], ...]] = (Labels,)  # kinds of supervision ``_fit`` takes; () for none
    _needs: ClassVar[tuple[str, ...]] = ()  # of "similar", "dissimilar": kinds of pairs that must not be missing
    _needs_y: ClassVar[bool] = True
    _uses_unlabelled: ClassVar[bool] = False  # semi-supervised: −1 in y means unlabelled, and such rows count

    def fit(self, X: Any, y: Any = None) -> MetricLearner:
        """Learn the metric.

        Parameters
        ----------
        X : (n_samples, n_features) table
        y : class labels, or a supervision object such as `Pairs`, `Triplets` or `Chunklets` over the rows of X
        """
        X = self._validate_samples(X, reset=True)
        side = self._supervise(y, len(X))
        if isinstance(side, Labels) and not self._uses_unlabelled and not side.labelled.all():
            X, side = X[side.labelled], side[side.labelled]
        self._fit(X, side)
        return self

    def _fit(self, X: np.ndarray, side: Any) -> None:
        raise NotImplementedError

    def _validate_samples(self, X: Any, *, reset: bool) -> np.ndarray:
        """X as a table of floats; methods whose samples are matrices take another shape here."""
        return validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2 if reset else 1, reset=reset)

    def _supervise(self, y: Any, n: int) -> Supervision | None:
        """``y`` as one of the kinds this method sees, or an error that says what it needs."""
        name = type(self).__name__
        if not self._sees:
            return None
        if y is None:
            if self._needs_y:
                raise ValueError(f"{name} requires y to be passed, but the target y is None")
            return None
        side: Any = as_supervision(y, n, unlabelled=-1 if self._uses_unlabelled else None)
        for kind in self._sees:
            if isinstance(side, kind):
                break
        else:
            converted = next((c for c in (side.to(kind) for kind in self._sees) if c is not None), None)
            if converted is None:
                kinds = " or ".join(kind.kind for kind in self._sees)
                raise TypeError(f"{name} learns from {kinds}; it cannot use {side.kind}")
            side = converted
        self._check_side(side)
        return side

    def _check_side(self, side: Supervision) -> None:
        """Refuse supervision that carries no information for this method."""
        name = type(self).__name__
        if isinstance(side, Labels):
            if not self._needs:
                return
            if len(side.classes) < 2 and "dissimilar" in self._needs:
                raise ValueError(f"{name} needs at least 2 classes; y has {len(side.classes)} class")
            if "similar" in self._needs and side.counts.max(initial=0) < 2:
                raise ValueError(f"{name} needs a class with at least 2 samples; every class in y has one")
        elif isinstance(side, Pairs):
            for need in self._needs:
                if len(getattr(side, need).i) == 0:
                    raise ValueError(f"{name} needs {need} pairs; y holds none")

    def transform(self, X: Any) -> np.ndarray:
        """Map X to the space where the learned distance is Euclidean."""
        self._check_fitted()
        return self._transform(self._validate_samples(X, reset=False))

    def _transform(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def pair_distance(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Learned distances of listed pairs.

        Either rows X (n, d) with ``pairs`` as (m, 2) indices or a `Pairs` object, or X as an array (m, 2, d) of pairs.
        """
        if pairs is None:
            T = np.asarray(X)
            if T.ndim != 3 or T.shape[1] != 2:
                raise ValueError(f"without `pairs`, X must have shape (m, 2, d), got {T.shape}")
            Z = self.transform(T.reshape(-1, T.shape[2])).reshape(len(T), 2, -1)
            return np.linalg.norm(Z[:, 0] - Z[:, 1], axis=1)
        i, j = (pairs.i, pairs.j) if hasattr(pairs, "i") else np.asarray(pairs).T
        return np.sqrt(pair_sqdist(np.asarray(self.transform(X)), np.asarray(i), np.asarray(j)))

    def score(self, X: Any, y: Any) -> float:
        """Leave-one-out 1-NN accuracy of labels, or the area under the ROC curve of pairs, in the learned space."""
        from isometry.eval import get_scorer

        side = as_supervision(y)
        if side is None:
            raise ValueError(f"{type(self).__name__}.score requires y to be passed, but the target y is None")
        return get_scorer("knn" if isinstance(side, Labels) else "pair_auc")(self, X, side)

    def save(self, path: Any) -> None:
        """Write the fitted metric to one file; `isometry.load` reads it back."""
        from isometry.io.store import save

        save(self, path)

    def _record(self, solution: Solution) -> None:
        """Leave ``n_iter_``, ``history_`` and ``stop_reason_``, and warn if the solver gave up."""
        self.n_iter_, self.history_ = solution.n_iter, np.asarray(solution.history, dtype=np.float64)
        self.stop_reason_, self.converged_ = solution.reason, bool(solution.converged)
        if not solution.converged:
            limit = "n_epochs" if hasattr(self, "n_epochs") else "max_iter"
            warnings.warn(
                f"{type(self).__name__} did not converge: {solution.reason}. Raise `{limit}`, or `tol` if this is "
                "accurate enough; the metric found so far is kept",
                ConvergenceWarning,
                stacklevel=4,
            )

    if not TYPE_CHECKING:  # a type checker should still find misspelt attributes

        def __getattr__(self, name: str) -> Any:
            """Called for missing attributes: who asks a point estimate for a posterior is told where there is one."""
            if name in POSTERIOR_METHODS:
                raise AttributeError(
                    f"{type(self).__name__} learns one metric, not a distribution over metrics, so it has no {name!r}; "
                    f"{' and '.join(WITH_POSTERIOR)} have"
                )
            return object.__getattribute__(self, name)  # fails again, with its own words

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self._sees) and self._needs_y
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Metric:
    """d(u, v) = |L(u − v)| for two vectors; picklable, fit for any place that takes a metric function."""

    def __init__(self, components: np.ndarray):
        self.components = components

    def __call__(self, u: Any, v: Any, squared: bool = False) -> float:
        z = self.components @ (np.asarray(u, dtype=np.float64) - np.asarray(v, dtype=np.float64))
        return float(z @ z) if squared else float(np.sqrt(z @ z))


class LinearMetric(MetricLearner):
    """Abstract: a Mahalanobis metric W = LᵀL given by ``components_`` L (p, d).

    If L has fewer independent rows than columns this is a pseudo-metric: distinct points can be at distance 0.
    """

    components_: np.ndarray

    def _transform(self, X):
        return X @ self.components_.T.astype(X.dtype, copy=False)

    def _set_components(self, L: np.ndarray, dtype: Any) -> None:
        self.components_ = np.ascontiguousarray(L, dtype=dtype)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    @property
    def mahalanobis_(self) -> np.ndarray:
        """W = LᵀL (d, d)."""
        self._check_fitted()
        L = self.components_.astype(np.float64)
        return L.T @ L

    def get_mahalanobis_matrix(self) -> np.ndarray:
        """W = LᵀL (d, d), under the name metric-learn uses."""
        return self.mahalanobis_

    def get_metric(self) -> Metric:
        """The learned distance as a function of two vectors."""
        self._check_fitted()
        return Metric(self.components_.astype(np.float64))

    def _check_n_components(self, d: int) -> int | None:
        p = getattr(self, "n_components", None)
        if p is None or isinstance(p, str):
            return None
        if not 1 <= p <= d:
            raise ValueError(f"n_components={p} must be between 1 and the number of features, {d}")
        return int(p)


class ObjectiveMetric(LinearMetric):
    """Abstract: minimises an objective on distances over maps L (p, d).

    A method supplies ``_objective``; the engine starts it, solves it, and records how that went. A method whose problem
    is convex in W sets ``_convex``: with p = d its minimum is then certified as global.
    """

    _convex: ClassVar[bool] = False

    def _start_sqdist(self, Z: np.ndarray, rng: np.random.RandomState) -> float:
        """The squared distance that becomes 1 at the start; only named starts are scaled."""
        return 1.0

    def _objective(self, X: np.ndarray, side: Any, rng: np.random.RandomState) -> Objective:
        """The problem, on centred X."""
        raise NotImplementedError

    def _warm_up(self, X: np.ndarray, side: Any) -> Objective | None:
        """A kinder objective to begin with, for at most a third of the iterations; None: none is needed."""
        return None

    def _improve(self, objective: Objective, solution: Solution, rng: np.random.RandomState, options: dict) -> Solution:
        """What can be made of a solution with the iterations it left over; by default nothing."""
        return solution

    def _start_size(self, d: int, side: Any) -> int:
        """Number of rows of L that the search works on."""
        return self._check_n_components(d) or d

    def _fit(self, X, side):
        dtype, rng = X.dtype, check_random_state(getattr(self, "random_state", None))
        p = self._check_n_components(X.shape[1])
        X = X - X.mean(axis=0)  # distances do not change, cancellation does
        basis = row_range(X) if X.shape[1] > len(X) else None  # n < d: differences live in at most n − 1 dimensions
        if basis is not None:
            X = X @ basis.astype(dtype)
        objective, d = self._objective(X, side, rng), X.shape[1]
        init = getattr(self, "init", "identity")
        rows = d if self._convex else min(self._start_size(d, side), d)
        L0 = initial_map(X, side, init, rows, rng, basis=basis)
        if isinstance(init, str):
            L0 /= np.sqrt(self._start_sqdist(X @ L0.T.astype(dtype), rng))
        with Progress(getattr(self, "verbose", False), type(self).__name__, self.max_iter) as progress:
            warm, spent = self._warm_up(X, side), 0
            if warm is not None:
                first = self._minimize(warm, L0, rng, max_iter=self.max_iter // 3, tol=1e-3, progress=progress)
                L0, spent = first.x, first.n_iter
            options = {"max_iter": self.max_iter - spent, "tol": self.tol, "progress": progress}
            solution = self._improve(objective, self._minimize(objective, L0, rng, **options), rng, options)
        solution.n_iter += spent
        if not solution.converged and solution.n_iter >= self.max_iter:
            solution.reason = f"max_iter={self.max_iter} reached"
        L = self._finish(solution.x, p)
        self._set_components(L if basis is None else L @ basis.T, dtype)
        self._record(solution)

    def _minimize(self, objective: Objective, L: np.ndarray, rng: np.random.RandomState, **options: Any) -> Solution:
        """In batches if the user asks for them, else as a whole."""
        if (size := getattr(self, "batch_size", None)) is not None:
            return minimize_batches(objective, L, size, rng, **options)
        if self._convex:
            return minimize_psd(objective, objective.metric_gradient, L, **options)
        return lbfgs(objective, L, **options)

    def _finish(self, L: np.ndarray, p: int | None) -> np.ndarray:
        """The rows that leave the solver: rotated so that the widest direction comes first."""
        _, s, Vt = np.linalg.svd(L, full_matrices=False)
        keep = s > 1e-7 * s[0] if self._convex and s[0] > 0 else np.ones(len(s), dtype=bool)
        return fix_signs((s[:, None] * Vt)[keep][:p])
