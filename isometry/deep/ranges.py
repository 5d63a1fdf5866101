"""Ranges of the numbers that a loss or miner is built with: an error names the number and what is allowed."""

from __future__ import annotations

import math


def above_zero(name: str, value: float) -> float:
    """A finite number > 0."""
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a number above 0, got {value!r}")
    return value


def within(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> float:
    """A number of [low, high], or of (low, high]."""
    if not low <= value <= high or (open_low and value == low):
        raise ValueError(f"{name} must lie in {'(' if open_low else '['}{low:g}, {high:g}], got {value!r}")
    return value
