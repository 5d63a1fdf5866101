"""How cost grows: CPU seconds over n and over d on log-log axes, with the exponent that was measured.

Of iterative methods evaluations are timed, so that a curve shows the cost of a step and not the path of a search. Draws
docs/images/scaling_n.png and scaling_d.png.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contests import synthetic
from benchmarks.environments import HOME, OURS, measure

EXPLANATION = """
Slopes of CPU seconds on log-log axes, beside the slope of the operations that theory counts at the same sizes: of whole
fits for GMML and RCA, of three evaluations of value and gradient at the start for the others (of LMNN with a search for
impostors each). Small dimensions are left out of the curves over d: there the elementwise work, which does not depend
on d, shows.
"""
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


@dataclass(frozen=True)
class Curve:
    """A method, the call of peers.py, the sizes it is run at, and the operations that theory counts."""

    name: str
    call: str
    params: dict[str, Any]
    over_n: tuple[int, ...]
    over_d: tuple[int, ...]
    n: int  # of the curve over d
    d: int  # of the curve over n
    cost: str  # in words
    operations: Callable[[int, int], float]  # the same of n and d, up to a factor

    def shapes(self, axis: str) -> list[tuple[int, int]]:
        return [(n, self.d) for n in self.over_n] if axis == "n" else [(self.n, d) for d in self.over_d]


STEPS = {"times": 3}
ROWS = {"over_n": (200_000, 400_000, 800_000, 1_600_000), "over_d": (128, 256, 512, 1024), "n": 60_000, "d": 64}
PAIRS = {"over_n": (2_000, 4_000, 8_000, 16_000), "over_d": (256, 512, 1024, 2048), "n": 4_000, "d": 32}
FAST = {"over_n": (8_000, 16_000, 32_000, 64_000), "over_d": (64, 128, 256, 512), "n": 8_000, "d": 32}
by_row: dict[str, Any] = {"call": "isometry", "params": {}, "cost": "n d²", "operations": lambda n, d: n * d**2}
by_step = {"call": "isometry_steps", "params": STEPS}
by_pair = {**by_step, "cost": "n d (n + d) a step", "operations": lambda n, d: n * d * (n + d)}
by_neighbor = {**by_step, "cost": "n d (2k + d) a step, k = 10", "operations": lambda n, d: n * d * (20 + d)}
CURVES = [
    *(Curve(name, **ROWS, **by_row) for name in ("GMML", "RCA")),
    *(Curve(name, **PAIRS, **by_pair) for name in ("NCA", "MCML", "LMNN")),
    Curve("FastNCA", **FAST, **by_neighbor),
]


def sample(n: int, d: int) -> Path:
    """The folder with X.npy and y.npy of a synthetic set."""
    folder = HOME / "data" / f"scaling_{n}x{d}"
    if not (folder / "y.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        X, y = synthetic(n, d, 5, 8)
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y.astype(np.int64))
    return folder


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds over log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def trace(curve: Curve, axis: str, limit: float, threads: int) -> tuple[list[int], list[float], str]:
    """Sizes and CPU seconds up to the first failure, and what failed."""
    sizes: list[int] = []
    seconds: list[float] = []
    for n, d in curve.shapes(axis):
        params = {"name": curve.name, **curve.params}
        outcome = measure(OURS, curve.call, params, sample(n, d), limit=limit, threads=threads)
        if outcome.failure:
            return sizes, seconds, f"{curve.name} at {n:,} × {d:,}: {outcome.failure}"
        sizes.append(n if axis == "n" else d)
        seconds.append(outcome.cpu)
    return sizes, seconds, ""


def scaling(curves: list[Curve] = CURVES, *, limit: float = 300, threads: int = 1) -> list[str]:
    """Measure and draw all curves, and return the lines of the page."""
    lines, failures = ["", "## How cost grows", "", *EXPLANATION.strip().splitlines(), ""], []
    lines += ["| method | over | sizes | exponent | theory | | cost |", "|---|---|---|--:|--:|--:|---|"]
    for axis in ("n", "d"):
        drawn = []
        for c in curves:
            sizes, seconds, failure = trace(c, axis, limit, threads)
            failures += [f"- {failure}"] if failure else []
            if len(sizes) < 2:
                continue
            slope = exponent(sizes, seconds)
            theory = exponent(sizes, [c.operations(*shape) for shape in c.shapes(axis)[: len(sizes)]])
            span = f"{sizes[0]:,} to {sizes[-1]:,}"
            cells = [c.name, axis, span, f"{slope:.2f}", f"{theory:.2f}", f"{slope / theory - 1:+.0%}", c.cost]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
            drawn.append((c.name, sizes, seconds, slope))
        draw(axis, drawn)
    for axis in ("n", "d"):
        lines += ["", f"![CPU seconds over {axis}](../images/scaling_{axis}.png)"]
    return [*lines, "", *failures]


def draw(axis: str, curves: list[tuple[str, list[int], list[float], float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, sizes, seconds, slope in curves:
        ax.loglog(sizes, seconds, marker="o", ms=4, lw=1.5, label=f"{name}: {axis}$^{{{slope:.2f}}}$")
    ax.set(xlabel=f"{axis}, number of {'samples' if axis == 'n' else 'features'}", ylabel="CPU seconds of fit")
    ticks = sorted({size for _, sizes, *_ in curves for size in sizes})
    ax.set_xticks(ticks, [f"{t // 1000}k" if t % 1000 == 0 else str(t) for t in ticks])
    ax.minorticks_off()
    ax.grid(which="major", color="0.9")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"scaling_{axis}.png", dpi=150)
    plt.close(figure)
