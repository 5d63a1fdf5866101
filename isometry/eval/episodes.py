"""Few-shot accuracy: small classification tasks drawn from labelled samples, and how well they are solved."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isometry.core.distance import row_blocks
from isometry.eval.intervals import Interval, mean_interval
from isometry.eval.labels import encode, labelled

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # support, its classes, queries → (m, n_way)


@dataclass(frozen=True)
class FewShot:
    """The accuracy of each episode; episodes of the same labels, sizes and seed are the same for every embedding.

    Attributes
    ----------
    accuracy : ndarray of shape (episodes,)
        Share of the queries that are right, of each episode.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import few_shot
    >>> Z, y = np.repeat([[0.0], [9.0]], 10, axis=0), np.repeat([0, 1], 10)
    >>> found = few_shot(Z, y, n_way=2, k_shot=1, n_query=5, episodes=20)
    >>> found.accuracy.shape, found.mean
    ((20,), 1.0)
    """

    accuracy: np.ndarray  # (episodes,) share of the queries that are right

    @property
    def mean(self) -> float:
        """The mean accuracy over episodes."""
        return float(self.accuracy.mean())

    def interval(self, level: float = 0.95) -> Interval:
        """The mean with its interval over episodes: of other episodes of these samples, not of other classes.

        Parameters
        ----------
        level : float, default=0.95
            Confidence of the interval.

        Returns
        -------
        Interval
            The mean, and the ends of its interval.
        """
        return mean_interval(self.accuracy, level)


class Episodes(NamedTuple):
    """Rows of the samples in E episodes, class by class."""

    support: np.ndarray  # (E, n_way, k_shot)
    query: np.ndarray  # (E, n_way, n_query)


def few_shot(
    Z: np.ndarray,
    y: Any,
    n_way: int = 5,
    k_shot: int = 1,
    n_query: int = 15,
    episodes: int = 600,
    *,
    score: Score | None = None,
    random_state: int = 0,
) -> FewShot:
    """Accuracy of ``n_way``-way ``k_shot``-shot classification by the nearest prototype.

    An episode draws n_way classes and of each k_shot support samples S_l and n_query queries, all different::

        ŷ(q) = argmin_l ‖z_q − μ_l‖²,     μ_l = mean_{s ∈ S_l} z_s

    Parameters
    ----------
    Z : ndarray of shape (n, …)
        Embeddings (n, p); with ``score``, samples of any shape.
    y : array-like of shape (n,)
        Labels. Rows without one take no part; classes with fewer than k_shot + n_query rows are left out, with a
        warning.
    n_way : int, default=5
        Number of classes of an episode.
    k_shot : int, default=1
        Number of support samples of each class.
    n_query : int, default=15
        Number of queries of each class.
    episodes : int, default=600
        Number of episodes.
    score : callable or None, default=None
        Function ``score(support, classes, query)`` → (m, n_way), larger for the class a query is more likely of, in
        place of the nearest prototype. ``classes`` numbers the rows of ``support`` 0 … n_way − 1. It sees the same
        episodes.
    random_state : int, default=0
        Seed of the episodes.

    Returns
    -------
    FewShot
        The accuracy of each episode.

    Notes
    -----
    An episode costs O(w (k + q) p) for w classes, k support samples and q queries of each.

    References
    ----------
    | J. Snell, K. Swersky, R. Zemel, "Prototypical networks for few-shot learning", NIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import few_shot
    >>> Z, y = np.repeat([[0.0], [9.0]], 10, axis=0), np.repeat([0, 1], 10)
    >>> few_shot(Z, y, n_way=2, k_shot=1, n_query=5, episodes=20).mean
    1.0
    """
    Z, codes, _ = labelled(Z, encode(y)[0])
    if score is None and Z.ndim != 2:
        raise ValueError(f"embeddings are a matrix (n, p), got shape {Z.shape}; for other samples give score=.")
    drawn = draw_episodes(codes, n_way, k_shot, n_query, episodes, random_state)
    hits = _nearest_prototype(Z, drawn) if score is None else _by_score(Z, drawn, score)  # (E, n_way, n_query)
    return FewShot(hits.mean(axis=(1, 2)))


def draw_episodes(
    codes: np.ndarray, n_way: int, k_shot: int, n_query: int, episodes: int, random_state: int
) -> Episodes:
    """Episodes of samples with class codes (n,): classes, and samples of a class, without replacement."""
    for name, value in (("n_way", n_way), ("k_shot", k_shot), ("n_query", n_query), ("episodes", episodes)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    m = k_shot + n_query
    size = np.bincount(codes)  # (C,)
    first = size.cumsum() - size  # (C,) where a class begins among the sorted rows
    large = np.flatnonzero(size >= m)
    if len(large) < n_way:
        raise ValueError(
            f"n_way={n_way}, but only {len(large)} classes have k_shot + n_query = {m} samples: lower one of them."
        )
    if lost := np.count_nonzero(size) - len(large):
        warnings.warn(f"{lost} classes have fewer than k_shot + n_query = {m} samples and are left out", stacklevel=3)
    rng = np.random.default_rng(random_state)
    classes = large[_distinct(rng, np.full(episodes, len(large)), n_way)]  # (E, n_way)
    position = first[classes][..., None] + _distinct(rng, size[classes], m)  # (E, n_way, m) among the sorted rows
    rows = np.argsort(codes, kind="stable")[position]
    return Episodes(rows[..., :k_shot], rows[..., k_shot:])


def _distinct(rng: np.random.Generator, n: np.ndarray, m: int) -> np.ndarray:
    """m different numbers below each of n, in random order: (*n.shape, m), by Floyd's algorithm for all n at once.

    Step s draws t ≤ n − m + s. Where t was chosen before, it takes the bound n − m + s, which no earlier step could.
    """
    chosen = np.empty((*n.shape, m), dtype=np.intp)
    for s in range(m):
        bound = n - m + s
        t = rng.integers(bound + 1)
        taken = (chosen[..., :s] == t[..., None]).any(axis=-1)
        chosen[..., s] = np.where(taken, bound, t)
    return rng.permuted(chosen, axis=-1)


def _nearest_prototype(Z: np.ndarray, episodes: Episodes) -> np.ndarray:
    """Whether each query is nearest to the prototype of its class, in blocks of episodes."""
    if not np.isfinite(Z).all():
        raise ValueError("Z has NaN or infinite values: leave those rows out.")
    Z = Z.astype(np.result_type(Z, np.float32), copy=False)
    Z = Z - Z.mean(axis=0)  # distances stay, their rounding errors shrink
    E, n_way, n_query = episodes.query.shape
    hits = np.empty(episodes.query.shape, dtype=bool)
    rows = n_way * (episodes.support.shape[2] + n_query)
    for block in row_blocks(E, rows * Z[0].nbytes, buffers=2):
        mu = Z[episodes.support[block]].mean(axis=2)  # (b, n_way, p)
        q = Z[episodes.query[block]].reshape(len(mu), -1, Z.shape[1])  # (b, n_way · n_query, p)
        closeness = 2 * q @ mu.swapaxes(1, 2) - np.square(mu).sum(axis=2)[:, None]  # ‖z_q‖² − ‖z_q − μ‖²
        nearest = closeness.argmax(axis=2).reshape(len(mu), n_way, n_query)
        hits[block] = nearest == np.arange(n_way)[:, None]
    return hits


def _by_score(samples: np.ndarray, episodes: Episodes, score: Score) -> np.ndarray:
    """Whether the class of highest score is that of the query."""
    _, n_way, n_query = episodes.query.shape
    classes = np.arange(n_way).repeat(episodes.support.shape[2])
    hits = np.empty(episodes.query.shape, dtype=bool)
    for e, (support, query) in enumerate(zip(*episodes)):
        s = np.asarray(score(samples[support.ravel()], classes, samples[query.ravel()]))
        if s.shape != (n_way * n_query, n_way):
            raise ValueError(f"score gave shape {s.shape}; expected (queries, n_way) = {(n_way * n_query, n_way)}.")
        if np.isnan(s).any():
            raise ValueError(f"score gave NaN in episode {e}: a query cannot be classified by it.")
        hits[e] = s.argmax(axis=1).reshape(n_way, n_query) == np.arange(n_way)[:, None]
    return hits
