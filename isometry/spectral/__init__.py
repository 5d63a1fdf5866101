"""Spectral methods."""

from isometry.spectral.covariance import Covariance
from isometry.spectral.dca import DCA
from isometry.spectral.euclidean import Euclidean
from isometry.spectral.fisher import FisherML
from isometry.spectral.fishmml import FishMML
from isometry.spectral.hierarchical_lmnn import HierarchicalLMNN
from isometry.spectral.iml import IML
from isometry.spectral.lle import LLERegularizedML
from isometry.spectral.llma import LLMA
from isometry.spectral.lmnn import LMNN
from isometry.spectral.margin_svm import MarginSVM
from isometry.spectral.mmc import MMC
from isometry.spectral.parametric_mds import ParametricMDS
from isometry.spectral.rank_one_mmc import RankOneMMC
from isometry.spectral.rbf_parametric_mds import RBFParametricMDS
from isometry.spectral.rca import RCA
from isometry.spectral.trace_ratio import TraceRatioML
from isometry.spectral.trace_sdp import TraceSDP

__all__ = [
    "Covariance",
    "DCA",
    "Euclidean",
    "FishMML",
    "FisherML",
    "HierarchicalLMNN",
    "IML",
    "LLERegularizedML",
    "LLMA",
    "LMNN",
    "MMC",
    "MarginSVM",
    "ParametricMDS",
    "RBFParametricMDS",
    "RCA",
    "RankOneMMC",
    "TraceRatioML",
    "TraceSDP",
]
