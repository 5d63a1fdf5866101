"""isometry: metric learning, spectral, probabilistic and deep, under one scikit-learn API.

    import isometry
    isometry.compare(X, y)                   # does any learned metric beat Euclidean here?
    Z = isometry.LMNN().fit_transform(X, y)  # one of them

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib as _importlib

__version__ = "0.1.0"

_PACKAGES = (  # not in ``__all__``: an import of everything should not hide Python's own eval and io
    "core",
    "deep",
    "eval",
    "geometric",
    "io",
    "kernel",
    "probabilistic",
    "registry",
    "report",
    "search",
    "select",
    "spectral",
)
_OTHERS = {  # by module: what is exported beside the methods of the table
    "explanation": ("explain",),
    "fixed": ("FixedMetric",),
    "io": ("export", "load", "save"),
    "kernelized": ("Kernelized",),
    "normalized": ("Normalized",),
    "sampling": (
        "AllPairs",
        "NeighborPairs",
        "NeighborTriplets",
        "OrdinalTriplets",
        "RandomChunklets",
        "RandomComparisons",
        "RandomPairs",
    ),
    "search": ("Index", "Matcher", "Quantizer", "communities", "duplicates"),
    "select": ("AutoMetric", "PairVerifier", "Relevance", "adapt", "compare"),
    "shrunk": ("Shrunk",),
    "supervision": ("Candidates", "Chunklets", "Labels", "Pairs", "Quadruplets", "Targets", "Triplets", "Views"),
}


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return _importlib.import_module(f"isometry.{name}")
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'isometry' has no attribute {name!r}")
    from isometry.registry.exports import exports

    names, load, _ = exports("isometry", _OTHERS)
    return names if name == "__all__" else load(name)


def __dir__() -> list[str]:
    from isometry.registry.exports import targets

    return sorted({*targets("isometry", _OTHERS), *_PACKAGES, "__version__"})
