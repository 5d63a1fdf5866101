"""Geometric methods."""

from isometry.geometric.aml import AML
from isometry.geometric.cdml import CDML
from isometry.geometric.drml import DRML
from isometry.geometric.gmml import GMML
from isometry.geometric.grassmann import GrassmannGMML
from isometry.geometric.layered import LayeredGMML
from isometry.geometric.low_rank import LowRankGMML
from isometry.geometric.partial_label import PartialLabelGMML
from isometry.geometric.spd import SPDGMML

__all__ = [
    "AML",
    "CDML",
    "DRML",
    "GMML",
    "GrassmannGMML",
    "LayeredGMML",
    "LowRankGMML",
    "PartialLabelGMML",
    "SPDGMML",
]
