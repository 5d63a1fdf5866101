# written by docs/build.py from isometry/registry; do not edit

from isometry.probabilistic.bayesian import BayesianML as BayesianML
from isometry.probabilistic.bnca import BNCA as BNCA
from isometry.probabilistic.dmbk import DMBK as DMBK
from isometry.probabilistic.fast_nca import FastNCA as FastNCA
from isometry.probabilistic.igml import IGML as IGML
from isometry.probabilistic.itml import ITML as ITML
from isometry.probabilistic.kissme import KISSME as KISSME
from isometry.probabilistic.kissme import XQDA as XQDA
from isometry.probabilistic.ldm import LDM as LDM
from isometry.probabilistic.ldml import LDML as LDML
from isometry.probabilistic.mcml import MCML as MCML
from isometry.probabilistic.mlkr import MLKR as MLKR
from isometry.probabilistic.nca import NCA as NCA
from isometry.probabilistic.ncm import NCM as NCM
from isometry.probabilistic.pcca import PCCA as PCCA
from isometry.probabilistic.plda import PLDA as PLDA
from isometry.probabilistic.privileged import PrivilegedML as PrivilegedML
from isometry.probabilistic.rca import ProbabilisticRCA as ProbabilisticRCA
from isometry.probabilistic.sdml import SDML as SDML
