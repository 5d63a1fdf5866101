"""Pairs of samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isometry.core.graph import components as graph_components
from isometry.supervision.base import EdgeList, Supervision
from isometry.supervision.tuples import (
    renumber,
    row_numbers,
    rows_of_tuples,
    tuple_weights,
    tuples_of_rows,
    wanted_distances,
)


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
        self.i, self.j = row_numbers(i, n, "i"), row_numbers(j, n, "j")
        self.target = None if target is None else wanted_distances(target, len(self.i))
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
        self.weight = tuple_weights(weight, len(s), "pair")

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
        X, (i, j) = rows_of_tuples(tuples, "pairs", apart=[(0, 1)])
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
        return tuples_of_rows(X, self.n_samples, self.i, self.j), 2 * s - 1 if np.all((s == 0) | (s == 1)) else s

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

    @classmethod
    def _made_of(cls, side: Supervision) -> Pairs:
        return cls.from_edges(side.similar, side.dissimilar, side.n_samples)

    def _take(self, rows: np.ndarray) -> Pairs:
        (i, j), keep = renumber(rows, self.n_samples, self.i, self.j)
        similarity = None if np.isnan(self.similarity).any() else self.similarity[keep]
        target = None if self.target is None else self.target[keep]
        return Pairs(i, j, similarity, n=len(rows), weight=self.weight[keep], target=target)

    def __repr__(self) -> str:
        return f"Pairs(n_samples={self.n_samples}, n_pairs={len(self.i)})"
