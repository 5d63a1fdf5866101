"""Probabilistic methods."""

from isometry.probabilistic.itml import ITML
from isometry.probabilistic.ldml import LDML
from isometry.probabilistic.mcml import MCML
from isometry.probabilistic.nca import NCA
from isometry.probabilistic.pcca import PCCA

__all__ = ["ITML", "LDML", "MCML", "NCA", "PCCA"]
