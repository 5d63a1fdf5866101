"""Probabilistic methods."""

from isometry.probabilistic.bayesian import BayesianML
from isometry.probabilistic.bnca import BNCA
from isometry.probabilistic.dmbk import DMBK
from isometry.probabilistic.fast_nca import FastNCA
from isometry.probabilistic.igml import IGML
from isometry.probabilistic.itml import ITML
from isometry.probabilistic.ldm import LDM
from isometry.probabilistic.ldml import LDML
from isometry.probabilistic.mcml import MCML
from isometry.probabilistic.nca import NCA
from isometry.probabilistic.pcca import PCCA
from isometry.probabilistic.privileged import PrivilegedML
from isometry.probabilistic.rca import ProbabilisticRCA

__all__ = [
    "BNCA",
    "BayesianML",
    "DMBK",
    "FastNCA",
    "IGML",
    "ITML",
    "LDM",
    "LDML",
    "MCML",
    "NCA",
    "PCCA",
    "PrivilegedML",
    "ProbabilisticRCA",
]
