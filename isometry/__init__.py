"""isometry: metric learning, spectral, probabilistic and deep, under one scikit-learn API.

    import isometry
    isometry.compare(X, y)                   # does any learned metric beat Euclidean here?
    Z = isometry.LMNN().fit_transform(X, y)  # one of them

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from isometry import deep, eval, io, report, select
    from isometry.geometric import *
    from isometry.io import load, save
    from isometry.kernel import *
    from isometry.kernelized import Kernelized
    from isometry.probabilistic import *
    from isometry.sampling import *
    from isometry.select import compare
    from isometry.spectral import *
    from isometry.supervision import *

_PACKAGES = (
    "core",
    "deep",
    "eval",
    "geometric",
    "io",
    "kernel",
    "probabilistic",
    "registry",
    "report",
    "select",
    "spectral",
)
_NAMES = {
    **dict.fromkeys(("Candidates", "Chunklets", "Labels", "Pairs", "Quadruplets", "Triplets"), "supervision"),
    **dict.fromkeys(("AllPairs", "NeighborPairs", "NeighborTriplets", "RandomChunklets", "RandomPairs"), "sampling"),
    **dict.fromkeys(("load", "save"), "io"),
    "compare": "select",
    "Kernelized": "kernelized",
}


def _method_targets() -> dict[str, str]:
    from isometry.registry import METHODS

    return {row.name: row.target for row in METHODS if row.family != "deep" and row.name.isidentifier()}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"isometry.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"isometry.{_NAMES[name]}"), name)
    if not name.startswith("_"):
        target = _method_targets().get(name)
        if target is not None:
            module, attribute = target.split(":")
            return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'isometry' has no attribute {name!r}; `isometry list` shows every method")


def __dir__() -> list[str]:
    return sorted({*_PACKAGES, *_NAMES, *_method_targets(), "__version__"})
