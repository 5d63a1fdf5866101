# written by docs/build.py from isometry/registry; do not edit

from isometry.geometric.aml import AML as AML
from isometry.geometric.cdml import CDML as CDML
from isometry.geometric.dmlmj import DMLMJ as DMLMJ
from isometry.geometric.drml import DRML as DRML
from isometry.geometric.gmml import GMML as GMML
from isometry.geometric.grassmann import GrassmannGMML as GrassmannGMML
from isometry.geometric.layered import LayeredGMML as LayeredGMML
from isometry.geometric.low_rank import LowRankGMML as LowRankGMML
from isometry.geometric.partial_label import PartialLabelGMML as PartialLabelGMML
from isometry.geometric.rgml import RGML as RGML
from isometry.geometric.spd import SPDGMML as SPDGMML
