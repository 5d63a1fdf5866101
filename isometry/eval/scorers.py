"""scikit-learn scorers, ``scorer(estimator, X, y) → float``, higher is better, for any fitted transformer.

They score ``estimator.transform(X)``, hence serve as ``GridSearchCV(learner, grid, scoring=knn_scorer(3))``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_random_state

from isometry.core.distance import pair_sqdist
from isometry.eval.knn import loo_hits, loo_residuals, r2_values
from isometry.eval.labels import encode, labelled
from isometry.eval.retrieval_scores import retrieval
from isometry.eval.verification import pair_auc
from isometry.supervision import Labels, Supervision

Scorer = Callable[[Any, Any, Any], float]


def knn_scorer(k: int = 1) -> Scorer:
    """Leave-one-out k-nearest-neighbour accuracy within the scored rows.

    Parameters
    ----------
    k : int, default=1
        Number of neighbours that vote.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)`` → float, higher is better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from isometry import GMML
    >>> from isometry.eval import knn_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> search = GridSearchCV(GMML(), {"t": [0.3, 0.5]}, scoring=knn_scorer(3), cv=2).fit(X, y)
    >>> bool(search.best_score_ > 0.9)
    True
    """
    return partial(_score_knn, k=k)


def knn_r2_scorer(k: int = 5) -> Scorer:
    """R² of leave-one-out k-nearest-neighbour regression within the scored rows; the mean over several targets.

    Parameters
    ----------
    k : int, default=5
        Number of neighbours.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)`` → float, higher is better.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Euclidean
    >>> from isometry.eval import knn_r2_scorer
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> bool(knn_r2_scorer(2)(Euclidean().fit(X), X, X[:, 0]) > 0.9)
    True
    """
    return partial(_score_knn_r2, k=k)


def recall_scorer(k: int = 1) -> Scorer:
    """Mean recall@k of the scored rows, each searched among the others.

    Parameters
    ----------
    k : int, default=1
        Number of neighbours, one of which should be relevant.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)`` → float, higher is better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DCA
    >>> from isometry.eval import recall_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(recall_scorer(1)(DCA().fit(X, y), X, y) > 0.9)
    True
    """
    return partial(_score_retrieval, name=f"recall@{k}", ks=(k,))


def map_at_r_scorer() -> Scorer:
    """Mean MAP@R of the scored rows, each searched among the others.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)`` → float, higher is better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DCA
    >>> from isometry.eval import map_at_r_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(map_at_r_scorer()(DCA().fit(X, y), X, y) > 0.6)
    True
    """
    return partial(_score_retrieval, name="map@r", ks=(1,))


def pair_auc_scorer(max_pairs: int = 100_000, random_state: int = 0) -> Scorer:
    """AUC of distance as the sign of a similar pair.

    ``y`` is an object with ``similar`` and ``dissimilar`` edges ``(i, j)``, weighted where they have a ``weight``; or
    class labels, which give all pairs, or, where these are more than ``max_pairs``, a sample of ``max_pairs``, half of
    them similar (the AUC does not depend on how many pairs there are of each kind).

    Parameters
    ----------
    max_pairs : int, default=100000
        Number of pairs of labels that are looked at, at most.
    random_state : int, default=0
        Seed of the sample of pairs.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)`` → float, higher is better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DCA
    >>> from isometry.eval import pair_auc_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(pair_auc_scorer()(DCA().fit(X, y), X, y) > 0.9)
    True
    """
    return partial(_score_pair_auc, max_pairs=max_pairs, random_state=random_state)


def _embed(estimator: Any, X: Any) -> np.ndarray:
    if not hasattr(estimator, "transform"):
        raise TypeError(f"{type(estimator).__name__} has no transform: give an estimator that maps X to embeddings.")
    Z = estimator.transform(X)
    return np.asarray(check_array(Z, dtype=[np.float64, np.float32], input_name="the transformed X"))


def _score_knn(estimator: Any, X: Any, y: Any, *, k: int) -> float:
    return float(loo_hits(_embed(estimator, X), y, k).mean())


def _score_knn_r2(estimator: Any, X: Any, y: Any, *, k: int) -> float:
    return float(r2_values(loo_residuals(_embed(estimator, X), y, k), y).mean())


def _score_retrieval(estimator: Any, X: Any, y: Any, *, name: str, ks: tuple[int, ...]) -> float:
    return retrieval(_embed(estimator, X), y, ks=ks).mean()[name]


def _score_pair_auc(estimator: Any, X: Any, y: Any, *, max_pairs: int, random_state: int) -> float:
    Z = _embed(estimator, X)
    if isinstance(y, Labels) or not hasattr(y, "similar"):
        Z, codes, _ = labelled(Z, encode(y)[0])
        i, j, similar, weight = *_label_pairs(codes, max_pairs, random_state), None
    else:
        i, j, similar, weight = _edge_pairs(y)
    return pair_auc(np.sqrt(pair_sqdist(Z, i, j)), similar, weight)


def _edge_pairs(y: Supervision) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    edges = y.similar, y.dissimilar
    i, j = (np.concatenate([getattr(e, end) for e in edges]) for end in "ij")
    weight = np.concatenate([getattr(e, "weight", np.ones(len(e.i))) for e in edges])
    return i, j, np.repeat([True, False], [len(e.i) for e in edges]), weight


def _label_pairs(codes: np.ndarray, max_pairs: int, random_state: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs (i, j, similar), or ``max_pairs`` of them drawn with replacement, half similar and half dissimilar.

    Of the rows sorted by class, a row has n_c − 1 similar partners, the others of its class, and n − n_c dissimilar
    ones; both are counted from the row on, and from the first again after the last. Drawing a row in proportion to the
    number of its partners, then one of these, makes all pairs of a kind equally likely.
    """
    n, sizes = len(codes), np.bincount(codes)
    if n * (n - 1) // 2 <= max_pairs:
        i, j = np.triu_indices(n, 1)
        return i, j, codes[i] == codes[j]
    if sizes.max() == 1 or sizes.max() == n:
        raise ValueError(
            f"the {n} labels are all {'different' if sizes.max() == 1 else 'equal'}: "
            "pair AUC needs similar and dissimilar pairs."
        )
    rng = check_random_state(random_state)
    order = np.argsort(codes, kind="stable")
    size = sizes[codes[order]]  # (n,)
    start = (np.cumsum(sizes) - sizes)[codes[order]]  # (n,)
    a = _draw(size - 1, (max_pairs + 1) // 2, rng)
    b = start[a] + (a - start[a] + 1 + rng.randint(size[a] - 1)) % size[a]
    c = _draw(n - size, max_pairs // 2, rng)
    d = (start[c] + size[c] + rng.randint(n - size[c])) % n
    return order[np.append(a, c)], order[np.append(b, d)], np.repeat([True, False], [len(a), len(c)])


def _draw(weight: np.ndarray, n_draws: int, rng: np.random.RandomState) -> np.ndarray:
    return rng.choice(len(weight), size=n_draws, p=weight / weight.sum())


SCORERS: dict[str, Scorer] = {
    "knn": knn_scorer(),
    "knn_r2": knn_r2_scorer(),
    "recall@1": recall_scorer(1),
    "map@r": map_at_r_scorer(),
    "pair_auc": pair_auc_scorer(),
}


def get_scorer(scoring: str | Scorer) -> Scorer:
    """A scorer by its name in ``SCORERS``; a callable passes through.

    Parameters
    ----------
    scoring : str or callable
        Name of a scorer, or a scorer.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)`` → float, higher is better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA
    >>> from isometry.eval import get_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(get_scorer("knn")(RCA().fit(X, y), X, y) > 0.9)
    True
    """
    if callable(scoring):
        return scoring
    if scoring not in SCORERS:
        raise ValueError(f"scoring={scoring!r} is unknown: choose from {', '.join(SCORERS)}, or give a callable.")
    return SCORERS[scoring]
