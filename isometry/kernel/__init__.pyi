# written by docs/build.py from isometry/registry; do not edit

from isometry.kernel.anmm import KernelANMM as KernelANMM
from isometry.kernel.cca import KernelCCA as KernelCCA
from isometry.kernel.dca import KDCA as KDCA
from isometry.kernel.dmlmj import KernelDMLMJ as KernelDMLMJ
from isometry.kernel.drml import KernelDRML as KernelDRML
from isometry.kernel.fast_nca import KernelFastNCA as KernelFastNCA
from isometry.kernel.fisher import KernelFisherML as KernelFisherML
from isometry.kernel.information import KernelIGML as KernelIGML
from isometry.kernel.kissme import KernelKISSME as KernelKISSME
from isometry.kernel.laplacian import LaplacianKernelML as LaplacianKernelML
from isometry.kernel.lfda import KernelLFDA as KernelLFDA
from isometry.kernel.lle import KernelLLE as KernelLLE
from isometry.kernel.lmnn import KernelLMNN as KernelLMNN
from isometry.kernel.margin_svm import KernelMarginSVM as KernelMarginSVM
from isometry.kernel.mcml import KernelMCML as KernelMCML
from isometry.kernel.mfa import KernelMFA as KernelMFA
from isometry.kernel.nca import KernelNCA as KernelNCA
from isometry.kernel.pcca import KernelPCCA as KernelPCCA
from isometry.kernel.spectrum import KernelSpectrum as KernelSpectrum
