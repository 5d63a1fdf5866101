"""Maps of embeddings that may be adapted to supervision: of queries and documents alike, or of queries alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from threadpoolctl import threadpool_limits

from isometry.core.bilinear import BilinearMoments, query_maps
from isometry.core.graph import components
from isometry.core.moments import ArrayMoments, ClassMoments, ListedMoments
from isometry.core.rows import UnitRows, unit_length
from isometry.fixed import FixedMetric
from isometry.normalized import Normalized
from isometry.registry import get
from isometry.select.candidates import LINEAR_HEADS, MOST_DIMENSIONS
from isometry.spectral import Euclidean
from isometry.strength import mixture

OF_CLASSES = ("GMML", "RCA", "FisherML", "DCA", "Covariance")  # each follows from class moments
OF_PAIRS = ("GMML", "FisherML")  # these follow from listed pairs, too
SHARES = (0.25, 0.5, 1.0)  # of the learned metric in a mixture with the one that is there
QUERY_RIDGES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.01)  # from the identity to least squares
QUERY_MAP = "query map"
HEAD = "linear head"
IDENTITY = "identity"
TRAINED_ROWS = 50_000  # up to which linear heads are trained by batches


class Setting(NamedTuple):
    """What a map is learned by; two folds with the same setting learn maps of the same kind."""

    method: str
    reg: float = 0.0  # ridge
    share: float = 1.0  # of the learned metric, the rest is the one that is there
    unit: bool = False  # whether images are brought to unit length about their mean

    def __str__(self) -> str:
        if self.method == IDENTITY:
            return IDENTITY
        parts = [self.method] + [f"ridge {self.reg:g}"] * (self.reg > 0) + [f"share {self.share:g}"] * (self.share < 1)
        return ", ".join(parts + ["unit length"] * self.unit)


@dataclass(frozen=True)
class Head:
    """A map of rows of unit length: x → Lx, or L(x − m) brought to unit length; of queries alone if so said."""

    L: np.ndarray  # (p, d)
    center: np.ndarray | None = None  # m (d,), where images have unit length
    query_only: bool = False

    def queries(self, X: np.ndarray) -> np.ndarray:
        """Images of queries."""
        if self.query_only:
            return unit_length(X @ self.L.T.astype(X.dtype))
        if self.center is None:
            return np.asarray(X @ self.L.T.astype(X.dtype))
        return unit_length((X - self.center.astype(X.dtype)) @ self.L.T.astype(X.dtype))

    def documents(self, X: np.ndarray) -> np.ndarray:
        """Images of documents: themselves, if the map is of queries alone."""
        return X if self.query_only else self.queries(X)

    def estimator(self, rows: np.ndarray) -> Pipeline:
        """A pipeline that can be saved and exported; it is fitted to some ``rows``, and maps as this does."""
        learner: Any = FixedMetric(self.L)
        if self.query_only or self.center is not None:
            learner = Normalized(learner, center=not self.query_only)
        pipeline = _fitted(make_pipeline(Normalizer(), learner), rows)
        if self.center is not None:  # of all rows, not of these
            pipeline[-1].mean_, pipeline[-1].center_ = self.center, self.L @ self.center
        return pipeline


def identity(rows: np.ndarray) -> Pipeline:
    """Unit length, and nothing else."""
    return _fitted(make_pipeline(Normalizer(), Euclidean()), rows)


def _fitted(pipeline: Pipeline, rows: np.ndarray) -> Pipeline:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns of these rows: nothing is learned from them
        return pipeline.fit(rows)


@dataclass
class Lesson:
    """What some rows teach, in moments; read from the rows once, however many maps follow from it."""

    mean: np.ndarray  # (d,) of the rows
    covariance: np.ndarray  # (d, d)
    moments: list[tuple[tuple[str, ...], Any]]  # methods, and the moments that they follow from
    bilinear: BilinearMoments | None = None  # of queries and documents
    labelled: tuple[np.ndarray, np.ndarray] | None = None  # rows in memory and their classes, for heads trained on them
    failures: dict[str, str] = field(default_factory=dict)  # methods that could not learn from it, and why

    def size_of(self, L: np.ndarray) -> float:
        """tr C / tr LCLᵀ: how much larger squared distances are before the map than after it."""
        C = self.covariance
        return float(np.trace(C) / (np.vdot(L @ C, L) or 1.0))


def class_lesson(X: Any, codes: np.ndarray, *, query_only: bool, heads: bool) -> Lesson:
    """What rows of classes teach; X may be read from a file as it is asked for."""
    known = np.unique(codes, return_inverse=True)[1]
    moments = ArrayMoments(X, known)
    mean = moments.counts @ moments.means / len(X)
    if query_only:
        return Lesson(mean, moments.covariance(), [], class_relevance(moments))
    trained = heads and len(X) <= TRAINED_ROWS and X.shape[1] <= MOST_DIMENSIONS and not isinstance(X, UnitRows)
    return Lesson(mean, moments.covariance(), [(OF_CLASSES, moments)], labelled=(X, known) if trained else None)


def class_relevance(moments: ClassMoments) -> BilinearMoments:
    """All rows are queries and documents; the others of its class are relevant to a query.

    With W_c, μ_c and n_c scatter, mean and size of class c, the others of the class of q have the mean
    (n_c μ_c − q) / (n_c − 1), so that  n M = Σ_c n_c μ_c μ_cᵀ − Σ_c W_c / (n_c − 1), about the mean of the documents.
    """
    n_c, mean = moments.counts, moments.means
    several = n_c >= 2
    n = float(n_c[several].sum())
    within, inner = moments.within(several.astype(np.float64), several / np.maximum(n_c - 1, 1))
    centre = n_c @ mean / n_c.sum()
    outer = (mean * (n_c * several)[:, None]).T @ mean
    of_queries = (n_c * several) @ mean / n
    M = (outer - inner) / n - np.outer(centre, of_queries)
    return BilinearMoments((within + outer) / n, moments.covariance(), M)


def pair_lesson(X: np.ndarray, side: Any, *, query_only: bool) -> Lesson:
    """What pairs or triplets of rows teach."""
    S, D = side.similar, side.dissimilar
    mean, C = X.mean(axis=0, dtype=np.float64), np.cov(X, rowvar=False, ddof=0)
    if query_only:
        i, j, weight = np.concatenate([S.i, S.j]), np.concatenate([S.j, S.i]), np.tile(S.weight, 2)
        return Lesson(mean, C, [], document_relevance(X, X, i, j, weight))
    moments: list[tuple[tuple[str, ...], Any]] = [(OF_PAIRS, ListedMoments(X, S, D))]
    groups = components(S.i, S.j, len(X))
    joined = np.bincount(groups)[groups] > 1
    if np.sum(joined) > len(np.unique(groups[joined])):
        moments.append((("RCA",), ArrayMoments(X[joined], np.unique(groups[joined], return_inverse=True)[1])))
    return Lesson(mean, C, moments)


def document_relevance(
    queries: np.ndarray, documents: np.ndarray, i: np.ndarray, j: np.ndarray, weight: np.ndarray
) -> BilinearMoments:
    """Document j is relevant to query i with this weight; queries to which nothing is relevant take no part."""
    R = sp.csr_matrix((weight, (i, j)), shape=(len(queries), len(documents)))
    total = np.asarray(R.sum(axis=1)).ravel()
    asked = total > 0
    Q, D = queries[asked].astype(np.float64), documents.astype(np.float64)
    D = D - D.mean(axis=0)
    P = sp.diags(1 / total[asked]) @ R[asked] @ D
    return BilinearMoments(Q.T @ Q / len(Q), D.T @ D / len(D), P.T @ Q / len(Q))


def planned_maps(lesson: Lesson, query_only: bool) -> list[tuple[str, float]]:
    """Method and ridge of all that `learned_maps` gives if none fails, in the same order."""
    if query_only:
        return [(QUERY_MAP, reg) for reg in QUERY_RIDGES]
    return [(name, reg) for methods, _ in lesson.moments for name in methods for reg in get(name).make().regs]


def learned_maps(lesson: Lesson, query_only: bool, only: str | None = None) -> Iterator[tuple[str, float, np.ndarray]]:
    """Method, ridge and map (p, d) of all, or ``only`` one, that follow from moments, the strongest ridge first.

    A method that cannot learn from these moments is left out, and ``lesson.failures`` says why.
    """
    if query_only:
        assert lesson.bilinear is not None
        ways = [(QUERY_MAP, zip(QUERY_RIDGES, query_maps(lesson.bilinear, QUERY_RIDGES)))]
    else:
        listed = [(name, moments) for methods, moments in lesson.moments for name in methods]
        ways = [(name, get(name).make().path(moments)) for name, moments in listed if only in (None, name)]
    for name, way in ways:
        try:
            for reg, L in way:
                yield name, reg, L
        except (ValueError, np.linalg.LinAlgError) as error:
            lesson.failures[name] = " ".join(str(error).split())


def can_train(lesson: Lesson) -> bool:
    """Whether a linear head can be trained: there are rows of classes in memory, and torch."""
    return lesson.labelled is not None and bool(find_spec("torch") and find_spec("accelerate"))


def trained_head(lesson: Lesson, seed: int) -> np.ndarray | None:
    """The map (d, d) of a linear head trained by a proxy loss, two passes over the rows; None where it cannot be."""
    if not can_train(lesson):
        return None
    from isometry.deep import DeepMetric

    assert lesson.labelled is not None
    X, codes = lesson.labelled
    batches: dict[str, Any] = {"classes_per_batch": 32, "samples_per_class": 4, "max_epochs": 2, "min_steps": 100}
    model = DeepMetric("linear", LINEAR_HEADS[0], n_components=X.shape[1], random_state=seed, **batches)
    # batches are small: threads would wait for each other longer than they save, on a busy machine by minutes
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a search that is short on purpose
        model.fit(X, codes)
    return np.asarray(model.weights_["weight"] / model.scale_, dtype=np.float64)


class Blends:
    """Images of rows under all mixtures of one learned map with the metric that is there, from one product."""

    def __init__(self, lesson: Lesson, X: np.ndarray):
        self.lesson, self.X = lesson, X
        self.size = float(np.trace(lesson.covariance))

    def under(self, L: np.ndarray) -> Iterator[tuple[float, bool, np.ndarray]]:
        """Share, whether images have unit length, and images whose squared distances are those of the mixture."""
        X, centred = self.X, self.X - self.lesson.mean.astype(self.X.dtype)
        Z = centred @ L.T.astype(X.dtype)
        learned = np.sqrt(self.lesson.size_of(L) / self.size)
        for share in SHARES:
            parts = [np.sqrt(share) * learned * Z]
            if share < 1:
                parts.append(np.sqrt((1 - share) / self.size) * centred)
            images = np.hstack(parts).astype(X.dtype)
            yield share, False, images
            yield share, True, unit_length(images)


def make_head(lesson: Lesson, setting: Setting, L: np.ndarray) -> Head:
    """The head of a setting from its learned map."""
    if setting.method == QUERY_MAP:
        return Head(L, query_only=True)
    mixed = L if setting.share == 1 else mixture(L, setting.share, lesson.size_of(L))
    return Head(mixed, lesson.mean if setting.unit else None)
