"""Metrics that follow from class moments: learned in one pass, from arrays, mapped files, chunks or Dask arrays."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from isometry.base import check_side
from isometry.chunks import is_dask, mapped
from isometry.core.frame import Frame
from isometry.core.moments import ArrayMoments, ClassMoments, ListedMoments, StreamMoments
from isometry.core.scale import check_scale
from isometry.core.solve import Solution
from isometry.core.warn import warn_user
from isometry.parameters import check_parameters
from isometry.strength import AutomaticStrength, analytic_choice
from isometry.supervision import Chunklets, Labels, Pairs, Slices, Supervision, Targets, as_supervision
from isometry.supervision.targets import MIN_SLICE

FAN_IN = 2  # moments merged by one task of a Dask graph: they may be larger than a chunk


class MomentsMetric(AutomaticStrength):
    """Abstract: a metric that follows from class moments alone, so that rows are read once, in any order and place.

    A method supplies ``_fit_moments``. It then learns from arrays and mapped files (in blocks), from chunks
    (``partial_fit``) and from Dask arrays, with the same result to rounding.

    A method that weighs all classes alike sets ``_pooled``: chunks then leave one scatter, not one for each class.

    For a method that learns from `Targets`, the classes are ``n_slices`` slices of samples with near targets.
    """

    moments_: StreamMoments  # of the chunks so far; absent after a fit on an array, which keeps nothing
    slices_: Slices  # of targets, as the first of these chunks gave them

    @property
    def _pooled(self) -> bool | str:
        """Whether chunks leave the sum of the class scatters alone; or, in words, why chunks are not enough."""
        return False

    def _fit_moments(self, moments: Any) -> Solution | None:
        """Learn from `ClassMoments`, or from `ListedMoments` if the method sees pairs.

        With fewer samples than features they are moments in the row space, where the map is learned and ``lift``-ed.
        """
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or Dask array of shape (n_samples, n_features)
            Table in memory, mapped from a file (it is then read in blocks), or a Dask array chunked by rows, of which
            one chunk for each worker is in memory at a time.
        y : array-like, Supervision or None, default=None
            Class labels, or a supervision object over the rows of X; with a Dask array, labels as an array of either
            kind.
        **more : dict
            What else a method takes, by name; if not said otherwise, further features of the samples (n_samples, …).

        Returns
        -------
        self
            The fitted metric.
        """
        for name in ("moments_", "slices_"):
            self.__dict__.pop(name, None)
        if not is_dask(X):
            return super().fit(X, y, **more)
        if isinstance(self._pooled, str):
            raise ValueError(f"{type(self).__name__} cannot learn from chunks of rows: {self._pooled}")
        check_parameters(self)
        if Targets in self._sees and y is not None:
            self.slices_ = self._slices_of(Targets(np.asarray(y)))
        self.moments_ = _dask_moments(self, X, y)
        self.n_features_in_ = X.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        lack = self._lack(self.moments_)
        if lack:
            raise ValueError(lack)
        self._record(self._learn_from(self.moments_))
        return self

    def _supervise(self, y: Any, n: int, *, part: bool = False) -> Supervision | None:
        if isinstance(y, Pairs) and Pairs not in self._sees:
            y.refuse_weights(f"{type(self).__name__} makes groups of similar pairs")
        return super()._supervise(y, n, part=part)

    def _learns_from_chunks(self) -> bool:
        if isinstance(self._pooled, str):
            raise AttributeError(f"{type(self).__name__} cannot learn from chunks of rows: {self._pooled}")
        return True

    @available_if(_learns_from_chunks)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add a chunk of rows and learn from all chunks so far: the same metric as one fit on all of them.

        Until the chunks hold what the method needs, say a second class, there is no metric yet and no error. After a
        fit on an array, which keeps no moments, the first chunk begins anew, with a warning.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Chunk of samples, with the features of the chunks before.
        y : array-like, Labels or None, default=None
            Class labels of these rows; new classes may appear in any chunk. `Labels` can mark some as unlabelled.

        Returns
        -------
        self
            The metric of all chunks so far.
        """
        check_parameters(self)
        first = not hasattr(self, "moments_")
        if first and hasattr(self, "components_"):
            del self.components_
            warn_user(
                f"this {type(self).__name__} was learned by fit, which keeps no moments to add to: partial_fit forgets "
                "it and begins with this chunk"
            )
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=first)
        chunk = self._chunk_moments(X, y)
        self.moments_ = chunk if first else self.moments_.merge(chunk)
        if not self._lack(self.moments_):
            self._record(self._learn_from(self.moments_))
        return self

    def transform(self, X: Any) -> Any:
        """Map X to the space where the learned distance is Euclidean.

        Parameters
        ----------
        X : array-like or Dask array of shape (n_samples, n_features)
            Samples; a Dask array is mapped chunk by chunk, lazily.

        Returns
        -------
        ndarray or Dask array of shape (n_samples, p)
            The mapped samples.
        """
        if not is_dask(X):
            return super().transform(X)
        self._check_fitted()
        return mapped(self, X)

    def _fit(self, X: np.ndarray, side: Any) -> Solution | None:
        return self._fit_moments(self._moments_of_rows(X, side))

    def _fit_each(self, X: np.ndarray, side: Any, **more: Any) -> Iterator[Any]:
        if more or isinstance(self._pooled, str):  # moments are not all that this fit looks at
            yield from super()._fit_each(X, side, **more)
            return
        yield from self._fit_each_to(self._moments_of_rows(X, side), 1.0)

    def path(self, moments: ClassMoments | ListedMoments) -> Iterator[tuple[float, np.ndarray]]:
        """The way from the strongest ridge to the weakest: each of ``regs``, with the map that it gives.

        For whoever holds moments and chooses among metrics by rows of their own; the learner itself stays unfitted.

        Parameters
        ----------
        moments : ClassMoments or ListedMoments
            What the metrics follow from.

        Yields
        ------
        tuple of float and array
            A ridge, and the map (p, d).
        """
        C = moments.covariance()
        learner = clone(self)
        learner.n_features_in_ = len(C)
        each = learner._fit_each_to(moments, float(np.trace(C)) / len(C))
        for reg in self.regs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of metrics among which one will be chosen
                L = next(each).components_
            yield reg, L.astype(np.float64)

    def _fit_each_to(self, moments: Any, unit: float) -> Iterator[Any]:
        """Learners of all ``regs`` from the same moments, of rows whose features have this mean variance."""
        for reg in self.regs:
            learner = self._with(reg * (unit if self.reg_has_unit else 1.0))
            learner._fit_moments(moments)
            yield learner

    def _learn_from(self, moments: StreamMoments) -> Solution | None:
        """Learn from moments alone: there are no rows to try a metric on."""
        if self.reg != "auto":
            return self._fit_moments(moments)
        C = moments.pooled() / max(moments.counts.sum(), 1)
        choice = analytic_choice(C, int(moments.counts.sum()), "there are no rows to try it on, but moments of chunks")
        unit = float(np.sqrt(np.trace(moments.covariance()) / len(C))) or 1.0
        return self._keep(choice, lambda learner: learner._fit_moments(moments), None, unit)

    def _moments_of_rows(self, X: np.ndarray, side: Any) -> ClassMoments | ListedMoments:
        """Moments of the rows; with fewer samples than features, in the row space."""
        moments = self._moments_of(X, side)
        if X.shape[1] > len(X):
            frame = Frame.of(X.astype(np.float64))  # what float32 rounds would hide a null space
            of_features, moments = moments, self._moments_of(frame.X, side)
            moments.frame, moments.of_features, moments.dtype = frame, of_features, of_features.dtype
        return moments

    def _moments_of(self, X: np.ndarray, side: Any) -> ClassMoments | ListedMoments:
        if isinstance(side, Pairs):
            return ListedMoments(X, side.similar, side.dissimilar)
        if isinstance(side, Targets):
            side = Labels.from_codes(self._slices_of(side).codes(side))
        codes, classes = groups(side, len(X))
        n_classes = None if classes is None else len(classes)
        moments = ArrayMoments(X, codes, n_classes, differ=getattr(side, "negative_links", None))
        lack = self._lack(moments)
        if lack:
            raise ValueError(lack)
        return moments

    def _chunk_moments(self, X: np.ndarray, y: Any) -> StreamMoments:
        """Moments of some rows with their labels."""
        name = type(self).__name__
        if y is None and self._requires_y:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        side = as_supervision(y, len(X), numbers=Targets in self._sees)
        if isinstance(side, Targets) and Targets in self._sees:
            if not hasattr(self, "slices_"):
                self.slices_ = self._slices_of(side)
            codes = self.slices_.codes(side)
            return StreamMoments(X.shape[1], pooled=bool(self._pooled)).update(X, codes)
        if side is not None and not isinstance(side, Labels):
            raise TypeError(
                f"{name} learns from chunks with class labels; it cannot use {side.kind}, whose numbers hold in one "
                "chunk only"
            )
        if side is not None and Labels in self._sees and not side.labelled.all():
            X, side = X[side.labelled], side[side.labelled]
        check_scale(X, varied=False)
        codes, classes = groups(side, len(X))
        return StreamMoments(X.shape[1], pooled=bool(self._pooled)).update(X, codes, classes)

    def _slices_of(self, targets: Targets) -> Slices:
        """Where targets are cut; if they are part of a stream, for all that follow."""
        check_side(targets, (), type(self).__name__)
        return Slices.of(targets, max(2, min(self.get_params(deep=False)["n_slices"], len(targets) // MIN_SLICE)))

    def _lack(self, moments: ClassMoments) -> str:
        """What these rows lack to learn from, in words."""
        name, chunklets = type(self).__name__, Chunklets in self._sees
        if moments.counts.sum() + moments.rest().n < 2:
            return f"{name} needs at least 2 samples"
        if "dissimilar" in self._needs and not moments.any_differ:
            if chunklets:
                return (
                    f"{name} needs at least 2 classes, chunklets with negative links, or dissimilar pairs; y holds none"
                )
            return f"{name} needs at least 2 classes; y has {moments.n_classes} class"
        if "similar" in self._needs and moments.counts.max(initial=0) < 2:
            if chunklets:
                what = "needs a class or chunklet with at least 2 samples, or similar pairs; y holds none"
                return f"no chunklet has 2 samples: {name} {what}"
            return f"{name} needs a class with at least 2 samples; every class in y has one"
        if isinstance(moments, StreamMoments) and not moments.covariance().any():
            return f"{name} needs samples that differ; all rows so far are equal"
        return ""

    def _check_fitted(self) -> None:
        if hasattr(self, "moments_") and not hasattr(self, "components_"):
            raise NotFittedError(f"{self._lack(self.moments_)}. Call partial_fit with more rows")
        super()._check_fitted()


def groups(side: Any, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(n,) codes of the classes whose moments are taken, −1 for rows of none, and the names of the classes.

    Without supervision all rows are one class.
    """
    if side is None:
        return np.zeros(n, dtype=np.intp), np.zeros(1, dtype=np.intp)
    return side.codes, getattr(side, "classes", None)


def _dask_moments(learner: MomentsMetric, X: Any, y: Any) -> StreamMoments:
    """Moments of a Dask array: chunks become moments where they are, and only moments travel."""
    delayed: Any = importlib.import_module("dask").delayed  # Dask is typed in part only
    from_array: Any = importlib.import_module("dask.array").from_array

    name = type(learner).__name__
    if X.ndim != 2:
        raise ValueError(f"{name} expects a table (n_samples, n_features) as a Dask array, got {X.ndim} dimensions")
    X = X.rechunk({1: -1})
    if y is None:
        labels: list[Any] = [None] * X.numblocks[0]
    else:
        y = y if is_dask(y) else from_array(np.asarray(y), chunks=(X.chunks[0],))
        if not np.isnan(X.shape[0]) and not np.isnan(y.shape[0]):
            if len(X) != len(y):
                raise ValueError(f"X has {len(X)} rows but y has {len(y)} entries")
            y = y.rechunk((X.chunks[0],))
        labels = list(y.to_delayed().ravel())
    if len(labels) != X.numblocks[0]:
        raise ValueError(f"X has {X.numblocks[0]} chunks of rows but y has {len(labels)}: chunk them alike")
    twin = clone(learner)
    if hasattr(learner, "slices_"):
        twin.slices_ = learner.slices_
    of_chunk = delayed(partial(_check_and_sum, twin), pure=False)
    parts = [of_chunk(rows, names) for rows, names in zip(X.to_delayed().ravel(), labels, strict=True)]
    while len(parts) > 1:
        parts = [delayed(_merged, pure=False)(parts[k : k + FAN_IN]) for k in range(0, len(parts), FAN_IN)]
    return parts[0].compute()


def _check_and_sum(learner: MomentsMetric, X: Any, y: Any) -> StreamMoments:
    return learner._chunk_moments(check_array(X, dtype=(np.float64, np.float32), ensure_min_samples=0), y)


def _merged(parts: list[StreamMoments]) -> StreamMoments:
    """One of all; the parts may be needed again and stay as they are."""
    total = copy.deepcopy(parts[0])
    for part in parts[1:]:
        total.merge(part)
    return total


def label_moments(X: np.ndarray, labels: Labels) -> ArrayMoments:
    """Class moments of labelled rows."""
    return ArrayMoments(X, labels.codes, len(labels.classes))


def mean_pair_scatters(X: np.ndarray, side: Labels | Pairs) -> tuple[np.ndarray, np.ndarray]:
    """M_S, M_D: mean of (x_i − x_j)(x_i − x_j)ᵀ over similar and over dissimilar pairs; all pairs if given labels."""
    if isinstance(side, Labels):
        return label_moments(X, side).mean_pair_scatters()
    return ListedMoments(X, side.similar, side.dissimilar).mean_pair_scatters()
