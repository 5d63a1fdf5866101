"""Kernel methods: a few of their own, and kernel versions of linear learners."""

from isometry.kernel.discriminant import KDCA, KernelFisherML
from isometry.kernel.information import KernelIGML
from isometry.kernel.neighbors import KernelFastNCA, KernelMCML, KernelNCA
from isometry.kernel.pairwise import KernelDRML, KernelPCCA

__all__ = [
    "KDCA",
    "KernelDRML",
    "KernelFastNCA",
    "KernelFisherML",
    "KernelIGML",
    "KernelMCML",
    "KernelNCA",
    "KernelPCCA",
]
