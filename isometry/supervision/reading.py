"""``y`` as a supervision object."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from isometry.supervision.base import Supervision
from isometry.supervision.entries import holds_two_signs
from isometry.supervision.labels import Labels
from isometry.supervision.targets import Targets


def as_supervision(
    y: Any, n_samples: int | None = None, *, unlabelled: Any = None, numbers: bool = False
) -> Supervision | None:
    """``y`` as a supervision object: objects pass, arrays become Labels, or Targets if they are ``numbers``.

    The length is checked. In an array that holds −1 and +1 and nothing else these are two classes, also where
    ``unlabelled`` is −1.
    """
    if y is None:
        return None
    if numbers and not isinstance(y, Supervision):
        y = Targets(y)
    if unlabelled == -1 and not isinstance(y, Supervision) and holds_two_signs(np.asarray(y)):
        warnings.warn(
            "y holds -1 and +1 and nothing else, which are taken for two classes. Pass Labels(y) to say so, or "
            "Labels(y, unlabelled=-1) if the rows with -1 have no label",
            stacklevel=4,
        )
        unlabelled = None
    side = y if isinstance(y, Supervision) else Labels(y, unlabelled=unlabelled)
    if n_samples is not None and len(side) != n_samples:
        raise ValueError(f"y has {len(side)} entries but X has {n_samples} rows: give one entry per row")
    return side
