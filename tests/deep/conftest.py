"""Without torch, all tests of isometry.deep are skipped, with the reason."""

from importlib.util import find_spec

import pytest


class WithoutTorch(pytest.Module):
    def collect(self):
        pytest.skip("torch is not installed: isometry[deep]", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return WithoutTorch.from_parent(parent, path=module_path) if find_spec("torch") is None else None
