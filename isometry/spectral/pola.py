"""Pseudo-metric online learning."""

from __future__ import annotations

from typing import cast

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import OnlineMetric
from isometry.core.linalg import extreme_eigenpairs, factor
from isometry.core.progress import check_time
from isometry.core.solve import Solution
from isometry.parameters import KW_ONLY, Count, Seed, parameters
from isometry.sampling import RandomPairs, Sampler, in_own_order
from isometry.supervision import Labels, Pairs, Supervision


@parameters
class POLA(OnlineMetric):
    """Pseudo-metric online learning: projections on what one pair after another asks of a metric and a threshold.

    (W, b) ← projection on {t (vᵀWv − b) ≤ −1}, then on {W ⪰ 0, b ≥ 1},  v = x_i − x_j, t = +1 similar, −1 dissimilar

    The first projection is W − tα vvᵀ, b + tα with ``α = [t(vᵀWv − b) + 1]₊/(|v|⁴ + 1)``; it starts at W = 0, b = 1. A
    pair of weight w takes w such steps, the last of them a part of one. Samples are in units in which the mean squared
    distance of those seen first is 1.

    Parameters
    ----------
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels, in random order: "auto" is `RandomPairs(2000)`; or another sampler.
    n_epochs : int, default=1
        Number of passes over the pairs in ``fit``.
    average : bool, default=True
        Whether the result is the mean of all (W, b) along the way, instead of the last.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    threshold_ : float
        The distance √b below which pairs are similar.
    last_ : ndarray of shape (d² + 1,)
        W and b after the last step, in the units of the search.
    total_ : ndarray of shape (d² + 1,)
        Sums of W and b over the steps, in the units of the search.

    Notes
    -----
    For a stream of pairs, each seen once, with a threshold that is learned beside the metric. One pass ends short
    of the optimum: where all pairs are at hand, `ITML` or `LDML` search for it.

    A step costs O(d²) for a dissimilar pair and O(d³) for a similar one, whose projection needs the smallest
    eigenvalue of W.

    ``partial_fit`` takes a stream: pairs one after another, however they are cut into chunks.

    References
    ----------
    | S. Shalev-Shwartz, Y. Singer, A. Y. Ng, "Online and batch learning of pseudo-metrics", ICML 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import POLA, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = POLA()
    >>> for i, j, same in ([0, 1, True], [0, 50, False], [50, 51, True], [50, 100, False]):
    ...     metric = metric.partial_fit(X[[i, j]], Pairs([0], [1], [same], n=2))
    >>> bool(metric.threshold_ > 0)
    True
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    pairs: str | Sampler = "auto"
    n_epochs: Count = 1
    average: bool = True
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs, update: bool = False) -> Solution:
        rng, d = check_random_state(self.random_state), X.shape[1]
        if not (update and hasattr(self, "last_")):
            self.unit_ = float(np.sqrt(2 * np.var(X, axis=0, dtype=np.float64).sum())) or 1.0
            self.last_, self.total_, self.n_steps_ = np.append(np.zeros(d * d), 1.0), np.zeros(d * d + 1), 0.0
        if isinstance(side, Labels):
            sampler = RandomPairs(2000) if isinstance(self.pairs, str) and self.pairs == "auto" else self.pairs
            if not isinstance(sampler, Sampler):
                raise TypeError(f"pairs must be 'auto' or a sampler such as RandomPairs(500), got {self.pairs!r}")
            X, side = in_own_order(X, side)
            side = shuffled(sampler.draw(X, side, rng), rng)
        history = [self._pass(X, side) for _ in range(1 if update else self.n_epochs)]
        state = self.total_ / self.n_steps_ if self.average and self.n_steps_ else self.last_
        self.threshold_ = float(np.sqrt(state[-1]))
        self._store(factor(state[:-1].reshape(d, d)) / self.unit_, X.dtype)
        return Solution(None, history[-1], len(history), "all pairs seen", True, history)

    def _pass(self, X: np.ndarray, pairs: Pairs) -> float:
        """Steps for all pairs in order; the mean loss before them."""
        d = X.shape[1]
        W, b = self.last_[:-1].reshape(d, d).copy(), float(self.last_[-1])
        s = pairs.similarity[:, None]
        weights = pairs.weight[:, None] * np.hstack([s, 1 - s])  # (m, 2) as a similar and as a dissimilar pair
        k, kind = np.nonzero(weights > 0)  # in the order given
        V = (X[pairs.i[k]] - X[pairs.j[k]]).astype(np.float64) / self.unit_
        losses = 0.0
        for v, t, weight in zip(V, np.where(kind == 0, 1.0, -1.0), weights[k, kind], strict=True):
            check_time()
            while weight > 1e-12:
                share, weight = min(weight, 1.0), weight - 1
                W, b, loss = project(W, b, v, t, share)
                losses += share * loss
                self.total_ += share * np.append(W.ravel(), b)
                self.n_steps_ += share
        self.last_ = np.append(W.ravel(), b)
        return losses / max(float(weights.sum()), 1e-300)


def project(W: np.ndarray, b: float, v: np.ndarray, t: float, share: float = 1.0) -> tuple[np.ndarray, float, float]:
    """(W, b) after a share of the way to the half-space of one pair, and back to W ⪰ 0, b ≥ 1; and the loss before."""
    loss = t * (v @ W @ v - b) + 1
    if loss <= 0:
        return W, b, 0.0
    alpha = share * loss / ((v @ v) ** 2 + 1)
    W, b = W - t * alpha * np.outer(v, v), max(b + t * alpha, 1.0)
    if t > 0:  # one vvᵀ less: at most one eigenvalue has become negative
        (low,), u = extreme_eigenpairs(W, 1, smallest=True)
        if low < 0:
            W = W - low * np.outer(u, u)
    return W, b, float(loss)


def shuffled(side: Supervision, rng: np.random.RandomState) -> Pairs:
    """The pairs that a sampler drew, or all pairs of labels, in random order."""
    edges = cast(Pairs, side.to(Pairs))
    order = rng.permutation(len(edges.i))
    return Pairs(edges.i[order], edges.j[order], edges.similarity[order], n=len(edges), weight=edges.weight[order])
