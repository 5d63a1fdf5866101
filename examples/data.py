"""The real data sets of the examples, which lie outside the repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
FOLDER = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data"))


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d) as float32 and y (n,) of one set."""
    arrays = load_all(name)
    return arrays["X"].astype(np.float32), arrays["y"]


def load_all(name: str) -> dict[str, np.ndarray]:
    """Every array stored with a set, such as ``image_shape`` or ``view_slices``; ends the program if it is absent."""
    path = FOLDER / f"{name}.npz"
    if not path.is_file():
        sys.exit(
            f"The data set {name} was not found: {path.name} should lie in the folder that the environment variable "
            "ISOMETRY_DATA names, or in shared/data beside the checkout. It holds the arrays X (n, d) and y (n,)."
        )
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}
