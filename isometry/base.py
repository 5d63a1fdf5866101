"""The estimator contract: MetricLearner → LinearMetric, both abstract."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.core.distance import pair_distances
from isometry.core.progress import progress
from isometry.core.scale import check_scale, check_units, some_rows
from isometry.core.solve import Solution
from isometry.core.warn import warn_user
from isometry.parameters import check_parameters, one_of
from isometry.registry import all_methods
from isometry.sampling import lacks_negatives, with_random_negatives
from isometry.supervision import Chunklets, Labels, Pairs, Quadruplets, Supervision, Targets, Triplets, as_supervision
from isometry.supervision.targets import looks_like_codes

__all__ = [
    "LinearMetric",
    "MetaLearner",
    "Metric",
    "MetricLearner",
    "OnlineMetric",
    "check_components",
    "check_side",
    "pair_rows",
    "row_numbers",
    "text_columns",
]

POSTERIOR_METHODS = (  # what only learners of a distribution over metrics can do
    "pair_distance_interval",
    "pair_sqdist_moments",
    "query_score",
    "sample_metric",
    "select_queries",
)


def text_columns(X: Any) -> str:
    """Which columns of a DataFrame are no numbers, and the first half of what to do, in words; "" if there are none."""
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return ""
    others = [str(name) for name, kind in zip(X.columns, X.dtypes, strict=True) if kind.kind not in "fiub"]
    return f"Columns of X that do not hold numbers: {', '.join(others)}. Drop them" if others else ""


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Abstract: learns a map; the learned distance is the Euclidean one after ``transform``."""

    # What a method file states. Kinds of supervision it takes; None among them: it learns without y, too; (): no kind
    _sees: ClassVar[tuple[type[Supervision] | None, ...]] = (Labels,)
    # Samples without a label are "dropped" before ``_fit``, or "kept". "minus one": kept, and −1 in y marks them
    _unlabelled: ClassVar[str] = "dropped"

    verbose: bool | int = False  # for methods that have no such parameter

    @property
    def _needs(self) -> tuple[str, ...]:
        """Kinds of pairs that must not be missing, of "similar" and "dissimilar"; a method may assign others."""
        return ("similar", "dissimilar")

    def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like, Supervision or None, default=None
            Class labels, targets of a regression, or a supervision object such as `Pairs`, `Triplets` or `Chunklets`
            over the rows of X; None for methods that need none.
        **more : dict
            What else a method takes, by name; if not said otherwise, further features of the samples (n_samples, …).

        Returns
        -------
        self
            The fitted metric.
        """
        own = {"update", "scatters"}  # arguments of ``_fit`` that only learners themselves give
        unknown = sorted(more.keys() - inspect.signature(self._fit).parameters.keys() | more.keys() & own)
        if unknown:
            raise TypeError(f"{type(self).__name__}.fit takes X and y, and no {unknown[0]!r}")
        check_parameters(self)
        X = self._validate_samples(X, reset=True)
        side = self._supervise(y, len(X))
        more = {name: self._validate_more(name, value, len(X)) for name, value in more.items() if value is not None}
        if isinstance(side, Labels) and self._unlabelled == "dropped" and not side.labelled.all():
            rows = side.labelled
            more = {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in more.items()}
            X, side = X[rows], side[rows]
        learns = bool(self._sees or self.get_params(deep=False))  # Euclidean distance does not, and takes any samples
        check_scale(X, varied=learns)
        if learns and X.ndim == 2 and not getattr(self, "standardize", False):
            check_units(X)
        with progress(self.verbose, type(self).__name__, self.get_params(deep=False).get("max_iter")):
            solution = self._learn(X, side, **more)
        if learns:
            _warn_of_one_point(self, X)
        self._record(solution)
        return self

    def _learn(self, X: np.ndarray, side: Any, **more: Any) -> Solution | None:
        """``_fit``, or for methods that can, the choice of how strong the metric should be, and then ``_fit``."""
        return self._fit(X, side, **more)

    def _validate_more(self, name: str, value: Any, n: int) -> Any:
        """A further argument of ``fit`` that ``_fit`` takes: a table, one row for each sample.

        "groups" and "tasks" name the group of each sample; groups become codes 0, 1, …
        """
        if name in ("groups", "tasks"):
            named = Labels(value)
            if len(named) != n:
                raise ValueError(f"X has {n} samples but {name} has {len(named)}: give one name for each sample")
            return named.codes if name == "groups" else named.classes[named.codes]
        Z = check_array(value, dtype=np.float64, input_name=name)
        if len(Z) != n:
            raise ValueError(f"X has {n} samples but {name} has {len(Z)}: give one row for each sample")
        check_scale(Z, name, varied=False)
        return Z

    def _fit(self, *args: Any, **kwargs: Any) -> Solution | None:
        """``_fit(X, side)``: learn from valid samples and one of the kinds of supervision in ``_sees``.

        Returns how a solver ended, if one ran. Further arguments are those that ``fit`` takes by name.
        """
        raise NotImplementedError

    def _validate_samples(self, X: Any, *, reset: bool) -> np.ndarray:
        """X as a table of floats; methods whose samples are matrices take another shape here."""
        at_least, dtypes = 2 if reset else 1, (np.float64, np.float32)
        shape = np.shape(X) if isinstance(X, (list, tuple, np.ndarray)) else ()
        if len(shape) == 3 and shape[1] in (2, 3, 4):
            raise ValueError(
                f"X has shape {shape}: Found array with dim 3, which looks like tuples of samples. "
                f"{type(self).__name__} takes a table (n_samples, n_features): make one by X, pairs = "
                "Pairs.from_tuples(tuples, y), or give the tuples to PairVerifier"
            )
        try:
            return validate_data(self, X, dtype=dtypes, ensure_min_samples=at_least, reset=reset)
        except ValueError as error:
            if "could not convert" in str(error) and (words := text_columns(X)):
                raise ValueError(
                    f"{error}. {words}, or encode them first, with OneHotEncoder in a ColumnTransformer"
                ) from error
            raise

    @property
    def _requires_y(self) -> bool:
        return bool(self._sees) and (None not in self._sees or bool(self._needs))

    def _supervise(self, y: Any, n: int, *, part: bool = False) -> Supervision | None:
        """``y`` as one of the kinds this method sees, or an error that says what it needs.

        A ``part`` of a stream may lack one kind of pairs, which other parts bring.
        """
        name, kinds = type(self).__name__, [kind for kind in self._sees if kind is not None]
        if not kinds:
            return None
        if y is None:
            if self._requires_y:
                raise ValueError(f"{name} requires y to be passed, but the target y is None")
            return None
        unlabelled = -1 if self._unlabelled == "minus one" else None
        side: Any = as_supervision(y, n, unlabelled=unlabelled, numbers=Targets in kinds)
        if {Targets, Labels} <= set(kinds) and looks_like_codes(y):
            warn_user(
                f"y holds the whole numbers from 0 to {np.max(y)}, as codes of classes do, and {name} takes them for "
                "numbers to predict. Pass Labels(y) if they are classes, Targets(y) to say that they are numbers"
            )
        if not part:
            side = self._completed(side)
        if not isinstance(side, tuple(kinds)):
            converted = next((c for c in (side.to(kind) for kind in kinds) if c is not None), None)
            if converted is None:
                wanted = " or ".join(kind.kind for kind in kinds)
                raise TypeError(f"{name} learns from {wanted}; it cannot use {side.kind}")
            if isinstance(side, Triplets | Quadruplets):
                warn_user(_taken_apart(side, converted, name))
            side = converted
        check_side(side, () if part else self._needs, name)
        return side

    def _completed(self, side: Any) -> Any:
        """Supervision as it is; similar pairs alone, where others are needed, with pairs drawn at random."""
        takes_pairs = any(kind is not None and issubclass(kind, (Pairs, Chunklets)) for kind in self._sees)
        if not takes_pairs or "dissimilar" not in self._needs or not lacks_negatives(side):
            return side
        full = with_random_negatives(side, check_random_state(getattr(self, "random_state", None) or 0))
        self.n_sampled_negatives_ = len(full.i) - len(side.i)
        warn_user(
            f"y holds no dissimilar pairs, which {type(self).__name__} needs: {self.n_sampled_negatives_} pairs of "
            "rows were drawn at random in their place, a few of which may be similar. Give Pairs with dissimilar ones "
            "if some are known"
        )
        return full

    def transform(self, X: Any) -> np.ndarray:
        """Map X to the space where the learned distance is Euclidean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, p)
            The mapped samples.
        """
        self._check_fitted()
        return self._transform(self._validate_samples(X, reset=False))

    def _transform(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    @property
    def _n_features_out(self) -> int:
        """Number of columns that ``transform`` gives, for the names that scikit-learn makes of it."""
        return int(self._transform(np.zeros((1, self.n_features_in_))).shape[1])

    def _check_fitted(self) -> None:
        check_is_fitted(self)

    def pair_distance(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Learned distances of listed pairs.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            The distances.
        """
        if pairs is None:
            T = np.asarray(X)
            if T.ndim != 3 or T.shape[1] != 2:
                raise ValueError(f"without `pairs`, X must have shape (m, 2, d), got {T.shape}")
            rows = np.arange(2 * len(T)).reshape(-1, 2).T
            return pair_distances(np.asarray(self.transform(T.reshape(-1, T.shape[2]))), *rows)
        Z = np.asarray(self.transform(X))
        return pair_distances(Z, *pair_rows(pairs, len(Z)))

    def pair_score(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Minus the learned distances of pairs: higher for pairs that are more alike.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            Minus the distances.
        """
        return -self.pair_distance(X, pairs)

    def score(self, X: Any, y: Any) -> float:
        """How well neighbours in the learned space agree: higher is better, and 1 is perfect.

        Leave-one-out 1-NN accuracy of labels, the area under the ROC curve of pairs, or the R² of a leave-one-out 5-NN
        regression of targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, best such that the metric was not learned from.
        y : array-like or Supervision
            Their labels, targets, or `Pairs` over them.

        Returns
        -------
        float
            The score.
        """
        from isometry.eval import get_scorer

        side = as_supervision(y, numbers=Targets in self._sees)
        if side is None:
            raise ValueError(f"{type(self).__name__}.score requires y to be passed, but the target y is None")
        name = "knn" if isinstance(side, Labels) else "knn_r2" if isinstance(side, Targets) else "pair_auc"
        return get_scorer(name)(self, X, side)

    def save(self, path: Any) -> None:
        """Write the fitted metric to one file; `isometry.load` reads it back.

        Parameters
        ----------
        path : str or path-like
            The file to write; by custom it ends in ``.safetensors``. An older file is replaced only by a complete one.
        """
        from isometry.io.store import save

        save(self, path)

    def export(self, path: Any, form: str | None = None) -> Any:
        """Write the metric in a form that runs without isometry, named by the ending of ``path``.

        ``.npy`` and ``.safetensors`` hold the matrix of a linear map; ``.onnx`` and ``.py`` (NumPy alone) maps with
        kernels, layers and unit length, too; ``.duckdb.sql`` and ``.pgvector.sql`` map inside a database; a name
        without an ending is a folder with a Dense module of sentence-transformers. See `isometry.io.forms`.

        Parameters
        ----------
        path : str or path-like
            File or folder; its ending names the form.
        form : str or None, default=None
            Name of a form, whatever the ending.

        Returns
        -------
        Path
            What was written.
        """
        from isometry.io.forms import export

        return export(self, path, form)

    def card(self, X: Any = None, y: Any = None) -> dict[str, Any]:
        """What is known of the metric: parameters, sizes, versions.

        `save` writes parameters and sizes into every file; ``isometry.save(metric, path, metric.card(X, y))`` all.

        Parameters
        ----------
        X : array-like of shape (n, d) or None, default=None
            Rows of which a fingerprint is added: give rows that it was not learned from.
        y : array-like, Supervision or None, default=None
            With X, the quality of the metric on these rows is added as well.

        Returns
        -------
        dict
            What is known, as JSON can hold it.
        """
        from isometry.io.model_card import card

        self._check_fitted()
        return card(self, X, y)

    def _record(self, solution: Solution | None) -> None:
        """Leave ``n_iter_``, ``history_`` and ``stop_reason_``, and warn if the solver gave up."""
        if solution is None:
            return
        self.n_iter_, self.history_ = solution.n_iter, np.asarray(solution.history, dtype=np.float64)
        self.stop_reason_, self.converged_ = solution.reason, bool(solution.converged)
        if not solution.converged and not solution.on_purpose:
            limit = "n_epochs" if hasattr(self, "n_epochs") else "max_iter"
            warn_user(
                f"{type(self).__name__} did not converge: {solution.reason}. Raise `{limit}`, or `tol` if this is "
                "accurate enough; the metric found so far is kept",
                ConvergenceWarning,
            )

    if not TYPE_CHECKING:  # a type checker should still find misspelt attributes

        def __getattr__(self, name: str) -> Any:
            """Called for missing attributes: who asks a point estimate for a posterior is told where there is one."""
            if name in POSTERIOR_METHODS:
                others = dict.fromkeys(row.name.partition("[")[0] for row in all_methods() if "posterior" in row.traits)
                raise AttributeError(
                    f"{type(self).__name__} learns one metric, not a distribution over metrics, so it has no {name!r}; "
                    f"{' and '.join(others)} have"
                )
            return object.__getattribute__(self, name)  # raises Python's own AttributeError

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._requires_y
        tags.target_tags.multi_output = Targets in self._sees
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class MetaLearner(MetricLearner):
    """Abstract: a metric made of another learner, its parameter ``learner``, from the supervision that this one takes.

    ``_fit`` leaves the fitted learner as ``learner_``.
    """

    learner: Any
    learner_: Any

    @property
    def _sees(self) -> tuple[type[Supervision] | None, ...]:  # type: ignore[override]
        return getattr(self.learner, "_sees", ())

    @property
    def _needs(self) -> tuple[str, ...]:
        return self.learner._needs

    @property
    def _unlabelled(self) -> str:  # type: ignore[override]
        return self.learner._unlabelled

    def _supervise(self, y: Any, n: int, *, part: bool = False) -> Supervision | None:
        if not isinstance(self.learner, MetricLearner):
            raise TypeError(f"learner must be a metric learner such as GMML(), got {self.learner!r}")
        return self.learner._supervise(y if part else self._completed(y), n, part=part)

    def _take_report(self, learner: MetricLearner) -> None:
        """Say how the learner ended as if it had been this one."""
        for name in ("n_iter_", "history_", "stop_reason_", "converged_"):
            if hasattr(learner, name):
                setattr(self, name, getattr(learner, name))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if isinstance(self.learner, MetricLearner):
            tags.target_tags.required = self.learner.__sklearn_tags__().target_tags.required
        return tags


def _warn_of_one_point(learner: MetricLearner, X: np.ndarray) -> None:
    """Say so if a learned metric cannot tell any two of its samples apart: perhaps the optimum, but of no use."""
    for rows in (some_rows(X)[:4], some_rows(X), X):  # the fewest that show it: maps of kernels are dear
        Z = learner._transform(rows)
        if (Z.max(axis=0) > Z.min(axis=0)).any():
            return
    warn_user(
        f"{type(learner).__name__} has learned a metric by which all {len(X)} samples are at distance 0 of one "
        "another. Either what y says contradicts all differences of the samples (do only a few of them differ from the "
        "others?), or a penalty outweighs it: see the parameters"
    )


def _taken_apart(side: Triplets | Quadruplets, made: Supervision, name: str) -> str:
    """What becomes of comparisons in a method that knows pairs or groups only, in words."""
    near, far = ("a and p", "a and n") if isinstance(side, Triplets) else ("a and b", "c and d")
    groups = ", and groups of similar samples are made of these" if made.kind == "chunklets" else ""
    return (
        f"{name} does not compare distances: of each of the {side.kind}, {near} become a similar pair and {far} a "
        f"dissimilar one, whatever else is near{groups}. LMNN and RelativeML learn from comparisons as they are"
    )


def check_side(side: Supervision, needs: tuple[str, ...], name: str) -> None:
    """Refuse supervision without the kinds of pairs that a method needs."""
    if isinstance(side, Labels):
        if len(side.classes) < 2 and "dissimilar" in needs:
            raise ValueError(f"{name} needs at least 2 classes; y has {len(side.classes)} class")
        if "similar" in needs and side.counts.max(initial=0) < 2:
            raise ValueError(f"{name} needs a class with at least 2 samples; every class in y has one")
    elif isinstance(side, Pairs):
        for need in needs:
            if len(getattr(side, need).i) == 0:
                raise ValueError(f"{name} needs {need} pairs; y holds none")
    elif isinstance(side, Targets) and side.varying.shape[1] == 0:
        raise ValueError(
            f"{name} needs targets that vary; y is constant, {side.values[:1].ravel().tolist()} in every row"
        )


def row_numbers(rows: Any, n: int) -> np.ndarray:
    """(m, k) row numbers of tuples, checked: numbers of rows that a table of n rows has."""
    rows = np.asarray(rows)
    if rows.ndim != 2 or rows.dtype.kind not in "iu":
        raise ValueError(f"pairs must be an integer array (m, 2) of row numbers, got {rows.dtype} of {rows.shape}")
    if rows.size and not (rows.min() >= 0 and rows.max() < n):
        raise ValueError(f"pairs name rows {rows.min()} to {rows.max()}, but X has rows 0 to {n - 1}")
    return rows


def pair_rows(pairs: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers i, j (m,) of pairs given as (m, 2) or as a `Pairs` object, for a table of n rows."""
    rows = row_numbers(np.stack([pairs.i, pairs.j], axis=1) if hasattr(pairs, "i") else pairs, n)
    if rows.shape[1] != 2:
        raise ValueError(f"a distance is one of two samples, but each tuple has {rows.shape[1]}")
    return rows[:, 0], rows[:, 1]


def check_components(p: int | str | None, d: int) -> int | None:
    """``n_components`` if it is at least 1 and at most the number of features; None if it is None or "auto"."""
    if p is None or isinstance(p, str):
        one_of("n_components", p, ("auto", None))
        return None
    if not 1 <= p <= d:
        raise ValueError(f"n_components={p} must be between 1 and the number of features, {d}")
    return int(p)


class Metric:
    """d(u, v) = |L(u − v)| for two vectors; picklable, fit for any place that takes a metric function."""

    def __init__(self, components: np.ndarray):
        self.components = components

    def __call__(self, u: Any, v: Any, squared: bool = False) -> float:
        z = np.atleast_2d(self.components) @ (self._vector(u) - self._vector(v))
        return float(z @ z) if squared else float(np.sqrt(z @ z))

    def _vector(self, u: Any) -> np.ndarray:
        """(d,); a table of one row, or of one column, is taken for what it holds."""
        x, d = np.atleast_1d(np.squeeze(np.asarray(u, dtype=np.float64))), np.shape(self.components)[-1]
        if x.shape != (d,):
            raise ValueError(f"a metric of {d} features compares two vectors of as many; got shape {np.shape(u)}")
        return x


class LinearMetric(MetricLearner):
    """Abstract: a Mahalanobis metric W = LᵀL given by ``components_`` L (p, d).

    If L has fewer independent rows than columns this is a pseudo-metric: distinct points can be at distance 0.
    """

    components_: np.ndarray

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return X @ self.components_.T.astype(X.dtype, copy=False)

    def _store(self, L: np.ndarray, dtype: Any) -> None:
        """Keep the map, in the type of the data."""
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
        """W = LᵀL, under the name that metric-learn uses.

        Returns
        -------
        ndarray of shape (d, d)
            The matrix.
        """
        return self.mahalanobis_

    def get_metric(self) -> Metric:
        """The learned distance as a function of two vectors.

        Returns
        -------
        callable
            Function of two arrays of shape (d,), for scikit-learn's and scipy's ``metric=``.
        """
        self._check_fitted()
        return Metric(self.components_.astype(np.float64))


class OnlineMetric(LinearMetric):
    """Abstract: a Mahalanobis metric that goes on learning from further samples.

    ``_fit`` takes a third argument, whether to update the metric so far instead of learning a new one.
    """

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Update the metric by further samples and their supervision.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like, Supervision or None, default=None
            Supervision such as `Pairs` over the rows of X, or labels.

        Returns
        -------
        self
            The updated metric.
        """
        check_parameters(self)
        X = self._validate_samples(X, reset=not hasattr(self, "components_"))
        side = self._supervise(y, len(X), part=True)
        if isinstance(side, Labels) and not side.labelled.all():
            X, side = X[side.labelled], side[side.labelled]
        check_scale(X, varied=False)
        with progress(self.verbose, type(self).__name__, self.get_params(deep=False).get("max_iter")):
            solution = self._fit(X, side, update=True)
        self._record(solution)
        return self
