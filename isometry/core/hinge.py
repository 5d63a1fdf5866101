"""A hinge that quasi-Newton methods can descend: rounded at first, sharper in each round."""

from __future__ import annotations

import numpy as np

SMOOTHING = (1e-1, 3e-3, 1e-4)  # widths of the rounding, in units of the margin, one for each round
WIDTHS = (1e-1, 1e-2)  # the same where a hundredth of the margin is sharp enough


def rounded_hinge(h: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """[h]₊ with a parabola of width τ in place of the kink, and its slope in [0, 1]."""
    h = np.maximum(h, 0)  # h may be −inf, for a pair that does not exist
    slope = np.minimum(h / tau, 1)
    return slope * (h - slope * tau / 2), slope
