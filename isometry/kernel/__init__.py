"""Kernel methods: a few of their own, and kernel versions of linear learners."""

from isometry.kernel.discriminant import KDCA, KernelFisherML
from isometry.kernel.information import KernelIGML
from isometry.kernel.laplacian import LaplacianKernelML
from isometry.kernel.lle import KernelLLE
from isometry.kernel.neighbors import KernelFastNCA, KernelMCML, KernelNCA
from isometry.kernel.pairwise import KernelDRML, KernelMarginSVM, KernelPCCA
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
