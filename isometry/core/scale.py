"""Whether numbers are of a size that squares and their sums can be taken of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isometry.core.warn import warn_user

# Squared distances are added up in the type of X, and products of two scatters, fourth powers, in float64; both leave
# room for sums over many samples and features.
LARGEST = {"float32": 1e15, "float64": 1e50}
SMALLEST = {"float32": 1e-15, "float64": 1e-50}
LARGEST_TO_SCALE = 1e150  # of float64: deviations of larger numbers are infinite, and what is divided by them NaN
PROBE = 64  # rows that show, in most cases, that samples differ
MANY = 4096  # rows that show how far columns scatter
WIDEST = 4e5  # ratio of the deviations of two columns; the square of its inverse is below all tolerances of ranks


def check_scale(X: np.ndarray, name: str = "X", *, varied: bool = True) -> None:
    """Refuse samples X (n, …) of which squares would overflow, or whose differences would vanish when squared.

    Unless ``varied`` is false, some two samples must differ. An error calls them by ``name``.
    """
    if X.size == 0:
        return
    dtype, size = X.dtype.name, max(-float(X.min()), float(X.max()))
    if size > LARGEST[dtype]:
        column = int(np.abs(X).max(axis=tuple(range(X.ndim - 1))).argmax())
        wider = ", or pass it as float64" if dtype == "float32" and size <= LARGEST["float64"] else ""
        raise ValueError(
            f"{name} holds numbers as large as {size:.2g} (in column {column}): sums of their squares, or products of "
            f"such sums, do not fit in {dtype}. Take a larger unit, say divide by {size:.0e}{wider}"
        )
    if not varied or _spread(some_rows(X)) >= SMALLEST[dtype]:
        return
    check_varied(X, name)
    spread = _spread(X)
    if spread < SMALLEST[dtype]:
        raise ValueError(
            f"the samples in {name} differ by {spread:.2g} at most: squares of such numbers, or products of squares, "
            f"vanish in {dtype}. Take a smaller unit, say divide by {spread:.0e}"
        )


def check_can_be_scaled(X: np.ndarray, columns: Sequence[str] | None = None, name: str = "X") -> None:
    """Refuse a table X (n, d) of numbers so large that a scaler would make NaN of them; NaN itself is let pass."""
    if X.size == 0:
        return
    largest, smallest = np.fmax.reduce(X, axis=0), np.fmin.reduce(X, axis=0)  # (d,), without a copy of X
    size = np.maximum(largest, -smallest).astype(np.float64)  # 32 bits do not hold the limit
    large = np.flatnonzero((size > LARGEST_TO_SCALE) & np.isfinite(size))
    if len(large):
        column = int(large[size[large].argmax()])
        where = columns[column] if columns else column
        raise ValueError(
            f"{name} holds numbers as large as {size[column]:.2g} (in column {where}): "
            f"their squares do not fit in float64. Take a larger unit, say divide by {size[column]:.0e}"
        )


def check_varied(X: np.ndarray, name: str = "X") -> None:
    """Refuse samples X (n, …) that are all equal."""
    if _spread(some_rows(X)) == 0 and _spread(X) == 0:
        raise ValueError(
            f"all samples are equal: {name} holds {len(X)} times the same one, and no distance can be learned"
        )


def some_rows(X: np.ndarray) -> np.ndarray:
    """A few samples from all over X, which in most cases show that there are two that differ."""
    return X[:: max(1, len(X) // PROBE)]


def _spread(X: np.ndarray) -> float:
    """The largest difference of two samples in one entry."""
    return float((X.max(axis=0) - X.min(axis=0)).max())


def check_units(X: np.ndarray) -> None:
    """Warn if some columns of a table X (n, d) vary so little beside others that a metric may not see them."""
    deviation = X[:: max(1, len(X) // MANY)].std(axis=0, dtype=np.float64)  # (d,)
    varies = np.flatnonzero(deviation > 0)
    if len(varies) < 2:
        return
    least, most = varies[deviation[varies].argmin()], varies[deviation[varies].argmax()]
    if deviation[most] > WIDEST * deviation[least]:
        warn_user(
            f"the columns of X have very different units: column {least} has the standard deviation "
            f"{deviation[least]:.2g}, column {most} {deviation[most]:.2g}. The metric may not see the small ones: "
            "divide each by its deviation, as StandardScaler does"
        )
