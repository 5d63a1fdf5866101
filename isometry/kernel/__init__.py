"""Kernel methods: a few of their own, and kernel versions of linear learners."""

from isometry.kernel.dca import KDCA
from isometry.kernel.drml import KernelDRML
from isometry.kernel.fast_nca import KernelFastNCA
from isometry.kernel.fisher import KernelFisherML
from isometry.kernel.information import KernelIGML
from isometry.kernel.laplacian import LaplacianKernelML
from isometry.kernel.lle import KernelLLE
from isometry.kernel.margin_svm import KernelMarginSVM
from isometry.kernel.mcml import KernelMCML
from isometry.kernel.nca import KernelNCA
from isometry.kernel.pcca import KernelPCCA
from isometry.kernel.spectrum import KernelSpectrum

__all__ = [
    "KDCA",
    "KernelDRML",
    "KernelFastNCA",
    "KernelFisherML",
    "KernelIGML",
    "KernelLLE",
    "KernelMCML",
    "KernelMarginSVM",
    "KernelNCA",
    "KernelPCCA",
    "KernelSpectrum",
    "LaplacianKernelML",
]
