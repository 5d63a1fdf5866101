"""Spectral methods."""

from isometry.spectral.covariance import Covariance, Euclidean
from isometry.spectral.dca import DCA
from isometry.spectral.fisher import FisherML, TraceSDP
from isometry.spectral.lle import LLERegularizedML
from isometry.spectral.lmnn import LMNN
from isometry.spectral.mmc import MMC, RankOneMMC
from isometry.spectral.rca import RCA
from isometry.spectral.trace_ratio import TraceRatioML

__all__ = [
    "Covariance",
    "DCA",
    "Euclidean",
    "FisherML",
    "LLERegularizedML",
    "LMNN",
    "MMC",
    "RCA",
    "RankOneMMC",
    "TraceRatioML",
    "TraceSDP",
]
