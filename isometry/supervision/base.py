"""What is known about the samples, of whatever kind: lengths, edges, conversion and cutting."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from isometry.core.graph import components as graph_components


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
        return self if isinstance(self, kind) else kind._made_of(self)

    @classmethod
    def _made_of(cls, side: Supervision) -> Supervision | None:
        """This kind made of another; None if that is impossible."""
        return None

    def __getitem__(self, index: Any) -> Self:
        return cast(Self, self._take(row_index(index, self.n_samples, self.repeatable)))

    def _take(self, rows: np.ndarray) -> Supervision:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_samples={self.n_samples})"


def row_index(index: Any, n: int, repeatable: bool) -> np.ndarray:
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
