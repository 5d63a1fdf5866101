"""Choosing a metric: the comparison on held-out data, adapted embeddings, and calibrated verification of pairs."""

from isometry.select.adaptation import Adaptation, Relevance, Score, adapt
from isometry.select.auto import AutoMetric
from isometry.select.calibrate import OperatingPoint, PairVerifier
from isometry.select.comparison import compare
from isometry.select.result import Comparison, MethodResult

__all__ = [
    "Adaptation",
    "AutoMetric",
    "Comparison",
    "MethodResult",
    "OperatingPoint",
    "PairVerifier",
    "Relevance",
    "Score",
    "adapt",
    "compare",
]
