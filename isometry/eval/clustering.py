"""How well k-means on the embeddings finds the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from isometry.eval.labels import encode, labelled

N_INIT = 10  # k-means++ starts; the one of least inertia counts


def cluster_scores(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> dict[str, float]:
    """Agreement of classes with k-means clusters of the labelled rows, as many as there are classes.

    ``nmi`` = 2 I(cluster; class) / (H(cluster) + H(class)); ``ari`` is the Rand index less its expectation under random
    clusters of the same sizes, scaled to 1 for perfect agreement, and ``ami`` the mutual information likewise;
    ``pairwise_f1`` takes pairs in one cluster for a guess of pairs of one class. k-means is the best of 10 k-means++
    starts.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    random_state : int, RandomState instance or None, default=0
        Seed of k-means.

    Returns
    -------
    dict of str to float
        The scores "nmi", "ari", "ami" and "pairwise_f1".

    Notes
    -----
    k-means costs O(n c p) for every iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import cluster_scores
    >>> scores = cluster_scores(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1])
    >>> {name: round(value, 6) for name, value in sorted(scores.items())}
    {'ami': 1.0, 'ari': 1.0, 'nmi': 1.0, 'pairwise_f1': 1.0}
    """
    Z, codes, _ = labelled(Z, encode(y)[0])
    clusters = KMeans(len(np.unique(codes)), n_init=N_INIT, random_state=random_state).fit_predict(Z)
    return {
        "nmi": float(normalized_mutual_info_score(codes, clusters)),
        "ari": float(adjusted_rand_score(codes, clusters)),
        "ami": float(adjusted_mutual_info_score(codes, clusters)),
        "pairwise_f1": pair_f1(codes, clusters),
    }


def pair_f1(codes: np.ndarray, clusters: np.ndarray) -> float:
    """2 tp / (2 tp + fp + fn) over pairs of rows: in one cluster, and of one class; 0 if there are none of either."""
    (_, fp), (fn, tp) = pair_confusion_matrix(codes, clusters).tolist()
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0


def nmi(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> float:
    """Normalised mutual information of classes and k-means clusters; see ``cluster_scores``.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    random_state : int, RandomState instance or None, default=0
        Seed of k-means.

    Returns
    -------
    float
        1 for perfect agreement; chance is above 0, see `ami`.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import nmi
    >>> round(nmi(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1]), 6)
    1.0
    """
    return cluster_scores(Z, y, random_state)["nmi"]


def ari(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> float:
    """Adjusted Rand index of classes and k-means clusters; see ``cluster_scores``.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    random_state : int, RandomState instance or None, default=0
        Seed of k-means.

    Returns
    -------
    float
        1 for perfect agreement, about 0 for chance.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import ari
    >>> round(ari(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1]), 6)
    1.0
    """
    return cluster_scores(Z, y, random_state)["ari"]


def ami(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> float:
    """Adjusted mutual information of classes and k-means clusters; see ``cluster_scores``.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    random_state : int, RandomState instance or None, default=0
        Seed of k-means.

    Returns
    -------
    float
        1 for perfect agreement, about 0 for chance.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import ami
    >>> round(ami(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1]), 6)
    1.0
    """
    return cluster_scores(Z, y, random_state)["ami"]


def pairwise_f1(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> float:
    """F1 of pairs in one k-means cluster as a guess of pairs of one class; see ``cluster_scores``.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    random_state : int, RandomState instance or None, default=0
        Seed of k-means.

    Returns
    -------
    float
        1 for perfect agreement.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import pairwise_f1
    >>> round(pairwise_f1(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1]), 6)
    1.0
    """
    return cluster_scores(Z, y, random_state)["pairwise_f1"]
