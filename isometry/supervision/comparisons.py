"""Which of two distances is smaller: triplets and quadruplets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isometry.supervision.base import EdgeList, Supervision
from isometry.supervision.tuples import renumber, row_numbers, rows_of_tuples, tuple_weights, tuples_of_rows


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
        self.a, self.p, self.n = (row_numbers(v, n_samples, name) for v, name in ((a, "a"), (p, "p"), (n, "n")))
        if not len(self.a) == len(self.p) == len(self.n):
            raise ValueError("a, p and n must have equal lengths")
        clash = (self.a == self.p) | (self.a == self.n) | (self.p == self.n)
        if clash.any():
            raise ValueError(f"triplet {int(np.argmax(clash))} uses a sample twice")
        self.weight = tuple_weights(weight, len(self.a), "triplet")

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
        X, (a, p, n) = rows_of_tuples(tuples, "triplets", apart=[(0, 1), (0, 2), (1, 2)])
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
        return tuples_of_rows(X, self.n_samples, self.a, self.p, self.n)

    @property
    def similar(self) -> EdgeList:
        """The pairs (a, p), with the weights of the triplets."""
        return EdgeList.make(self.a, self.p, self.weight)

    @property
    def dissimilar(self) -> EdgeList:
        """The pairs (a, n), with the weights of the triplets."""
        return EdgeList.make(self.a, self.n, self.weight)

    def _take(self, rows: np.ndarray) -> Triplets:
        (a, p, n), keep = renumber(rows, self.n_samples, self.a, self.p, self.n)
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
        self.a, self.b, self.c, self.d = (
            row_numbers(v, n_samples, k) for v, k in zip((a, b, c, d), "abcd", strict=True)
        )
        if not len(self.a) == len(self.b) == len(self.c) == len(self.d):
            raise ValueError("a, b, c and d must have equal lengths")
        if np.any((self.a == self.b) | (self.c == self.d)):
            raise ValueError("a quadruplet compares a sample with itself")
        self.weight = tuple_weights(weight, len(self.a), "quadruplet")

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
        X, (a, b, c, d) = rows_of_tuples(tuples, "quadruplets", apart=[(0, 1), (2, 3)])
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
        return tuples_of_rows(X, self.n_samples, self.a, self.b, self.c, self.d)

    @property
    def similar(self) -> EdgeList:
        """The near pairs (a, b), with the weights of the quadruplets."""
        return EdgeList.make(self.a, self.b, self.weight)

    @property
    def dissimilar(self) -> EdgeList:
        """The far pairs (c, d), with the weights of the quadruplets."""
        return EdgeList.make(self.c, self.d, self.weight)

    def _take(self, rows: np.ndarray) -> Quadruplets:
        (a, b, c, d), keep = renumber(rows, self.n_samples, self.a, self.b, self.c, self.d)
        return Quadruplets(a, b, c, d, n_samples=len(rows), weight=self.weight[keep])
