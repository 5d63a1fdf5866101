"""What was measured of the classical methods, for tables: read from docs/results/accuracy.json."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

STORE = Path(__file__).resolve().parent / "results" / "accuracy.json"
FEWEST_SETS = 10  # below, a mean says little
FEWEST_ROWS = 10  # a rank among fewer rows says little, too


@dataclass(frozen=True)
class Measured:
    """Of one row of the method table, over the real sets on which it was measured."""

    sets: int
    gain: float  # points of 3-NN accuracy over Euclidean distance, mean over sets
    seconds: float  # CPU seconds of a fit, median over sets
    rank: float  # mean over sets, 1 is best, among the rows measured there
    automatic: bool  # with its default strength; else as published, where that is the default


@cache
def measured() -> dict[str, Measured]:
    """Key of the row → what was measured, with default settings, on samples of known classes."""
    cells: dict[str, dict[str, dict]] = defaultdict(dict)  # type: ignore[type-arg]
    automatic = set()
    found = json.loads(STORE.read_text("utf-8"))
    for setting in ("published", "automatic"):  # the second takes the place of the first
        for name, cell in found.items():
            protocol, data, key, how = name.split(" ")
            if protocol == "closed" and how == setting and "score" in cell:
                cells[data][key] = cell
                if how == "automatic":
                    automatic.add(key)
    cells = {data: rows for data, rows in cells.items() if len(rows) >= FEWEST_ROWS}  # type: ignore[assignment]
    ranks: dict[str, list[float]] = defaultdict(list)
    for rows in cells.values():
        for key, rank in zip(rows, rankdata([-round(c["gain"], 6) for c in rows.values()]), strict=True):
            ranks[key].append(float(rank))
    out = {}
    for key, places in ranks.items():
        own = [rows[key] for rows in cells.values() if key in rows]
        if len(own) >= FEWEST_SETS:
            seconds = float(np.median([np.mean(c["seconds"]) for c in own]))
            gain = 100 * float(np.mean([c["gain"] for c in own]))
            out[key] = Measured(len(own), gain, seconds, float(np.mean(places)), key in automatic)
    return out


def seconds_text(seconds: float) -> str:
    if seconds < 0.001:
        return "< 1 ms"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
