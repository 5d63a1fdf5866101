"""How well held-out samples fare under a metric: one value per sample, whose mean is the score."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from isometry.core.distance import pair_sqdist
from isometry.eval import knn_hits, loo_hits, retrieval
from isometry.select.folds import Protocol
from isometry.supervision import Labels, Pairs, Quadruplets, Supervision, Triplets

AUC_CHUNK = 1000  # labelled samples whose pairs are listed at a time
_TITLES = {
    "knn": "accuracy",
    "ordering": "triplet accuracy",
    "pair_auc": "AUC",
    "map@r": "MAP@R",
    "r_precision": "R-precision",
}
_RETRIEVAL = re.compile(r"(recall|precision)@([1-9]\d*)|map@r|r_precision")


@dataclass(frozen=True)
class HeldOut:
    """Scores a fold: ``values(Z_train, y_train, Z_test, y_test)`` → (m,), NaN where a sample cannot be scored."""

    scoring: str
    n_neighbors: int = 3
    protocol: Protocol = "closed"
    grouped: bool = False  # whether intervals will treat components of the supervision as groups

    @property
    def title(self) -> str:
        """The quantity in words."""
        return _TITLES.get(self.scoring, self.scoring)

    def values(self, Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, y_test: Any) -> np.ndarray:
        """The value of each held-out row."""
        if self.scoring == "knn":
            k = self.n_neighbors
            hits = loo_hits(Z_test, y_test, k) if self._open else knn_hits(Z_train, y_train, Z_test, y_test, k)
            return hits.astype(np.float64)
        if _RETRIEVAL.fullmatch(self.scoring):
            return self._retrieved(Z_train, y_train, Z_test, y_test)
        if self.scoring == "ordering":
            return _ordering_values(Z_test, y_test, self.grouped)
        if isinstance(y_test, Supervision) and not isinstance(y_test, Labels):
            return _auc_values(Z_test, Pairs.from_edges(y_test.similar, y_test.dissimilar, len(y_test)), self.grouped)
        return _label_auc_values(Z_test, np.asarray(y_test.codes if isinstance(y_test, Labels) else y_test))

    @property
    def _open(self) -> bool:
        return self.protocol == "open"

    def _retrieved(self, Z_train, y_train, Z_test, y_test):
        match = _RETRIEVAL.fullmatch(self.scoring)
        k = int(match[2] or 1)
        among = {} if self._open else {"gallery": Z_train, "gallery_y": y_train}
        found = retrieval(Z_test, y_test, ks=(k,), **among)
        columns = {"recall": found.recall_at[k], "precision": found.precision_at[k]}
        columns |= {"map@r": found.map_at_r, "r_precision": found.r_precision}
        v = np.full(len(Z_test), np.nan)
        v[found.queries] = columns[match[1] or self.scoring]
        return v


def choose_scoring(scoring: str | None, side: Supervision) -> str:
    """The name of the score, or an error that says which scores the supervision allows."""
    labels, ordered = isinstance(side, Labels), isinstance(side, (Triplets, Quadruplets))
    if scoring is None:
        return "knn" if labels else "ordering" if ordered else "pair_auc"
    if scoring == "pair_auc" or (labels and (scoring == "knn" or _RETRIEVAL.fullmatch(scoring))):
        return scoring
    if ordered and scoring == "ordering":
        return scoring
    allowed = "'ordering' or 'pair_auc'" if ordered else "'pair_auc'"
    if labels:
        allowed = "'knn', 'recall@1', 'precision@1' (or another k), 'r_precision', 'map@r' or 'pair_auc'"
    raise ValueError(f"scoring={scoring!r} does not suit {side.kind}: choose {allowed}")


def _label_auc_values(Z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Pair AUC of labelled samples, from all pairs within random chunks of them."""
    v = np.full(len(Z), np.nan)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(codes >= 0))
    for chunk in np.array_split(rows, max(1, -(-len(rows) // AUC_CHUNK))):
        i, j = np.triu_indices(len(chunk), 1)
        same = codes[chunk[i]] == codes[chunk[j]]
        if same.any() and not same.all():
            v[chunk] = _auc_values(Z[chunk], Pairs(i, j, same, n=len(chunk)), grouped=False)
    return v


def _auc_values(Z: np.ndarray, pairs: Pairs, grouped: bool) -> np.ndarray:
    """Values per sample whose mean is the pair AUC A, and whose spread is that of A (DeLong's placements).

    With s, t running over similar and dissimilar pairs, and [·] counting ties as one half::

        A = mean_{s,t} [d_s < d_t],    r_s = (mean_t [d_s < d_t] − A) / n_s,    r_t = (mean_s [d_s < d_t] − A) / n_t
    """
    level = np.unique(pair_sqdist(Z, pairs.i, pairs.j), return_inverse=True)[1]  # (m,)
    w = pairs.weight * np.stack([pairs.similarity, 1 - pairs.similarity])  # (2, m)
    w /= w.sum(axis=1, keepdims=True)
    mass = np.stack([np.bincount(level, weights=row) for row in w])  # (2, levels)
    nearer = (np.cumsum(mass, axis=1) - mass / 2)[:, level]  # (2, m) weight of each kind that is nearer than the pair
    auc = w[1] @ nearer[0]
    r = w[0] * (1 - nearer[1] - auc) + w[1] * (nearer[0] - auc)  # (m,) sums to 0
    return _per_sample(auc, r, np.stack([pairs.i, pairs.j]), len(Z), grouped)


def _ordering_values(Z: np.ndarray, side: Triplets | Quadruplets, grouped: bool) -> np.ndarray:
    """Values per sample whose mean is the share of triplets or quadruplets with d(near pair) < d(far pair)."""
    near, far = side.similar, side.dissimilar
    d, e = pair_sqdist(Z, near.i, near.j), pair_sqdist(Z, far.i, far.j)
    right = (d < e) + 0.5 * (d == e)  # (m,)
    members = [near.i, near.j, far.j] if isinstance(side, Triplets) else [near.i, near.j, far.i, far.j]
    return _per_sample(right.mean(), (right - right.mean()) / len(right), np.stack(members), len(Z), grouped)


def _per_sample(mean: float, residual: np.ndarray, members: np.ndarray, n: int, grouped: bool) -> np.ndarray:
    """Hand the residuals (m,) of tuples to their members (q, m): v_i = mean + n_scored · Σ_{u∋i} r_u.

    If whole components will be summed up, each member takes a q-th part, which makes the sum of a component that of its
    tuples. Otherwise each takes the whole, the first-order (Hájek) projection on the samples that the tuples share.
    """
    q = len(members)
    touched = np.bincount(members.ravel(), minlength=n) > 0
    gathered = np.bincount(members.ravel(), weights=np.tile(residual, q), minlength=n)
    return np.where(touched, mean + touched.sum() * gathered / (q if grouped else 1), np.nan)
