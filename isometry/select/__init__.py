"""Choosing a metric: the comparison on held-out data, and calibrated verification of pairs."""

from isometry.select.auto import AutoMetric
from isometry.select.calibrate import OperatingPoint, PairVerifier
from isometry.select.comparison import compare
from isometry.select.result import Comparison, MethodResult

__all__ = ["AutoMetric", "Comparison", "MethodResult", "OperatingPoint", "PairVerifier", "compare"]
