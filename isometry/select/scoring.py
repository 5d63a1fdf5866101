"""Scores of a fold: one value per held-out sample, whose mean is the score."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from isometry.core.distance import pair_sqdist
from isometry.eval import knn_hits, knn_residuals, loo_hits, partner_ranks, r2_values, retrieval
from isometry.eval.verification import auc_and_residuals
from isometry.select.folds import Protocol
from isometry.supervision import Labels, Pairs, Quadruplets, Supervision, Targets, Triplets, Views
from isometry.trial import aiming_at

AUC_CHUNK = 1000  # labelled samples whose pairs are listed at a time
BALANCED = "balanced_accuracy"
_TITLES = {
    "knn": "accuracy",
    BALANCED: "balanced accuracy",
    "knn_r2": "R²",
    "ordering": "triplet accuracy",
    "pair_auc": "AUC",
    "map@r": "MAP@R",
    "r_precision": "R-precision",
    "view_mrr": "mean reciprocal rank of the other view",
}
_BETWEEN_VIEWS = re.compile(r"view_mrr|view_recall@([1-9]\d*)")
_RETRIEVAL = re.compile(r"(recall|precision)@([1-9]\d*)|map@r|r_precision")


@dataclass(frozen=True)
class FoldScorer:
    """Scores a fold: ``values(Z_train, y_train, Z_test, y_test)`` → (m,), NaN where a sample cannot be scored."""

    scoring: str
    n_neighbors: int = 3
    protocol: Protocol = "closed"
    grouped: bool = False  # whether intervals will treat components of the supervision as groups

    @property
    def title(self) -> str:
        """The quantity in words."""
        return _TITLES.get(self.scoring, self.scoring)

    def aimed_at(self) -> AbstractContextManager[None]:
        """Learners fitted inside choose their strength by this score; those of views have none to choose."""
        if self.scoring.startswith("view_"):
            return nullcontext()
        aim = "knn" if self.scoring == BALANCED else self.scoring
        return aiming_at(aim, n_neighbors=self.n_neighbors, protocol=self.protocol)

    def values(self, Z_train: np.ndarray, y_train: Any, Z_test: np.ndarray, y_test: Any) -> np.ndarray:
        """The value of each held-out row."""
        is_open = self.protocol == "open"  # held-out rows look for neighbours among themselves
        if self.scoring in ("knn", BALANCED):
            k = self.n_neighbors
            hits = loo_hits(Z_test, y_test, k) if is_open else knn_hits(Z_train, y_train, Z_test, y_test, k)
            return hits * (_shares_alike(y_test) if self.scoring == BALANCED else 1.0)
        if self.scoring == "knn_r2":
            return r2_values(knn_residuals(Z_train, y_train, Z_test, y_test, self.n_neighbors), y_test)
        if match := _BETWEEN_VIEWS.fullmatch(self.scoring):
            return _view_values(Z_test, int(match[1] or 0))
        if match := _RETRIEVAL.fullmatch(self.scoring):
            gallery = {} if is_open else {"gallery": Z_train, "gallery_y": y_train}
            return _retrieval_values(Z_test, y_test, match[1] or self.scoring, int(match[2] or 1), gallery)
        if self.scoring == "ordering":
            return _ordering_values(Z_test, y_test, self.grouped)
        if isinstance(y_test, Supervision) and not isinstance(y_test, Labels):
            return _auc_values(Z_test, Pairs.from_edges(y_test.similar, y_test.dissimilar, len(y_test)), self.grouped)
        return _label_auc_values(Z_test, np.asarray(y_test.codes if isinstance(y_test, Labels) else y_test))


def _shares_alike(y: Any) -> np.ndarray:
    """(m,) weights of mean 1 by which every class counts alike."""
    codes, counts = np.unique(y.codes if isinstance(y, Labels) else y, return_inverse=True, return_counts=True)[1:]
    return np.asarray(len(codes) / (len(counts) * counts[codes]))


def _view_values(Z: np.ndarray, k: int) -> np.ndarray:
    """How well the halves of the columns find each other among the rows, both ways.

    1 / rank of the other half; for k > 0 whether the rank is at most k.
    """
    ranks = partner_ranks(*np.hsplit(Z, 2))  # (2, n)
    return np.asarray(np.mean(ranks <= k if k else 1 / ranks, axis=0))


def _retrieval_values(Z: np.ndarray, y: Any, name: str, k: int, gallery: dict[str, Any]) -> np.ndarray:
    found = retrieval(Z, y, ks=(k,), **gallery)
    columns = {"recall": found.recall_at[k], "precision": found.precision_at[k]}
    columns |= {"map@r": found.map_at_r, "r_precision": found.r_precision}
    v = np.full(len(Z), np.nan)
    v[found.queries] = columns[name]
    return v


def choose_scoring(scoring: str | None, side: Supervision, protocol: Protocol = "closed") -> str:
    """The name of the score, or an error that says which scores the supervision allows."""
    labels, ordered = isinstance(side, Labels), isinstance(side, (Triplets, Quadruplets))
    if isinstance(side, Targets):
        if scoring in (None, "knn_r2"):
            return "knn_r2"
        raise ValueError(f"scoring={scoring!r} does not suit targets: choose 'knn_r2'")
    if isinstance(side, Views):
        if scoring is None or _BETWEEN_VIEWS.fullmatch(scoring):
            return scoring or "view_mrr"
        raise ValueError(f"scoring={scoring!r} does not suit views: choose 'view_mrr' or 'view_recall@1' (or another)")
    if scoring is None:
        of_labels = "map@r" if protocol == "open" else "knn"
        return of_labels if labels else "ordering" if ordered else "pair_auc"
    if scoring == "pair_auc" or (labels and (scoring in ("knn", BALANCED) or _RETRIEVAL.fullmatch(scoring))):
        return scoring
    if ordered and scoring == "ordering":
        return scoring
    allowed = "'ordering' or 'pair_auc'" if ordered else "'pair_auc'"
    if labels:
        allowed = f"'knn', '{BALANCED}', 'recall@1', 'precision@1' (or another k), 'r_precision', 'map@r' or 'pair_auc'"
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
    """Values per sample whose mean is the pair AUC, and whose spread is that of the AUC."""
    weight = pairs.weight * np.stack([pairs.similarity, 1 - pairs.similarity])  # (2, m)
    auc, residual = auc_and_residuals(pair_sqdist(Z, pairs.i, pairs.j), weight)
    return _per_sample(auc, residual, np.stack([pairs.i, pairs.j]), len(Z), grouped)


def _ordering_values(Z: np.ndarray, side: Triplets | Quadruplets, grouped: bool) -> np.ndarray:
    """Values per sample whose mean is the share of triplets or quadruplets with d(near pair) < d(far pair)."""
    near, far = side.similar, side.dissimilar
    d, e = pair_sqdist(Z, near.i, near.j), pair_sqdist(Z, far.i, far.j)
    right = (d < e) + 0.5 * (d == e)  # (m,)
    members = [near.i, near.j, far.j] if isinstance(side, Triplets) else [near.i, near.j, far.i, far.j]
    share = side.weight / side.weight.sum()
    mean = float(share @ right)
    return _per_sample(mean, share * (right - mean), np.stack(members), len(Z), grouped)


def _per_sample(mean: float, residual: np.ndarray, members: np.ndarray, n: int, grouped: bool) -> np.ndarray:
    """Add the residuals (m,) of tuples to their members (q, m): v_i = mean + n_scored · Σ_{u∋i} r_u.

    If whole components will be summed up, each member gets a q-th part, which makes the sum of a component that of its
    tuples. Otherwise each gets the whole, the first-order (Hájek) projection on the samples that the tuples share.
    """
    q = len(members)
    scored = np.bincount(members.ravel(), minlength=n) > 0
    total = np.bincount(members.ravel(), weights=np.tile(residual, q), minlength=n)
    return np.where(scored, mean + scored.sum() * total / (q if grouped else 1), np.nan)
