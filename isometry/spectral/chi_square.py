"""Large margin nearest neighbours of histograms under the χ² distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import MetricLearner, pair_rows
from isometry.core.distance import row_blocks
from isometry.core.graph import k_smallest
from isometry.core.hinge import WIDTHS, rounded_hinge
from isometry.core.kernels import fit_kernel_map
from isometry.core.solve import Solution, lbfgs
from isometry.core.solvers import in_rounds
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, Share, parameters
from isometry.supervision import Labels

N_OTHERS = 50  # nearest samples of other classes that may be impostors of an anchor
COLLAPSED = 1e-4  # of the spread at the start: what is left where the map has become constant
LANDMARKS = 500  # samples that span the map


@parameters
class ChiSquareLMNN(MetricLearner):
    """χ²-LMNN: a map of histograms to histograms under which the χ² distance has large margins.

    min_L (1/n) Σ_{i, j→i} [(1 − μ) χ²(Lx_i, Lx_j) + μ Σ_l [m + χ²(Lx_i, Lx_j) − χ²(Lx_i, Lx_l)]₊]

    with χ²(a, b) = ½ Σ (a − b)²/(a + b) and columns of L (p, d) that are ≥ 0 and sum to 1. Rows of X are ≥ 0 and
    are divided by their sums. m is ``margin`` times the median gap ``|χ²(i, j) − χ²(i, l)|`` at the start.

    Parameters
    ----------
    n_bins : int or None, default=None
        Number p ≥ 2 of bins of the histograms that samples are mapped to; None: as many as features.
    n_neighbors : int, default=3
        Number k of target neighbours.
    mu : float in [0, 1], default=0.5
        Weight μ of the hinges against the distances of target neighbours.
    margin : float > 0, default=1.0
        Margin m, in units of the median gap.
    max_iter : int, default=80
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of the landmarks of ``transform``.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (p, d)
        The map L.

    Notes
    -----
    For histograms: counts of words, colours or visual words, of rows that are ≥ 0. For other tables, and for those
    with negative entries, use `LMNN`; rows that are 0 everywhere are refused.

    An iteration costs O(n k p) for the triplets and O(n p d) for the map; neighbours cost O(n² p).

    On histograms χ² = 1 − Σ 2ab/(a + b), and the sum is a kernel, so that χ² is a squared Euclidean distance exactly:
    ``transform`` gives coordinates in which it is, spanned by 500 samples at most. ``chi_square`` is exact for all.

    References
    ----------
    | D. Kedem, S. Tyree, K. Q. Weinberger, F. Sha, G. Lanckriet, "Non-linear metric learning", NIPS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import ChiSquareLMNN
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 20)
    >>> X = rng.poisson(np.where(y[:, None] == 0, [9, 5, 1, 3], [1, 5, 9, 3])).astype(float)
    >>> metric = ChiSquareLMNN(2, max_iter=20).fit(X, y)
    >>> metric.components_.shape
    (2, 4)
    >>> bool(np.allclose(metric.components_.sum(axis=0), 1))
    True
    """

    _sees = (Labels,)

    n_bins: Count | None = None
    _: KW_ONLY
    n_neighbors: Count = 3
    mu: Share = 0.5
    margin: Positive = 1.0
    max_iter: Iterations = 80
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        H, d = histograms(X), X.shape[1]
        p = self.n_bins or d
        if p == 1:
            raise ValueError("n_bins=1 must be at least 2: all histograms of a single bin are equal")
        theta = np.log(0.9 * start(p, d) + 0.1 / p)
        A = H @ column_softmax(theta).T
        targets = nearest(A, side.codes, self.n_neighbors, same=True)
        gaps = TripletLists.of(A, side.codes, targets).gaps(A)
        margin = self.margin * (float(np.median(np.abs(gaps))) or 1.0) if len(gaps) else 1.0

        def minimize(width: float, theta: np.ndarray, budget: int) -> Solution:
            lists = TripletLists.of(H @ column_softmax(theta).T, side.codes, targets)
            problem = HistogramProblem(H, lists, self.mu, margin, width * margin)
            return lbfgs(problem, theta, max_iter=budget, tol=self.tol)

        solution = in_rounds(minimize, WIDTHS, theta, self.max_iter)  # impostors are searched anew for each
        self.components_ = column_softmax(solution.x)
        mapped = H @ self.components_.T
        if np.ptp(mapped, axis=0).max() <= COLLAPSED * np.ptp(A, axis=0).max():
            warn_user("all histograms are mapped to one, as if the labels said nothing: the start is kept instead")
            self.components_, mapped = column_softmax(theta), A
        rng = check_random_state(self.random_state)
        rows = np.sort(rng.permutation(len(H))[:LANDMARKS])
        self.landmarks_ = mapped[rows]
        kernel = fit_kernel_map(overlap(self.landmarks_, self.landmarks_), "precomputed")
        self.basis_ = kernel.basis / np.sqrt(2)  # |φ − φ'|² = 2χ²
        return solution

    def _transform(self, X: np.ndarray) -> np.ndarray:
        A = histograms(X) @ self.components_.T
        return (overlap(A, self.landmarks_) @ self.basis_).astype(X.dtype, copy=False)

    def chi_square(self, X: Any, pairs: Any) -> np.ndarray:
        """The distances χ²(Lx, Lx') of listed pairs, exactly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        pairs : array-like of shape (m, 2) or Pairs
            Pairs of rows of X.

        Returns
        -------
        ndarray of shape (m,)
            The distances.
        """
        check_is_fitted(self)
        A = histograms(validate_data(self, X, dtype=np.float64, reset=False)) @ self.components_.T
        i, j = pair_rows(pairs, len(A))
        return pair_chi_square(A, i, j)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


def histograms(X: np.ndarray) -> np.ndarray:
    """Rows divided by their sums, in float64; an error if they are no histograms."""
    X = np.asarray(X, dtype=np.float64)
    if X.min(initial=0) < 0:
        raise ValueError(
            "Negative values in data passed to ChiSquareLMNN: its samples are histograms, with entries ≥ 0. For other "
            "samples take LMNN"
        )
    if X.shape[1] == 1:
        raise ValueError("X has n_features = 1, but all histograms of a single bin are equal: give at least 2 features")
    total = X.sum(axis=1, keepdims=True)
    if np.any(total == 0):
        raise ValueError(f"row {int(np.argmin(total))} of X is 0 everywhere, which is no histogram; drop such rows")
    return X / total


def start(p: int, d: int) -> np.ndarray:
    """(p, d) every feature in one of the p bins of the map; the identity if p = d."""
    return np.eye(p)[np.arange(d) * p // d].T if p <= d else np.eye(p)[:, :d]


def column_softmax(theta: np.ndarray) -> np.ndarray:
    E = np.exp(theta - theta.max(axis=0))
    return E / E.sum(axis=0)


def overlap(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """(n, m) Σ_k 2ab/(a + b) = 1 − χ² of histograms, in blocks."""
    K = np.empty((len(A), len(B)))
    for rows in row_blocks(len(A), 8 * B.size, buffers=3):
        total = A[rows, None] + B
        product = A[rows, None] * B
        K[rows] = 2 * np.divide(product, total, out=np.zeros_like(total), where=total > 0).sum(axis=2)
    return K


def pair_chi_square(A: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """½ Σ (a − b)²/(a + b) of listed rows, in blocks."""
    d = np.empty(len(i))
    for block in row_blocks(len(i), 8 * A.shape[1], buffers=4, limit_mib=4):
        a, b = A[i[block]], A[j[block]]
        total = a + b
        d[block] = np.divide((a - b) ** 2, 2 * total, out=np.zeros_like(total), where=total > 0).sum(axis=1)
    return d


def nearest(A: np.ndarray, codes: np.ndarray, k: int, *, same: bool) -> np.ndarray:
    """(n, k) the nearest other rows of the same class, or of others; −1 where there are fewer."""
    n, k = len(A), min(k, len(A) - 1)
    index = np.empty((n, k), dtype=np.intp)
    for rows in row_blocks(n, 8 * A.size, buffers=3):
        D = 1 - overlap(A[rows], A)
        D[(codes[rows, None] == codes) != same] = np.inf
        D[np.arange(len(D)), np.arange(rows.start, rows.stop)] = np.inf
        found, d = k_smallest(D, k)
        index[rows] = np.where(np.isfinite(d), found, -1)
    return index


@dataclass(frozen=True)
class TripletLists:
    """Pairs (m,) of rows, those of targets first; and for each triplet the position of its target and stranger pair."""

    i: np.ndarray
    j: np.ndarray
    n_targets: int
    near: np.ndarray
    far: np.ndarray

    @classmethod
    def of(cls, A: np.ndarray, codes: np.ndarray, targets: np.ndarray) -> TripletLists:
        """Every target (n, k) of a row against each of its nearest rows of other classes."""
        others = nearest(A, codes, N_OTHERS, same=False)
        (i, s), (a, r) = np.nonzero(targets >= 0), np.nonzero(others >= 0)
        number = np.full(others.shape, -1)
        number[a, r] = len(i) + np.arange(len(a))  # of a pair with a stranger
        near, column = np.nonzero(others[i] >= 0)
        return cls(np.r_[i, a], np.r_[targets[i, s], others[a, r]], len(i), near, number[i[near], column])

    def gaps(self, A: np.ndarray) -> np.ndarray:
        d = pair_chi_square(A, self.i, self.j)
        return d[self.near] - d[self.far]


@dataclass(frozen=True)
class HistogramProblem:
    """The objective over θ (p, d), L = softmax of its columns, with a hinge rounded over ``width``."""

    H: np.ndarray  # (n, d)
    lists: TripletLists
    mu: float
    margin: float
    width: float

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        L, n, lists = column_softmax(theta), len(self.H), self.lists
        A = self.H @ L.T  # (n, p)
        d = pair_chi_square(A, lists.i, lists.j)
        value, slope = rounded_hinge(self.margin + d[lists.near] - d[lists.far], self.width)
        c = self.mu * (np.bincount(lists.near, slope, len(d)) - np.bincount(lists.far, slope, len(d)))
        c[: lists.n_targets] += 1 - self.mu
        total = (1 - self.mu) * float(d[: lists.n_targets].sum()) + self.mu * float(value.sum())
        G = (self._pull(A, c) / n).T @ self.H  # ∂f/∂L (p, d)
        return total / n, L * (G - (L * G).sum(axis=0))

    def _pull(self, A: np.ndarray, c: np.ndarray) -> np.ndarray:
        """∂f/∂A (n, p) for slopes c (m,): of χ² in a it is ½ (a − b)(a + 3b)/(a + b)²."""
        pull, n = np.zeros(A.shape), len(A)
        counted = np.flatnonzero(c)
        for block in row_blocks(len(counted), 8 * A.shape[1], buffers=6, limit_mib=8):
            rows = counted[block]
            i, j, line = self.lists.i[rows], self.lists.j[rows], np.arange(len(rows))
            a, b = A[i], A[j]
            square = 2 * (a + b) ** 2
            for end, slope in ((i, (a - b) * (a + 3 * b)), (j, (b - a) * (b + 3 * a))):
                slope = np.divide(slope, square, out=np.zeros_like(square), where=square > 0)
                pull += sp.csr_matrix((c[rows], (end, line)), shape=(n, len(rows))) @ slope
        return pull
