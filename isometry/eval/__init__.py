"""Evaluation of embeddings under Euclidean distance: classification, retrieval, verification, clustering, intervals."""

from isometry.eval.clustering import ami, ari, cluster_scores, nmi, pairwise_f1
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
from isometry.eval.listed_scores import listed_retrieval
from isometry.eval.neighbors import nearest
from isometry.eval.ranking_scores import Ranking, document_ranking, ranking
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
from isometry.eval.verification import (
    Reliability,
    Roc,
    class_thresholds,
    pair_auc,
    pair_spearman,
    reliability,
    roc,
)
from isometry.eval.views import partner_ranks

__all__ = [
    "SCORERS",
    "FewShot",
    "Hubness",
    "HubnessCorrection",
    "Interval",
    "Ranking",
    "Reliability",
    "Retrieval",
    "Roc",
    "ami",
    "ari",
    "balanced_accuracy",
    "bootstrap_interval",
    "class_thresholds",
    "cluster_scores",
    "document_ranking",
    "few_shot",
    "get_scorer",
    "hubness",
    "knn_hits",
    "knn_predict",
    "knn_r2_scorer",
    "knn_residuals",
    "knn_scorer",
    "listed_retrieval",
    "loo_hits",
    "loo_residuals",
    "map_at_r_scorer",
    "mean_interval",
    "nearest",
    "nmi",
    "pair_auc",
    "pair_auc_scorer",
    "pair_spearman",
    "partner_ranks",
    "pair_rate_interval",
    "paired_interval",
    "pairwise_f1",
    "r2_values",
    "ranking",
    "recall_scorer",
    "reliability",
    "retrieval",
    "roc",
]
