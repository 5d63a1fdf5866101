# written by docs/build.py from isometry/registry; do not edit

from isometry.spectral.boost_metric import BoostMetric as BoostMetric
from isometry.spectral.covariance import Covariance as Covariance
from isometry.spectral.dca import DCA as DCA
from isometry.spectral.dml_eig import DMLeig as DMLeig
from isometry.spectral.euclidean import Euclidean as Euclidean
from isometry.spectral.fisher import FisherML as FisherML
from isometry.spectral.fishmml import FishMML as FishMML
from isometry.spectral.gmlvq import GMLVQ as GMLVQ
from isometry.spectral.hierarchical_lmnn import HierarchicalLMNN as HierarchicalLMNN
from isometry.spectral.iml import IML as IML
from isometry.spectral.lle import LLERegularizedML as LLERegularizedML
from isometry.spectral.llma import LLMA as LLMA
from isometry.spectral.lmnn import LMNN as LMNN
from isometry.spectral.lsml import LSML as LSML
from isometry.spectral.margin_svm import MarginSVM as MarginSVM
from isometry.spectral.mmc import MMC as MMC
from isometry.spectral.oasis import OASIS as OASIS
from isometry.spectral.parametric_mds import ParametricMDS as ParametricMDS
from isometry.spectral.rank_one_mmc import RankOneMMC as RankOneMMC
from isometry.spectral.rbf_parametric_mds import RBFParametricMDS as RBFParametricMDS
from isometry.spectral.rca import RCA as RCA
from isometry.spectral.relative import RelativeML as RelativeML
from isometry.spectral.scml import SCML as SCML
from isometry.spectral.trace_ratio import TraceRatioML as TraceRatioML
from isometry.spectral.trace_sdp import TraceSDP as TraceSDP
from isometry.spectral.whitening import Whitening as Whitening
