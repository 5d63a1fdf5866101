"""How well k-means on the embeddings finds the classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from isometry.eval.labels import encode, labelled

N_INIT = 10  # k-means++ starts; the one of least inertia counts


def cluster_scores(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> dict[str, float]:
    """Agreement of classes with k-means clusters of the labelled rows, as many as there are classes.

    ``nmi`` = 2 I(cluster; class) / (H(cluster) + H(class)); ``ari`` is the Rand index less its expectation under random
    clusters of the same sizes, scaled to 1 for perfect agreement. k-means is the best of 10 k-means++ starts.
    """
    Z, codes, _ = labelled(Z, encode(y)[0])
    clusters = KMeans(len(np.unique(codes)), n_init=N_INIT, random_state=random_state).fit_predict(Z)
    return {
        "nmi": float(normalized_mutual_info_score(codes, clusters)),
        "ari": float(adjusted_rand_score(codes, clusters)),
    }


def nmi(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> float:
    """Normalised mutual information of classes and k-means clusters; see ``cluster_scores``."""
    return cluster_scores(Z, y, random_state)["nmi"]


def ari(Z: np.ndarray, y: Any, random_state: int | np.random.RandomState | None = 0) -> float:
    """Adjusted Rand index of classes and k-means clusters; see ``cluster_scores``."""
    return cluster_scores(Z, y, random_state)["ari"]
