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

    Parameters
    ----------
    Z_train : ndarray of shape (n, p)
        Training embeddings.
    y_train : array-like of shape (n,)
        Their labels.
    Z_test : ndarray of shape (m, p)
        Embeddings to classify.
    k : int, default=1
        Number of neighbours that vote.

    Returns
    -------
    ndarray of shape (m,)
        The labels.

    Notes
    -----
    Distances cost O(m n p).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import knn_predict
    >>> knn_predict(np.array([[0.0], [5.0]]), ["a", "b"], np.array([[1.0], [4.0]])).tolist()
    ['a', 'b']
    """
    labels = as_labels(y_train)
    Z_train, codes, _ = labelled(Z_train, labels.codes, "Z_train")
    index, _ = nearest(Z_test, k, gallery=Z_train)  # (m, k)
    return np.asarray(labels.classes[_vote(codes[index])])


def knn_hits(Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, y_test: Any, k: int = 1) -> np.ndarray:
    """Whether ``knn_predict`` is right, for each labelled row of Z_test.

    Parameters
    ----------
    Z_train : ndarray of shape (n, p)
        Training embeddings.
    y_train : array-like of shape (n,)
        Their labels.
    Z_test : ndarray of shape (m, p)
        Embeddings to classify.
    y_test : array-like of shape (m,)
        Their labels; rows without one are left out.
    k : int, default=1
        Number of neighbours that vote.

    Returns
    -------
    ndarray of bool
        One entry for each labelled row.

    Notes
    -----
    Distances cost O(m n p).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import knn_hits
    >>> knn_hits(np.array([[0.0], [5.0]]), [0, 1], np.array([[1.0], [2.0]]), [0, 1]).tolist()
    [True, False]
    """
    train, test = encode(y_train, y_test)
    Z_train, train, _ = labelled(Z_train, train, "Z_train")
    Z_test, test, _ = labelled(Z_test, test, "Z_test")
    index, _ = nearest(Z_test, k, gallery=Z_train)
    return np.asarray(_vote(train[index]) == test)


def loo_hits(Z: np.ndarray, y: Any, k: int = 1) -> np.ndarray:
    """Whether each labelled row is classified right by the k nearest of the others, leave-one-out.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    k : int, default=1
        Number of neighbours that vote.

    Returns
    -------
    ndarray of bool
        One entry for each labelled row.

    Notes
    -----
    Distances cost O(n² p).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import loo_hits
    >>> loo_hits(np.array([[0.0], [1.0], [5.0], [6.0], [1.5]]), [0, 0, 1, 1, 1]).tolist()
    [True, False, True, True, False]
    """
    Z, codes, _ = labelled(Z, encode(y)[0])
    index, _ = nearest(Z, k)
    return np.asarray(_vote(codes[index]) == codes)


def knn_residuals(Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, y_test: Any, k: int = 5) -> np.ndarray:
    """What is left of targets after a regression by the k nearest training rows.

    Parameters
    ----------
    Z_train : ndarray of shape (n, p)
        Training embeddings.
    y_train : array-like of shape (n,) or (n, q)
        Their targets.
    Z_test : ndarray of shape (m, p)
        Embeddings to predict for.
    y_test : array-like of shape (m,) or (m, q)
        Their targets.
    k : int, default=5
        Number of neighbours, at most as many as there are training rows.

    Returns
    -------
    ndarray of shape (m, q)
        The differences y − ŷ, ŷ the mean of the targets of the neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import knn_residuals
    >>> knn_residuals(np.array([[0.0], [1.0]]), [1.0, 3.0], np.array([[0.4]]), [2.5], k=2).tolist()
    [[0.5]]
    """
    train, test = Targets(y_train).values, Targets(y_test).values
    index, _ = nearest(Z_test, min(k, len(train)), gallery=Z_train)
    return np.asarray(test - train[index].mean(axis=1))


def loo_residuals(Z: np.ndarray, y: Any, k: int = 5) -> np.ndarray:
    """What is left of targets after a regression by the k nearest of the other rows.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,) or (n, q)
        Targets.
    k : int, default=5
        Number of neighbours, at most as many as there are other rows.

    Returns
    -------
    ndarray of shape (n, q)
        The differences y − ŷ, ŷ the mean of the targets of the neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import loo_residuals
    >>> loo_residuals(np.array([[0.0], [1.0], [3.0]]), [1.0, 2.0, 4.0], k=1).tolist()
    [[-1.0], [1.0], [2.0]]
    """
    targets = Targets(y).values
    if len(Z) != len(targets):
        raise ValueError(f"Z has {len(Z)} rows but there are {len(targets)} targets: give one target per row.")
    index, _ = nearest(Z, min(k, len(Z) - 1))
    return np.asarray(targets - targets[index].mean(axis=1))


def r2_values(residuals: np.ndarray, y: Any) -> np.ndarray:
    """Values of samples whose mean is R², the mean over targets if there are several.

    With ŷ the prediction and ȳ the mean of a target::

        R² = 1 − Σ|y − ŷ|² / Σ|y − ȳ|²

    Parameters
    ----------
    residuals : ndarray of shape (n, q)
        Differences y − ŷ.
    y : array-like of shape (n,) or (n, q)
        Targets.

    Returns
    -------
    ndarray of shape (n,)
        The values.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import r2_values
    >>> round(float(r2_values(np.array([[0.1], [-0.1], [0.0]]), [1.0, 2.0, 3.0]).mean()), 6)
    0.99
    """
    Y = Targets(y).values
    variance = np.var(Y, axis=0)  # (q,)
    varies = np.ptp(Y, axis=0) > 0
    if not varies.any():
        raise ValueError("the targets are constant: R² compares errors with their variance, which is 0.")
    return np.asarray(1 - np.mean(residuals[:, varies] ** 2 / variance[varies], axis=1))


def balanced_accuracy(hits: np.ndarray, y: Any) -> float:
    """The mean over classes of the mean of hits within the class.

    Parameters
    ----------
    hits : ndarray of shape (n,)
        One entry for each labelled row of ``y``: whether it was right.
    y : array-like of shape (n,)
        Labels.

    Returns
    -------
    float
        The balanced accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import balanced_accuracy
    >>> balanced_accuracy(np.array([True, True, True, False]), [0, 0, 0, 1])
    0.5
    """
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
