"""Evaluation of embeddings under Euclidean distance: classification, retrieval, verification, clustering, intervals."""

from isometry.eval.clustering import ari, cluster_scores, nmi
from isometry.eval.episodes import FewShot, few_shot
from isometry.eval.hubs import Hubness, HubnessCorrection, hubness
from isometry.eval.intervals import Interval, bootstrap_interval, mean_interval, pair_rate_interval, paired_interval
from isometry.eval.knn import (
    balanced_accuracy,
    knn_hits,
    knn_predict,
    knn_residuals,
    loo_hits,
    loo_residuals,
    r2_values,
)
from isometry.eval.neighbors import nearest
from isometry.eval.retrieval_scores import Retrieval, retrieval
from isometry.eval.scorers import (
    SCORERS,
    get_scorer,
    knn_r2_scorer,
    knn_scorer,
    map_at_r_scorer,
    pair_auc_scorer,
    recall_scorer,
)
from isometry.eval.verification import Reliability, Roc, pair_auc, reliability, roc

__all__ = [
    "SCORERS",
    "FewShot",
    "Hubness",
    "HubnessCorrection",
    "Interval",
    "Reliability",
    "Retrieval",
    "Roc",
    "ari",
    "balanced_accuracy",
    "bootstrap_interval",
    "cluster_scores",
    "few_shot",
    "get_scorer",
    "hubness",
    "knn_hits",
    "knn_predict",
    "knn_r2_scorer",
    "knn_residuals",
    "knn_scorer",
    "loo_hits",
    "loo_residuals",
    "map_at_r_scorer",
    "mean_interval",
    "nearest",
    "nmi",
    "pair_auc",
    "pair_auc_scorer",
    "pair_rate_interval",
    "paired_interval",
    "r2_values",
    "recall_scorer",
    "reliability",
    "retrieval",
    "roc",
]
