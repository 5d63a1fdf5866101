"""Pictures of metrics: matplotlib figures for notebooks and papers, and one HTML page for a whole comparison."""

from isometry.report.adaptation_page import write_adaptation_report
from isometry.report.comparison_page import write_report
from isometry.report.figures import convergence, distance_histogram, embedding, forest, metric_heatmap, roc_curve
from isometry.report.verification_page import write_verification_report

__all__ = [
    "convergence",
    "distance_histogram",
    "embedding",
    "forest",
    "metric_heatmap",
    "roc_curve",
    "write_adaptation_report",
    "write_report",
    "write_verification_report",
]
