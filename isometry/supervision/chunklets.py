"""Groups of samples of one class, which has no name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from isometry.core.graph import components as graph_components
from isometry.supervision.base import EdgeList, Supervision
from isometry.supervision.entries import unique_with_codes
from isometry.supervision.labels import Labels
from isometry.supervision.pairs import Pairs


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
        present, self.codes = unique_with_codes(codes, codes >= 0)
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

    @classmethod
    def _made_of(cls, side: Supervision) -> Chunklets:
        if isinstance(side, Labels):
            return cls(side.codes, negative_links="all")
        pairs = side if isinstance(side, Pairs) else Pairs.from_edges(side.similar, side.dissimilar, side.n_samples)
        pairs.refuse_weights("chunklets are groups made of similar pairs")
        return _chunklets_from_pairs(pairs)

    def _take(self, rows: np.ndarray) -> Chunklets:
        codes = self.codes[rows]
        present = np.unique(codes[codes >= 0])
        return Chunklets(codes, negative_links=self.negative_links[np.ix_(present, present)])


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
