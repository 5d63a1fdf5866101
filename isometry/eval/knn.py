"""k-nearest-neighbour classification of embeddings, as hits per point; an accuracy is the mean of hits."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.eval.labels import as_labels, encode, labelled
from isometry.eval.neighbors import nearest
from isometry.supervision import Targets


def knn_predict(Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, k: int = 1) -> np.ndarray:
    """The label with the most votes among the k nearest training rows, for each row of Z_test.

    ŷ(z) = argmax_c #{i among the k nearest of z : y_i = c}; of classes with equally many votes, the one that has the
    nearest member wins. Equally distant neighbours count in the order of the training rows.
    """
    labels = as_labels(y_train)
    Z_train, codes, _ = labelled(Z_train, labels.codes, "Z_train")
    index, _ = nearest(Z_test, k, gallery=Z_train)  # (m, k)
    return np.asarray(labels.classes[_vote(codes[index])])


def knn_hits(Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, y_test: Any, k: int = 1) -> np.ndarray:
    """Whether ``knn_predict`` is right, for each labelled row of Z_test: (m,) bool."""
    train, test = encode(y_train, y_test)
    Z_train, train, _ = labelled(Z_train, train, "Z_train")
    Z_test, test, _ = labelled(Z_test, test, "Z_test")
    index, _ = nearest(Z_test, k, gallery=Z_train)
    return np.asarray(_vote(train[index]) == test)


def loo_hits(Z: np.ndarray, y: Any, k: int = 1) -> np.ndarray:
    """Whether each labelled row is classified right by the k nearest of the others: (n,) bool, leave-one-out."""
    Z, codes, _ = labelled(Z, encode(y)[0])
    index, _ = nearest(Z, k)
    return np.asarray(_vote(codes[index]) == codes)


def knn_residuals(Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, y_test: Any, k: int = 5) -> np.ndarray:
    """y − ŷ (m, q), ŷ the mean of the targets of the k nearest training rows; k is at most their number."""
    train, test = Targets(y_train).values, Targets(y_test).values
    index, _ = nearest(Z_test, min(k, len(train)), gallery=Z_train)
    return np.asarray(test - train[index].mean(axis=1))


def loo_residuals(Z: np.ndarray, y: Any, k: int = 5) -> np.ndarray:
    """y − ŷ (n, q), ŷ the mean of the targets of the k nearest of the others; k is at most their number."""
    targets = Targets(y).values
    if len(Z) != len(targets):
        raise ValueError(f"Z has {len(Z)} rows but there are {len(targets)} targets: give one target per row.")
    index, _ = nearest(Z, min(k, len(Z) - 1))
    return np.asarray(targets - targets[index].mean(axis=1))


def r2_values(residuals: np.ndarray, y: Any) -> np.ndarray:
    """(n,) values whose mean is R² = 1 − Σ|y − ŷ|² / Σ|y − ȳ|², the mean over targets if there are several."""
    Y = Targets(y).values
    variance = np.var(Y, axis=0)  # (q,)
    varies = np.ptp(Y, axis=0) > 0
    if not varies.any():
        raise ValueError("the targets are constant: R² compares errors with their variance, which is 0.")
    return np.asarray(1 - np.mean(residuals[:, varies] ** 2 / variance[varies], axis=1))


def balanced_accuracy(hits: np.ndarray, y: Any) -> float:
    """The mean over classes of the mean of hits within the class; ``hits`` has one entry per labelled row of ``y``."""
    codes = encode(y)[0]
    codes = codes[codes >= 0]
    if len(hits) != len(codes):
        raise ValueError(f"there are {len(hits)} hits but {len(codes)} labelled rows: give one hit per labelled row.")
    return float(np.mean(np.bincount(codes, weights=hits) / np.bincount(codes)))


def _vote(codes: np.ndarray) -> np.ndarray:
    """(m,) the code with the most votes in each row of ``codes`` (m, k), nearest first; in a tie the first of them."""
    votes = np.zeros(codes.shape, dtype=np.intp)
    for c in codes.T:
        votes += codes == c[:, None]
    return np.asarray(codes[np.arange(len(codes)), votes.argmax(axis=1)])
