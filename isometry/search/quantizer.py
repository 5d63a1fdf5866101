"""Short codes of embeddings: half precision, one byte or one bit for each number."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from isometry.core.distance import batches, row_blocks, sqdist
from isometry.core.graph import k_smallest
from isometry.eval.neighbors import nearest_columns
from isometry.parameters import KW_ONLY, Seed, check_parameters, one_of, parameters
from isometry.search.space import finite_rows

__all__ = ["Quantizer"]

KINDS = {"float16": np.float16, "int8": np.int8, "binary": np.uint8}
LEVELS = 127  # of int8 on either side of 0
ITEMS = 4096  # codes that are turned into numbers at a time
WORD = 8  # bytes of the numbers by which bits are compared


@parameters
class Quantizer(BaseEstimator):
    """Codes of embeddings that take a half, a quarter or a thirty-second of the memory of float32.

    The codes c or b of an embedding z, and what they stand for, ẑ::

        int8:    c_j = round(z_j / s_j),  s_j = max|z_j| / 127,      ẑ_j = s_j c_j
        binary:  b_j = [z_j > m_j],  m_j the mean,                   ẑ_j = m_j ± mean|z_j − m_j|

    Codes know what they are by their type: float16, int8, or uint8 for bits, eight in a byte.

    Parameters
    ----------
    kind : {"float16", "int8", "binary"}, default="int8"
        Kind of the codes.
    center : bool, default=True
        Whether to compare with the mean of each dimension to make bits; if not, with 0.
    rotate : bool, default=False
        Whether to turn the embeddings at random first, which spreads what they say evenly over the bits.
    random_state : int, RandomState instance or None, default=0
        Seed of the rotation.

    Attributes
    ----------
    scale_ : ndarray of shape (d,)
        Steps s; 1 for a dimension that is 0 everywhere.
    mean_ : ndarray of shape (d,)
        Means m.
    spread_ : ndarray of shape (d,)
        Means of ``|z − m|``.
    rotation_ : ndarray of shape (d, d) or None
        An orthogonal matrix; None without ``rotate``.

    Notes
    -----
    For galleries too large for float32. float16 loses next to nothing, int8 little; bits alone order roughly, and
    are for finding candidates. Encoding costs O(n d), a search O(n d) for each query; codes take 2, 1 and 1/8 bytes
    a number.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Quantizer
    >>> Z = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    >>> quantizer = Quantizer("int8").fit(Z)
    >>> codes = quantizer.encode(Z)
    >>> codes.dtype, codes.nbytes, Z.nbytes
    (dtype('int8'), 1600, 6400)
    >>> index, scores = quantizer.search(Z[:2], codes, 1)
    >>> index.shape
    (2, 1)
    """

    kind: Literal["float16", "int8", "binary"] = "int8"
    _: KW_ONLY
    center: bool = True
    rotate: bool = False
    random_state: Seed = 0

    def fit(self, Z: Any, y: Any = None) -> Self:
        """Learn the steps of the codes from embeddings.

        Parameters
        ----------
        Z : array-like of shape (n, d)
            Embeddings.
        y : object, default=None
            Not used.

        Returns
        -------
        self
            The quantizer.
        """
        check_parameters(self)
        Z = finite_rows(Z, "Z")
        d = Z.shape[1]
        self.rotation_ = None
        if self.rotate:
            Q, R = np.linalg.qr(check_random_state(self.random_state).normal(size=(d, d)))
            self.rotation_ = Q * np.sign(np.diag(R))
            Z = Z @ self.rotation_.astype(Z.dtype)
        most = np.abs(Z).max(axis=0).astype(np.float64)
        self.scale_ = np.where(most > 0, most / LEVELS, 1.0)
        self.mean_ = Z.mean(axis=0, dtype=np.float64) if self.center else np.zeros(d)
        self.spread_ = np.zeros(d)
        for rows in batches(len(Z), ITEMS):
            self.spread_ += np.abs(Z[rows] - self.mean_).sum(axis=0) / len(Z)
        self.n_features_in_ = d
        return self

    def encode(self, Z: Any, kind: str | None = None) -> np.ndarray:
        """Codes of embeddings.

        Parameters
        ----------
        Z : array-like of shape (n, d)
            Embeddings.
        kind : str or None, default=None
            Kind of the codes, if another than that of the quantizer.

        Returns
        -------
        ndarray of shape (n, d) or (n, ⌈d/8⌉)
            The codes; of bits, bytes of eight.
        """
        kind = self.kind if kind is None else one_of("kind", kind, tuple(KINDS))
        Z = self._turned(Z, "Z")
        if kind == "float16":
            most = float(np.finfo(np.float16).max)
            if np.abs(Z).max(initial=0) > most:
                raise ValueError(f"Z has entries beyond ±{most:g}, the largest number of float16: rescale it")
            return Z.astype(np.float16)
        if kind == "int8":
            scaled = Z / self.scale_.astype(Z.dtype)
            return np.clip(np.rint(scaled, out=scaled), -LEVELS, LEVELS).astype(np.int8)
        return np.packbits(self.mean_.astype(Z.dtype) < Z, axis=1)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The embeddings that codes stand for.

        Parameters
        ----------
        codes : ndarray
            Codes, as `encode` gave them.

        Returns
        -------
        ndarray of shape (n, d)
            Embeddings, float32.
        """
        Z = self._numbers(self._check_codes(codes))
        return Z if self.rotation_ is None else Z @ self.rotation_.T.astype(Z.dtype)

    def scores(self, Q: Any, codes: np.ndarray) -> np.ndarray:
        """Minus the squared distances of embeddings to what the codes stand for.

        For embeddings of length 1 the cosine is 1 + score / 2.

        Parameters
        ----------
        Q : array-like of shape (m, d)
            Embeddings.
        codes : ndarray
            Codes, as `encode` gave them.

        Returns
        -------
        ndarray of shape (m, n)
            The scores ``−|q − ẑ|²``.
        """
        return -self._sqdist(self._turned(Q, "Q").astype(np.float32, copy=False), self._check_codes(codes))

    def search(
        self, Q: Any, codes: np.ndarray, k: int, *, rescore: int = 4, fine: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k codes nearest to each row of Q.

        Bits are first compared with those of Q: the ``rescore`` · k codes in which fewest differ are candidates. These
        are ordered by their distance from Q itself, of the bits or, better, of the ``fine`` codes of the same rows.
        Ties go to the smaller index.

        Parameters
        ----------
        Q : array-like of shape (m, d)
            Queries.
        codes : ndarray
            Codes, as `encode` gave them.
        k : int
            Number of neighbours.
        rescore : int, default=4
            Number of candidates for each neighbour, of bits.
        fine : ndarray or None, default=None
            Finer codes of the same rows: ``encode(Z, "int8")``, or Z as it is.

        Returns
        -------
        indices : ndarray of shape (m, k)
            Neighbours, nearest first.
        distances : ndarray of shape (m, k)
            Their squared distances.
        """
        codes, Q = self._check_codes(codes), self._turned(Q, "Q")
        fine = codes if fine is None else self._check_codes(fine)
        if not 1 <= k <= len(codes):
            raise ValueError(f"k={k} neighbours were asked for, but there are {len(codes)} codes")
        if len(fine) != len(codes):
            raise ValueError(f"there are {len(codes)} codes but {len(fine)} fine ones: give those of the same rows")
        if rescore < 1:
            raise ValueError(f"rescore={rescore} must be at least 1")
        index, d = np.empty((len(Q), k), dtype=np.intp), np.empty((len(Q), k), dtype=np.float32)
        bits = np.packbits(self.mean_.astype(Q.dtype) < Q, axis=1) if codes.dtype == np.uint8 else None
        Q = Q.astype(np.float32, copy=False)
        most = min(len(codes), rescore * k)
        for rows in row_blocks(len(Q), 16 * len(codes) + 8 * most * Q.shape[1], buffers=1, limit_mib=256):
            if bits is None:
                index[rows], d[rows] = nearest_columns(self._sqdist(Q[rows], codes), k)
                continue
            candidates = np.sort(nearest_columns(_differing_bits(bits[rows], codes), most)[0], axis=1)  # (b, c)
            delta = self._numbers(fine[candidates.ravel()]).reshape(*candidates.shape, -1) - Q[rows][:, None]
            order, d[rows] = k_smallest(np.einsum("bcd,bcd->bc", delta, delta), k)
            index[rows] = np.take_along_axis(candidates, order, axis=1)
        return index, d

    def _sqdist(self, Q: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """(m, n) |q − ẑ|² of turned queries and codes."""
        D = np.empty((len(Q), len(codes)), dtype=np.float32)
        for items in batches(len(codes), ITEMS):
            D[:, items] = sqdist(Q - self._centre, self._numbers(codes[items]) - self._centre)
        return D

    @property
    def _centre(self) -> np.ndarray:
        """Subtracted before products, since float32 has its digits near 0."""
        return self.mean_.astype(np.float32)

    def _numbers(self, codes: np.ndarray) -> np.ndarray:
        """Codes as float32 embeddings, still turned."""
        if codes.dtype == np.int8:
            return codes * self.scale_.astype(np.float32)
        if codes.dtype == np.uint8:
            sign = np.unpackbits(codes, axis=1, count=self.n_features_in_).astype(np.float32)
            sign *= 2 * self.spread_.astype(np.float32)
            sign += (self.mean_ - self.spread_).astype(np.float32)
            return sign
        return codes.astype(np.float32, copy=False)

    def _turned(self, Z: Any, name: str) -> np.ndarray:
        """Embeddings of the width that was fitted, rotated if that is asked for."""
        check_is_fitted(self)
        Z = finite_rows(Z, name)
        if Z.shape[1] != self.n_features_in_:
            raise ValueError(f"{name} has {Z.shape[1]} columns; the quantizer was fitted to {self.n_features_in_}")
        return Z if self.rotation_ is None else Z @ self.rotation_.astype(Z.dtype)

    def _check_codes(self, codes: Any) -> np.ndarray:
        check_is_fitted(self)
        codes, d = np.asarray(codes), self.n_features_in_
        if codes.dtype in (np.float32, np.float64):  # embeddings themselves, which candidates are ordered by
            return self._turned(codes, "fine")
        width = -(-d // 8) if codes.dtype == np.uint8 else d
        if codes.dtype not in KINDS.values() or codes.ndim != 2 or codes.shape[1] != width:
            raise ValueError(
                f"codes of {d} dimensions are int8 or float16 (n, {d}), or bits in uint8 (n, {-(-d // 8)}); got "
                f"{codes.dtype} of shape {codes.shape}"
            )
        return codes


def _differing_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(m, n) in how many bits rows of bytes differ."""
    a, b = _as_words(a), _as_words(b)
    count = np.zeros((len(a), len(b)), dtype=np.uint16)
    for u, v in zip(a.T, b.T, strict=True):
        count += np.bitwise_count(u[:, None] ^ v[None])
    return count


def _as_words(bits: np.ndarray) -> np.ndarray:
    """Bytes (n, w) as (n, ⌈w/8⌉) numbers of 64 bits."""
    padded = np.zeros((len(bits), -(-bits.shape[1] // WORD) * WORD), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64)
