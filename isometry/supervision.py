"""Side information as an object over the n samples: it travels in ``y`` and can be cut by scikit-learn's splitters.

Every object has a length (the number of samples), similar and dissimilar edges, and an indexing that returns the
induced sub-object, renumbered, so that `Pipeline`, `cross_validate` and `GridSearchCV` work with it.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import type_of_target

from isometry.core.distance import sqdist
from isometry.core.graph import components as graph_components

__all__ = [
    "Candidates",
    "Chunklets",
    "Labels",
    "Pairs",
    "Quadruplets",
    "Supervision",
    "Targets",
    "Triplets",
    "Views",
    "as_supervision",
]

MAX_SLICES = 10  # of targets that are cut into classes
MIN_SLICE = 5  # samples in a slice, on average


class EdgeList(NamedTuple):
    """Listed pairs with weights."""

    i: np.ndarray  # (m,)
    j: np.ndarray  # (m,)
    weight: np.ndarray  # (m,)

    @classmethod
    def make(cls, i: ArrayLike, j: ArrayLike, weight: ArrayLike | None = None) -> EdgeList:
        i, j = np.asarray(i, dtype=np.intp), np.asarray(j, dtype=np.intp)
        return cls(i, j, np.ones(len(i)) if weight is None else np.asarray(weight, dtype=np.float64))


class Supervision:
    """Abstract: what is known about the samples. Subclasses hold index arrays and say how to cut and convert them."""

    kind: ClassVar[str] = "supervision"
    # whether an index may name a sample twice, as a bootstrap does; a pair of two copies of one sample means nothing
    repeatable: ClassVar[bool] = False
    n_samples: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that scikit-learn sees: one entry for each sample."""
        return (self.n_samples,)

    @property
    def ndim(self) -> int:
        """The number of dimensions that scikit-learn sees."""
        return 1

    def __len__(self) -> int:
        return self.n_samples

    @property
    def similar(self) -> EdgeList:
        """Pairs that are known to be similar."""
        raise NotImplementedError(f"{self.kind} have no similar pairs")

    @property
    def dissimilar(self) -> EdgeList:
        """Pairs that are known to be dissimilar."""
        raise NotImplementedError(f"{self.kind} have no dissimilar pairs")

    def components(self) -> np.ndarray:
        """A group number for each sample such that no edge joins two groups: for group-wise splitting.

        Returns
        -------
        ndarray of shape (n,)
            The group numbers.
        """
        i = np.concatenate([self.similar.i, self.dissimilar.i])
        j = np.concatenate([self.similar.j, self.dissimilar.j])
        return graph_components(i, j, self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        """This information as another kind.

        Parameters
        ----------
        kind : type
            A class of supervision, such as `Pairs`.

        Returns
        -------
        Supervision or None
            The same information; None if that is impossible.
        """
        if isinstance(self, kind):
            return self
        if not issubclass(kind, (Pairs, Chunklets)):
            return None
        return Pairs.from_edges(self.similar, self.dissimilar, self.n_samples).to(kind)

    def __getitem__(self, index: Any) -> Self:
        return cast(Self, self._take(_row_index(index, self.n_samples, self.repeatable)))

    def _take(self, rows: np.ndarray) -> Supervision:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_samples={self.n_samples})"


class Labels(Supervision):
    """A class label for each sample.

    Parameters
    ----------
    y : array-like of shape (n,)
        The labels, numbers or text.
    unlabelled : object, default=None
        The value that means "label unknown" (scikit-learn's semi-supervised convention is −1); it is off by default,
        because −1 is also half of the popular pair of labels {−1, +1}.

    Notes
    -----
    What ``fit(X, y)`` makes of an array ``y``; write it out to say which label means "unknown".

    Examples
    --------
    >>> from isometry import Labels
    >>> side = Labels(["cat", "dog", "cat", "?"], unlabelled="?")
    >>> side.classes.tolist(), side.codes.tolist()
    (['cat', 'dog'], [0, 1, 0, -1])
    """

    kind = "labels"
    repeatable = True
    classes: np.ndarray  # (c,) sorted
    codes: np.ndarray  # (n,) index of the label in classes, −1 if unlabelled

    def __init__(self, y: Any, *, unlabelled: Any = None):
        y = _label_array(y.codes if isinstance(y, Labels) else y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.ravel()
        if y.ndim != 1:
            raise ValueError(f"labels must be one-dimensional, got shape {y.shape}")
        missing = _missing(y)
        if missing.any():
            raise ValueError(
                f"y has {missing.sum()} missing labels (first at row {np.flatnonzero(missing)[0]}); drop those rows, "
                "or code them with a value of their own and pass Labels(y, unlabelled=that_value)"
            )
        if y.dtype.kind == "f" and type_of_target(y) == "continuous":
            raise ValueError("Unknown label type: continuous. y must hold class labels; bin a continuous target first")
        self.n_samples = len(y)
        known = None if unlabelled is None else np.asarray(y != unlabelled)
        _refuse_mixed(y if known is None else y[known])
        self.classes, self.codes = _unique_with_codes(y, known)

    @classmethod
    def from_codes(cls, codes: np.ndarray, classes: np.ndarray | None = None) -> Labels:
        """Labels from integer codes.

        Parameters
        ----------
        codes : ndarray of shape (n,)
            Codes 0..c−1, with −1 for unlabelled rows; codes that do not occur are closed up.
        classes : ndarray of shape (c,) or None, default=None
            Names of the classes; None: their codes.

        Returns
        -------
        Labels
            The labels.
        """
        self = cls.__new__(cls)
        codes = np.asarray(codes)
        present, self.codes = _unique_with_codes(codes, codes >= 0)
        self.classes = present if classes is None else np.asarray(classes)[present]
        self.n_samples = len(codes)
        return self

    @property
    def counts(self) -> np.ndarray:
        """Number of samples of each class."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.classes))

    @property
    def labelled(self) -> np.ndarray:
        """Which samples have a label."""
        return self.codes >= 0

    @property
    def pair_counts(self) -> tuple[float, float]:
        """How many pairs of labelled samples are similar, and how many dissimilar."""
        n_c, n = self.counts.astype(np.float64), float(self.counts.sum())
        similar = float(np.sum(n_c * (n_c - 1)) / 2)
        return similar, n * (n - 1) / 2 - similar

    def _pairs(self, same: bool) -> EdgeList:
        i, j = np.triu_indices(self.n_samples, 1)
        known = (self.codes[i] >= 0) & (self.codes[j] >= 0)
        keep = known & ((self.codes[i] == self.codes[j]) == same)
        return EdgeList.make(i[keep], j[keep])

    @property
    def similar(self) -> EdgeList:
        """All similar pairs i < j, listed: O(n²). The learners never list them."""
        return self._pairs(True)

    @property
    def dissimilar(self) -> EdgeList:
        """All dissimilar pairs i < j, listed: O(n²). The learners never list them."""
        return self._pairs(False)

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        if issubclass(kind, Chunklets):
            return Chunklets(self.codes, negative_links="all")
        if issubclass(kind, Candidates) and self.labelled.all():
            return Candidates(np.eye(len(self.classes), dtype=bool)[self.codes])
        return super().to(kind)

    def _take(self, rows: np.ndarray) -> Labels:
        return Labels.from_codes(self.codes[rows], self.classes)


class Pairs(Supervision):
    """Pairs of samples known to be similar or dissimilar.

    Parameters
    ----------
    i : array-like of int, shape (m,)
        One sample of each pair, 0 ≤ i < n.
    j : array-like of int, shape (m,)
        The other sample of each pair, 0 ≤ j < n.
    similar : array-like of shape (m,) or None, default=None
        Booleans; or +1/−1; or a soft similarity in [0, 1], which makes a pair similar with weight s and dissimilar with
        weight 1 − s. With a target it may be left out: such pairs are neither.
    n : int
        Number of samples.
    weight : array-like of shape (m,) or None, default=None
        Weights ≥ 0: a pair of weight 2 counts as if it were listed twice, one of weight 0 as if it were not listed.
        Methods that cannot weigh pairs refuse weights that differ.
    target : array-like of shape (m,) or None, default=None
        The distance each pair should have, for the methods that can use it.

    Notes
    -----
    For verification, duplicates and answers of people: which samples belong together, where nobody knows the class.
    Similar pairs alone are enough: where a method needs dissimilar ones, random pairs of rows stand in. Pairs are
    over the rows of X, so that scalers and splits work as ever; tuples as metric-learn has them become pairs by
    ``Pairs.from_tuples``.

    Examples
    --------
    >>> from isometry import Pairs
    >>> side = Pairs([0, 0, 2], [1, 2, 3], [True, False, True], n=4)
    >>> len(side.similar.i), len(side.dissimilar.i)
    (2, 1)
    >>> side.components().tolist()
    [0, 0, 0, 0]
    """

    kind = "pairs"

    def __init__(
        self,
        i: ArrayLike,
        j: ArrayLike,
        similar: ArrayLike | None = None,
        *,
        n: int,
        weight: ArrayLike | None = None,
        target: ArrayLike | None = None,
    ):
        self.n_samples = int(n)
        self.i, self.j = _indices(i, n, "i"), _indices(j, n, "j")
        self.target = None if target is None else _targets(target, len(self.i))
        if similar is None and target is None:
            raise ValueError("pairs say which are similar, or what distance each should have: give similar or target")
        s = np.full(len(self.i), np.nan) if similar is None else np.asarray(similar)
        if not len(self.i) == len(self.j) == len(s):
            raise ValueError(f"i, j and similar must have equal lengths, got {len(self.i)}, {len(self.j)} and {len(s)}")
        if np.any(self.i == self.j):
            raise ValueError(f"pair {int(np.argmax(self.i == self.j))} joins a sample with itself")
        s = s.astype(np.float64)
        if len(s) and s.min() == -1 and np.all(np.abs(s) == 1):
            s = (s + 1) / 2
        if similar is not None and not np.all((s >= 0) & (s <= 1)):
            raise ValueError("similar must hold booleans, +1/-1, or similarities in [0, 1]")
        self.similarity = s
        self.weight = _weights(weight, len(s), "pair")

    @classmethod
    def from_edges(cls, similar: EdgeList, dissimilar: EdgeList, n: int) -> Pairs:
        """Pairs from two lists of edges.

        Parameters
        ----------
        similar : EdgeList
            Similar pairs.
        dissimilar : EdgeList
            Dissimilar pairs.
        n : int
            Number of samples.

        Returns
        -------
        Pairs
            Both lists in one.
        """
        i, j, w = (np.concatenate(part) for part in zip(similar, dissimilar, strict=True))
        return cls(i, j, np.repeat([True, False], [len(similar.i), len(dissimilar.i)]), n=n, weight=w)

    @classmethod
    def from_tuples(
        cls, tuples: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None
    ) -> tuple[np.ndarray, Pairs]:
        """X and Pairs from metric-learn's array and its labels ±1; equal points become one sample.

        A pair of two equal points keeps both: they are two samples at distance 0.

        Parameters
        ----------
        tuples : array-like of shape (m, 2, d)
            Pairs of points.
        y : array-like of shape (m,)
            Labels ±1.
        weight : array-like of shape (m,) or None, default=None
            Weights ≥ 0 of the pairs.

        Returns
        -------
        X : ndarray of shape (n, d)
            The distinct points.
        pairs : Pairs
            The pairs over them.
        """
        X, (i, j) = _rows_of_tuples(tuples, "pairs", apart=[(0, 1)])
        return X, cls(i, j, y, n=len(X), weight=weight)

    def tuples(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """The pairs as metric-learn takes them.

        ``Pairs.from_tuples(*pairs.tuples(X))`` is the reverse; weights and targets stay behind.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Samples.

        Returns
        -------
        tuples : ndarray of shape (m, 2, d)
            Rows of X.
        y : ndarray of shape (m,)
            Labels ±1, or soft similarities.
        """
        s = self.similarity
        return _tuples_of_rows(X, self.n_samples, self.i, self.j), 2 * s - 1 if np.all((s == 0) | (s == 1)) else s

    @property
    def similar(self) -> EdgeList:
        """Similar pairs, with their weights."""
        return self._edges(self.weight * self.similarity)

    @property
    def dissimilar(self) -> EdgeList:
        """Dissimilar pairs, with their weights."""
        return self._edges(self.weight * (1 - self.similarity))

    def _edges(self, weight: np.ndarray) -> EdgeList:
        keep = weight > 0  # false for a pair that is neither, whose weight is not a number
        return EdgeList.make(self.i[keep], self.j[keep], weight[keep])

    def refuse_weights(self, who: str, kinds: tuple[str, ...] = ("similar", "dissimilar")) -> None:
        """Raise an error if the pairs of one kind differ in weight, or similarities are soft.

        Parameters
        ----------
        who : str
            Name of the method that cannot express it.
        kinds : tuple of str, default=('similar', 'dissimilar')
            Kinds of pairs to look at.
        """
        advice = "or take a method that weighs pairs, such as GMML or ITML"
        soft = (self.weight > 0) & (self.similarity > 0) & (self.similarity < 1)
        if soft.any():
            k = int(np.argmax(soft))
            raise ValueError(
                f"{who} and cannot weigh them: pair {k} of y has the similarity {self.similarity[k]:g}. Make it 0 or "
                f"1, leave it out, {advice}"
            )
        for kind in kinds:
            w = getattr(self, kind).weight
            if len(w) and w.min() < w.max():
                raise ValueError(
                    f"{who} and cannot weigh them: the weights of the {kind} pairs of y range from {w.min():g} to "
                    f"{w.max():g}. Make them equal, with 0 for pairs to leave out, {advice}"
                )

    def components(self) -> np.ndarray:
        counts = self.weight > 0
        return graph_components(self.i[counts], self.j[counts], self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        if issubclass(kind, Chunklets):
            self.refuse_weights("chunklets are groups made of similar pairs")
            return _chunklets_from_pairs(self)
        return super().to(kind)

    def _take(self, rows: np.ndarray) -> Pairs:
        (i, j), keep = _renumber(rows, self.n_samples, self.i, self.j)
        similarity = None if np.isnan(self.similarity).any() else self.similarity[keep]
        target = None if self.target is None else self.target[keep]
        return Pairs(i, j, similarity, n=len(rows), weight=self.weight[keep], target=target)

    def __repr__(self) -> str:
        return f"Pairs(n_samples={self.n_samples}, n_pairs={len(self.i)})"


class Triplets(Supervision):
    """Triplets: sample a is nearer to p than to n.

    Parameters
    ----------
    a : array-like of int, shape (m,)
        The sample that the others are compared with.
    p : array-like of int, shape (m,)
        The nearer sample.
    n : array-like of int, shape (m,)
        The farther sample.
    n_samples : int
        Number of samples.
    weight : array-like of shape (m,) or None, default=None
        Weights ≥ 0, as those of `Pairs`: one of weight 2 counts as if it were listed twice.

    Notes
    -----
    For `LMNN`, `RelativeML`, `LSML`, `SCML`, `BoostMetric` and `OASIS`: "this is more like that than like the
    other", from people or from clicks.

    Examples
    --------
    >>> from isometry import Triplets
    >>> side = Triplets([0, 1], [1, 2], [3, 3], n_samples=4)
    >>> len(side.a)
    2
    """

    kind = "triplets"

    def __init__(self, a: ArrayLike, p: ArrayLike, n: ArrayLike, *, n_samples: int, weight: ArrayLike | None = None):
        self.n_samples = int(n_samples)
        self.a, self.p, self.n = (_indices(v, n_samples, name) for v, name in ((a, "a"), (p, "p"), (n, "n")))
        if not len(self.a) == len(self.p) == len(self.n):
            raise ValueError("a, p and n must have equal lengths")
        clash = (self.a == self.p) | (self.a == self.n) | (self.p == self.n)
        if clash.any():
            raise ValueError(f"triplet {int(np.argmax(clash))} uses a sample twice")
        self.weight = _weights(weight, len(self.a), "triplet")

    @classmethod
    def from_tuples(cls, tuples: ArrayLike, *, weight: ArrayLike | None = None) -> tuple[np.ndarray, Triplets]:
        """X and Triplets from metric-learn's array: the first point is nearer to the second than to the last.

        Equal points become one sample, but for those of one triplet.

        Parameters
        ----------
        tuples : array-like of shape (m, 3, d)
            Triplets of points.
        weight : array-like of shape (m,) or None, default=None
            Weights ≥ 0 of the triplets.

        Returns
        -------
        X : ndarray of shape (n, d)
            The distinct points.
        triplets : Triplets
            The triplets over them.
        """
        X, (a, p, n) = _rows_of_tuples(tuples, "triplets", apart=[(0, 1), (0, 2), (1, 2)])
        return X, cls(a, p, n, n_samples=len(X), weight=weight)

    def tuples(self, X: ArrayLike) -> np.ndarray:
        """The triplets as metric-learn takes them.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Samples.

        Returns
        -------
        ndarray of shape (m, 3, d)
            Rows of X.
        """
        return _tuples_of_rows(X, self.n_samples, self.a, self.p, self.n)

    @property
    def similar(self) -> EdgeList:
        """The pairs (a, p), with the weights of the triplets."""
        return EdgeList.make(self.a, self.p, self.weight)

    @property
    def dissimilar(self) -> EdgeList:
        """The pairs (a, n), with the weights of the triplets."""
        return EdgeList.make(self.a, self.n, self.weight)

    def _take(self, rows: np.ndarray) -> Triplets:
        (a, p, n), keep = _renumber(rows, self.n_samples, self.a, self.p, self.n)
        return Triplets(a, p, n, n_samples=len(rows), weight=self.weight[keep])

    def __repr__(self) -> str:
        return f"Triplets(n_samples={self.n_samples}, n_triplets={len(self.a)})"


class Quadruplets(Supervision):
    """Quadruplets: a and b are nearer to each other than c and d are.

    Parameters
    ----------
    a : array-like of int, shape (m,)
        One sample of the near pair.
    b : array-like of int, shape (m,)
        The other sample of the near pair.
    c : array-like of int, shape (m,)
        One sample of the far pair.
    d : array-like of int, shape (m,)
        The other sample of the far pair.
    n_samples : int
        Number of samples.
    weight : array-like of shape (m,) or None, default=None
        Weights ≥ 0, as those of `Pairs`: one of weight 2 counts as if it were listed twice.

    Notes
    -----
    For `LSML` and `RelativeML`: judgements about two pairs that need not share a sample.

    Examples
    --------
    >>> from isometry import Quadruplets
    >>> side = Quadruplets([0, 1], [1, 2], [0, 1], [3, 3], n_samples=4)
    >>> len(side.a)
    2
    """

    kind = "quadruplets"

    def __init__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike,
        d: ArrayLike,
        *,
        n_samples: int,
        weight: ArrayLike | None = None,
    ):
        self.n_samples = int(n_samples)
        self.a, self.b, self.c, self.d = (_indices(v, n_samples, k) for v, k in zip((a, b, c, d), "abcd", strict=True))
        if not len(self.a) == len(self.b) == len(self.c) == len(self.d):
            raise ValueError("a, b, c and d must have equal lengths")
        if np.any((self.a == self.b) | (self.c == self.d)):
            raise ValueError("a quadruplet compares a sample with itself")
        self.weight = _weights(weight, len(self.a), "quadruplet")

    @classmethod
    def from_tuples(cls, tuples: ArrayLike, *, weight: ArrayLike | None = None) -> tuple[np.ndarray, Quadruplets]:
        """X and Quadruplets from metric-learn's array: the first two points are nearer than the last two.

        Equal points become one sample, but for those of one pair.

        Parameters
        ----------
        tuples : array-like of shape (m, 4, d)
            Quadruplets of points.
        weight : array-like of shape (m,) or None, default=None
            Weights ≥ 0 of the quadruplets.

        Returns
        -------
        X : ndarray of shape (n, d)
            The distinct points.
        quadruplets : Quadruplets
            The quadruplets over them.
        """
        X, (a, b, c, d) = _rows_of_tuples(tuples, "quadruplets", apart=[(0, 1), (2, 3)])
        return X, cls(a, b, c, d, n_samples=len(X), weight=weight)

    def tuples(self, X: ArrayLike) -> np.ndarray:
        """The quadruplets as metric-learn takes them.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Samples.

        Returns
        -------
        ndarray of shape (m, 4, d)
            Rows of X.
        """
        return _tuples_of_rows(X, self.n_samples, self.a, self.b, self.c, self.d)

    @property
    def similar(self) -> EdgeList:
        """The near pairs (a, b), with the weights of the quadruplets."""
        return EdgeList.make(self.a, self.b, self.weight)

    @property
    def dissimilar(self) -> EdgeList:
        """The far pairs (c, d), with the weights of the quadruplets."""
        return EdgeList.make(self.c, self.d, self.weight)

    def _take(self, rows: np.ndarray) -> Quadruplets:
        (a, b, c, d), keep = _renumber(rows, self.n_samples, self.a, self.b, self.c, self.d)
        return Quadruplets(a, b, c, d, n_samples=len(rows), weight=self.weight[keep])


class Chunklets(Supervision):
    """Small groups of samples known to be of one class.

    Parameters
    ----------
    codes : array-like of int, shape (n,)
        The number of the group of each sample; −1: in no group.
    negative_links : array-like of bool, shape (c, c), "all" or None, default=None
        Which chunklets are known to differ; "all": every pair of them; None: none is known.

    Notes
    -----
    For `RCA`, `DCA` and other methods of scatters within groups: pictures of one tracked face, answers of one user.
    Who the group is stays unknown.

    Examples
    --------
    >>> from isometry import Chunklets
    >>> side = Chunklets([0, 0, -1, 1, 1], negative_links="all")
    >>> len(side.similar.i), len(side.dissimilar.i)
    (2, 4)
    """

    kind = "chunklets"
    repeatable = True

    def __init__(self, codes: ArrayLike, *, negative_links: Any = None):
        codes = np.asarray(codes)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError("chunklets are given as one integer per sample, -1 for samples in no chunklet")
        present, self.codes = _unique_with_codes(codes, codes >= 0)
        self.n_samples = len(codes)
        c = len(present)
        if isinstance(negative_links, str) and negative_links == "all":
            self.negative_links = ~np.eye(c, dtype=bool)
        elif negative_links is None:
            self.negative_links = np.zeros((c, c), dtype=bool)
        else:
            links = np.asarray(negative_links, dtype=bool)
            size = int(present.max(initial=-1)) + 1
            if links.shape not in {(c, c), (size, size)}:
                raise ValueError(f"negative_links must have shape {(c, c)}, got {links.shape}")
            self.negative_links = links if links.shape == (c, c) else links[np.ix_(present, present)]
            self.negative_links = (self.negative_links | self.negative_links.T) & ~np.eye(c, dtype=bool)

    @property
    def similar(self) -> EdgeList:
        """Pairs of samples of one chunklet."""
        return Labels.from_codes(self.codes).similar

    @property
    def dissimilar(self) -> EdgeList:
        """Pairs of samples of chunklets that are known to differ."""
        i, j = np.triu_indices(self.n_samples, 1)
        known = (self.codes[i] >= 0) & (self.codes[j] >= 0)
        keep = known & self.negative_links[self.codes[i], self.codes[j]]
        return EdgeList.make(i[keep], j[keep])

    def _take(self, rows: np.ndarray) -> Chunklets:
        codes = self.codes[rows]
        present = np.unique(codes[codes >= 0])
        return Chunklets(codes, negative_links=self.negative_links[np.ix_(present, present)])


class Candidates(Supervision):
    """Partial labels: a set of candidate classes for each sample, one of which is right.

    Parameters
    ----------
    mask : array-like of bool, shape (n, q)
        Which of the q classes are candidates of each sample.

    Notes
    -----
    For `PartialLabelGMML`: names under a picture, or annotators who disagree.

    Examples
    --------
    >>> from isometry import Candidates
    >>> side = Candidates([[True, False, True], [False, True, False]])
    >>> side.mask.sum(axis=1).tolist()
    [2, 1]
    """

    kind = "candidates"
    repeatable = True

    def __init__(self, mask: ArrayLike):
        mask = np.asarray(mask)
        if mask.ndim != 2 or not np.all((mask == 0) | (mask == 1)):
            raise ValueError("candidates are given as a 0/1 matrix (n_samples, n_classes)")
        self.mask = mask.astype(bool)
        self.n_samples = len(mask)
        empty = ~self.mask.any(axis=1)
        if empty.any():
            raise ValueError(f"{empty.sum()} samples have no candidate class (first at row {int(np.argmax(empty))})")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, q) of the mask."""
        return self.mask.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of the mask."""
        return 2

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        return self if isinstance(self, kind) else None

    def _take(self, rows: np.ndarray) -> Candidates:
        return Candidates(self.mask[rows])


class Targets(Supervision):
    """A number for each sample, or several: what a regression predicts.

    An array of integers holds numbers here, not names of classes.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, q)
        The targets; ``values`` is (n, q).

    Notes
    -----
    For `MLKR` and `SIR`, and for `compare` with scoring="knn_r2". An array of fractions becomes this by itself; an
    array of integers does not.

    Examples
    --------
    >>> from isometry import Targets
    >>> Targets([1, 3, 5]).values.shape
    (3, 1)
    """

    kind = "targets"
    repeatable = True
    values: np.ndarray  # (n, q) float64

    def __init__(self, y: Any):
        y = as_array(y.values if isinstance(y, Targets) else y)
        if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
            raise ValueError(f"targets are one number for each sample, or a table (n_samples, q); got shape {y.shape}")
        try:
            values = y.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"targets must be numbers, and y holds {y.ravel()[:1].tolist()[0]!r}; for names of classes take a "
                "method that learns from labels"
            ) from error
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            raise ValueError(
                f"y has {bad.sum()} missing or infinite targets, NaN among numbers (first at row "
                f"{np.flatnonzero(bad)[0]}); drop those rows"
            )
        self.n_samples = len(values)
        self.values = values.reshape(len(values), -1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that scikit-learn sees: (n,), or (n, q) of several targets."""
        return (self.n_samples,) if self.values.shape[1] == 1 else self.values.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions that scikit-learn sees."""
        return len(self.shape)

    @property
    def varying(self) -> np.ndarray:
        """(n, q') the columns that are not constant."""
        return self.values[:, np.ptp(self.values, axis=0) > 0] if self.n_samples else self.values[:, :0]

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        """The targets as another kind: of a single number for each sample, `Labels` of slices at quantiles.

        Parameters
        ----------
        kind : type
            A class of supervision.

        Returns
        -------
        Supervision or None
            The same information; None if that is impossible.
        """
        if isinstance(self, kind):
            return self
        if not issubclass(kind, Labels) or self.values.shape[1] > 1:
            return None
        slices = Slices.of(self, max(2, min(MAX_SLICES, self.n_samples // MIN_SLICE)))
        return Labels.from_codes(slices.codes(self))

    def _take(self, rows: np.ndarray) -> Targets:
        return Targets(self.values[rows])


class Views(Supervision):
    """Two views of each sample: the first columns of X are one, the others the other.

    In a comparison the views look for each other: a metric is good if a sample's other view is near among those of all
    samples held out.

    Parameters
    ----------
    first : int
        Number of columns of the first view.
    second : int
        Number of columns of the second view.
    n_samples : int
        Number of samples.

    Notes
    -----
    For `compare` and `AutoMetric`, which choose among `CCA`, `Procrustes` and `KernelCCA`. ``Views.join`` makes X and
    its views of two tables.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Views
    >>> X, views = Views.join(np.ones((4, 2)), np.ones((4, 3)))
    >>> X.shape, views.widths
    ((4, 5), (2, 3))
    """

    kind = "views"
    widths: tuple[int, int]

    def __init__(self, first: int, second: int, *, n_samples: int):
        self.widths, self.n_samples = (int(first), int(second)), int(n_samples)
        if min(self.widths) < 1:
            raise ValueError(f"each view needs at least one column, got {first} and {second}")

    @classmethod
    def join(cls, first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, Views]:
        """Put two tables side by side.

        Parameters
        ----------
        first : array-like of shape (n_samples, d1)
            One view of the samples.
        second : array-like of shape (n_samples, d2)
            The other view of the same samples, in the same order.

        Returns
        -------
        tuple
            X (n_samples, d1 + d2), and its views.
        """
        X1, X2 = np.asarray(first), np.asarray(second)
        for k, X in enumerate((X1, X2)):
            if X.ndim != 2:
                raise ValueError(f"view {k} must be a table (n_samples, n_features), got shape {X.shape}")
        if len(X1) != len(X2):
            raise ValueError(
                f"the views have {len(X1)} and {len(X2)} rows: row i of both must be the same sample. Leave out the "
                "samples of which one view is missing"
            )
        return np.hstack([X1, X2]), cls(X1.shape[1], X2.shape[1], n_samples=len(X1))

    @property
    def columns(self) -> list[list[int]]:
        """Columns of either view, as `CCA` and others take them."""
        first, second = self.widths
        return [list(range(first)), list(range(first, first + second))]

    def side_by_side(self, X: np.ndarray) -> np.ndarray:
        """Take what Euclidean distance can compare: the first p columns of both views, p the smaller width.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d1 + d2)
            Both views side by side.

        Returns
        -------
        ndarray of shape (n_samples, 2p)
            The columns of the first view, and those of the second.
        """
        first, p = self.widths[0], min(self.widths)
        return np.hstack([X[:, :p], X[:, first : first + p]])

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        """The views themselves: no classes or pairs of samples follow from them.

        Parameters
        ----------
        kind : type
            A class of supervision.

        Returns
        -------
        Supervision or None
            The same object; None for every other kind.
        """
        return self if isinstance(self, kind) else None

    def _take(self, rows: np.ndarray) -> Views:
        return Views(*self.widths, n_samples=len(rows))


class Slices:
    """Where targets are cut into classes of near values: one target at quantiles, several by k-means.

    Values that are equal fall into one slice; where there are no more of them than slices, each has its own.
    """

    edges: np.ndarray | None  # (h − 1,) of a single target: slice k holds edges[k − 1] < y ≤ edges[k]
    centres: np.ndarray | None  # (h, q) of several, in units of scale
    scale: np.ndarray | None  # (q,)

    @classmethod
    def of(cls, targets: Targets, n_slices: int) -> Slices:
        """At most ``n_slices`` slices of about equally many samples."""
        self, Y = cls(), targets.values
        self.edges, self.centres, self.scale = None, None, None
        if Y.shape[1] == 1:
            self.edges = _quantile_edges(Y[:, 0], n_slices)
            return self
        from sklearn.cluster import KMeans

        spread = Y.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        n_slices = min(n_slices, len(np.unique(Y, axis=0)))
        self.centres = KMeans(n_slices, n_init=3, random_state=0).fit(Y / self.scale).cluster_centers_
        return self

    def codes(self, targets: Targets) -> np.ndarray:
        """(n,) the slice of each sample."""
        if self.edges is not None:
            return np.searchsorted(self.edges, targets.values[:, 0], side="left")
        assert self.centres is not None and self.scale is not None  # of several targets
        return np.asarray(sqdist(targets.values / self.scale, self.centres).argmin(axis=1))


def _quantile_edges(y: np.ndarray, n_slices: int) -> np.ndarray:
    """(h − 1,) edges of at most ``n_slices`` slices, none of them empty."""
    distinct = np.unique(y)
    if len(distinct) <= n_slices:
        return distinct[:-1]
    edges = np.unique(np.quantile(y, np.arange(1, n_slices) / n_slices))
    edges = edges[edges < distinct[-1]]  # many samples may share the largest value
    return edges if len(edges) else distinct[-2:-1]


def as_supervision(
    y: Any, n_samples: int | None = None, *, unlabelled: Any = None, numbers: bool = False
) -> Supervision | None:
    """``y`` as a supervision object: objects pass, arrays become Labels, or Targets if they are ``numbers``.

    The length is checked. In an array that holds −1 and +1 and nothing else these are two classes, also where
    ``unlabelled`` is −1.
    """
    if y is None:
        return None
    if numbers and not isinstance(y, Supervision):
        y = Targets(y)
    if unlabelled == -1 and not isinstance(y, Supervision) and _holds_two_signs(np.asarray(y)):
        warnings.warn(
            "y holds -1 and +1 and nothing else, which are taken for two classes. Pass Labels(y) to say so, or "
            "Labels(y, unlabelled=-1) if the rows with -1 have no label",
            stacklevel=4,
        )
        unlabelled = None
    side = y if isinstance(y, Supervision) else Labels(y, unlabelled=unlabelled)
    if n_samples is not None and len(side) != n_samples:
        raise ValueError(f"y has {len(side)} entries but X has {n_samples} rows: give one entry per row")
    return side


def _chunklets_from_pairs(pairs: Pairs) -> Chunklets:
    """Chunklets are the components of the similar edges; dissimilar edges between them are the negative links."""
    S, D = pairs.similar, pairs.dissimilar
    codes = graph_components(S.i, S.j, pairs.n_samples)
    in_a_pair = np.zeros(pairs.n_samples, dtype=bool)
    in_a_pair[np.concatenate([S.i, S.j, D.i, D.j])] = True  # a sample with a dissimilar pair only is a chunklet of one
    codes = np.where(in_a_pair, codes, -1)
    c = codes.max(initial=-1) + 1
    links = np.zeros((c, c), dtype=bool)
    links[codes[D.i], codes[D.j]] = True
    return Chunklets(codes, negative_links=links)


def _indices(values: ArrayLike, n: int, name: str) -> np.ndarray:
    index = np.asarray(values)
    if index.size == 0:
        return np.zeros(0, dtype=np.intp)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        got = f"{index.dtype} of shape {index.shape}"
        raise ValueError(f"{name} must be a one-dimensional array of sample indices, got {got}")
    if index.min() < 0 or index.max() >= n:
        bad = int(index.min() if index.min() < 0 else index.max())
        raise ValueError(f"{name} holds index {bad}, but there are {n} samples (valid: 0 to {n - 1})")
    return index.astype(np.intp, copy=False)


def _weights(weight: ArrayLike | None, m: int, what: str) -> np.ndarray:
    """(m,) weights of tuples, 1 if none are given."""
    w = np.ones(m) if weight is None else np.asarray(weight, dtype=np.float64)
    if w.shape != (m,) or not np.all(np.isfinite(w) & (w >= 0)):
        raise ValueError(f"weight must hold one finite number ≥ 0 for each {what}")
    return w


def _rows_of_tuples(tuples: ArrayLike, kind: str, *, apart: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct points X (n, d) of an array (m, k, d) of tuples, and their numbers (k, m).

    The members of a tuple that must stay ``apart`` get rows of their own where they are equal.
    """
    T, k = np.asarray(tuples), max(max(pair) for pair in apart) + 1
    if T.ndim != 3 or T.shape[1] != k:
        raise ValueError(f"expected {kind} as an array (m, {k}, d), got shape {T.shape}")
    X, inverse = np.unique(T.reshape(-1, T.shape[2]), axis=0, return_inverse=True)
    index = inverse.reshape(-1, k).T.copy()  # (k, m)
    for first, second in apart:
        equal = np.flatnonzero(index[first] == index[second])
        index[second, equal] = len(X) + np.arange(len(equal))
        X = np.concatenate([X, T[equal, second]])
    return X, index


def _tuples_of_rows(X: ArrayLike, n: int, *columns: np.ndarray) -> np.ndarray:
    """(m, k, d) the rows of X that the k columns of indices name."""
    X = np.asarray(X)
    if X.ndim != 2 or len(X) != n:
        raise ValueError(f"X must be the table of the {n} samples, got shape {X.shape}")
    return X[np.stack(columns, axis=1)]


def _targets(values: ArrayLike, m: int) -> np.ndarray:
    target = np.asarray(values, dtype=np.float64)
    if target.shape != (m,) or not np.all(np.isfinite(target) & (target >= 0)):
        raise ValueError(f"target must hold one finite distance ≥ 0 for each of the {m} pairs, got {target!r:.80}")
    return target


def _row_index(index: Any, n: int, repeatable: bool) -> np.ndarray:
    """Any numpy-style index as row numbers, unique unless repeats are allowed."""
    if isinstance(index, tuple):  # y[idx, ...] as scikit-learn writes it
        index = index[0]
    rows: np.ndarray = np.arange(n)[index]
    if rows.ndim != 1:
        raise IndexError("a supervision object is cut by a slice, a mask or an array of row numbers")
    if not repeatable and len(np.unique(rows)) != len(rows):
        raise ValueError(
            "a supervision object cannot be indexed with repeated rows: a pair between copies of one sample has no "
            "meaning. Draw without replacement (no bootstrap)"
        )
    return rows


def _renumber(rows: np.ndarray, n: int, *columns: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Index columns of tuples, renumbered to ``rows``, for the tuples that lie in them; and which these are (m,)."""
    new = np.full(n, -1, dtype=np.intp)
    new[rows] = np.arange(len(rows))
    renumbered = [new[column] for column in columns]
    keep = np.all([column >= 0 for column in renumbered], axis=0)
    return [column[keep] for column in renumbered], keep


def _unique_with_codes(y: np.ndarray, known: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """As ``np.unique(y, return_inverse=True)``; of the entries that are ``known`` alone if given, −1 for the others.

    Integers that span a range shorter than y are counted, not sorted.
    """
    if known is not None:
        codes = np.full(len(y), -1, dtype=np.intp)
        classes, codes[known] = _unique_with_codes(y[known])
        return classes, codes
    low = int(y.min()) if y.dtype.kind in "iu" and len(y) else 0
    if y.dtype.kind not in "iu" or not len(y) or int(y.max()) - low >= len(y):
        classes, codes = np.unique(y, return_inverse=True)
        return classes, codes.astype(np.intp, copy=False)
    wide = y.astype(np.int64, copy=False) if y.dtype.kind == "i" else y  # int8 cannot hold the difference of two int8
    above_low = (wide - wide.dtype.type(low)).astype(np.intp, copy=False)  # in 0 … n − 1
    present = np.flatnonzero(np.bincount(above_low))
    classes = (present.astype(wide.dtype) + wide.dtype.type(low)).astype(y.dtype)
    if len(present) == present[-1] + 1:
        return classes, above_low
    return classes, (np.cumsum(np.bincount(present)) - 1)[above_low]


def _holds_two_signs(y: np.ndarray) -> bool:
    """Whether all entries are −1 or +1, and both occur."""
    plus, minus = (np.asarray(y == sign) for sign in (1, -1))
    return bool(plus.any() and minus.any() and np.all(plus | minus))


def as_array(y: Any) -> np.ndarray:
    """y as an array, or an error if its entries have different lengths."""
    try:
        return np.asarray(y)
    except ValueError as error:  # numpy speaks of an inhomogeneous shape
        raise ValueError(
            "y must hold one label or number for each sample, but some of its entries are lists or tuples of another "
            "length than others"
        ) from error


def _label_array(y: Any) -> np.ndarray:
    """y as an array; a list of text and numbers keeps them apart, where numpy would write the numbers out."""
    array = as_array(y)
    if array.dtype.kind == "U" and array.ndim == 1 and isinstance(y, list | tuple):
        return array if all(isinstance(label, str) for label in y) else np.array(y, dtype=object)
    return array


def _refuse_mixed(y: np.ndarray) -> None:
    """An error if some labels are text and others are not: they have no order, and 1 is not the class "1"."""
    if y.dtype.kind != "O":
        return
    text = [isinstance(label, str) for label in y]
    if any(text) and not all(text):
        word, other = y[text.index(True)], y[text.index(False)]
        raise TypeError(
            f"labels must be of one kind, but y holds the text {word!r} and {other!r}, of type {type(other).__name__}: "
            "turn all into text, as in [str(label) for label in y]"
        )
    try:
        distinct = set(y.tolist())
        sorted(distinct)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise TypeError(
            "labels must be numbers, text, or values of one kind that can be sorted, but y holds values of type "
            f"{kinds}: turn all into text, as in [str(label) for label in y]"
        ) from error


def _missing(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind == "f":
        return np.asarray(np.isnan(y))
    if y.dtype.kind == "O":
        return np.array([v is None or type(v).__name__ == "NAType" or v != v for v in y], dtype=bool)
    return np.zeros(len(y), dtype=bool)
