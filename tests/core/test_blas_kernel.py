"""The Makefile runs tests under more than one kernel of OpenBLAS: here it is seen whether that had an effect."""

from __future__ import annotations

import os
import platform

import pytest
import scipy.linalg  # noqa: F401  loads SciPy's own OpenBLAS, beside NumPy's
from threadpoolctl import threadpool_info

ASKED = os.environ.get("OPENBLAS_CORETYPE", "")
SHOWN = {"prescott": {"prescott", "katmai"}, "haswell": {"haswell", "zen"}}  # kernels that go by two names


@pytest.mark.skipif(not ASKED, reason="OPENBLAS_CORETYPE is not set: OpenBLAS chooses its kernel by the CPU")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="OPENBLAS_CORETYPE names kernels of x86")
def test_the_kernel_that_was_asked_for_is_in_use():
    used = {b["filepath"]: b["architecture"].lower() for b in threadpool_info() if b["internal_api"] == "openblas"}
    if not used:
        pytest.skip("neither NumPy nor SciPy uses OpenBLAS here")
    names = SHOWN.get(ASKED.lower(), {ASKED.lower()})
    assert set(used.values()) <= names, f"OPENBLAS_CORETYPE={ASKED} was asked for, but in use are {used}"
