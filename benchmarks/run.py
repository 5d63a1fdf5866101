"""Ours beside the peers: same data, same threads, one process a fit. `make bench`, `make bench-quick`.

Writes docs/results/speed.md. The claim is the ratio, not the seconds: those belong to the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from sklearn.preprocessing import StandardScaler

from benchmarks.environments import python
from isometry import NCA, Labels
from isometry.core.graph import target_neighbors
from isometry.spectral.lmnn import Impostors

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "speed.md"
TIMEOUT = 600


@dataclass(frozen=True)
class Contest:
    """The same problem for both sides."""

    title: str
    ours: tuple[str, dict[str, Any]]  # class of isometry, parameters
    environment: str
    theirs: tuple[str, str, dict[str, Any]]  # module, class, parameters
    objective: Callable[[np.ndarray, np.ndarray, np.ndarray], float] | None  # (L, X, y) → what both minimise


def lmnn_objective(L, X, y):
    return Impostors(X, y, target_neighbors(X, y, 3), 1.0, None).value(L, 0.5)


def nca_objective(L, X, y):
    return NCA()._objective(X - X.mean(axis=0), Labels(y), np.random.RandomState(0))(L)[0]


CONTESTS = [
    Contest(
        "NCA",
        ("NCA", {"init": "identity"}),
        "scikit-learn",
        ("sklearn.neighbors", "NeighborhoodComponentsAnalysis", {"init": "identity", "random_state": 0}),
        nca_objective,
    ),
    Contest(
        "LMNN",
        ("LMNN", {}),
        "metric-learn",
        ("metric_learn", "LMNN", {"n_neighbors": 3, "regularization": 0.5, "random_state": 0}),
        lmnn_objective,
    ),
    Contest("ITML", ("ITML", {}), "metric-learn", ("metric_learn", "ITML_Supervised", {"random_state": 0}), None),
    Contest(
        "RCA",
        ("RCA", {}),
        "metric-learn",
        ("metric_learn", "RCA_Supervised", {"n_chunks": 30, "random_state": 0}),
        None,
    ),
]


def data_sets(quick: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    sets = {f.__name__[5:]: f(return_X_y=True) for f in (load_iris, load_wine, load_breast_cancer)}
    if not quick:
        sets["digits"] = load_digits(return_X_y=True)
        sets["synthetic 2000 × 50"] = make_classification(
            2000, 50, n_informative=10, n_redundant=10, n_classes=5, random_state=0
        )
    return {name: (StandardScaler().fit_transform(X), y) for name, (X, y) in sets.items()}


def fit(executable: str, module: str, name: str, params: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Seconds, memory and map of one fit, or why there are none."""
    job = {"module": module, "class": name, "params": params, "data": str(data), "result": str(folder / "result.npz")}
    (folder / "job.json").write_text(json.dumps(job))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [executable, str(Path(__file__).with_name("worker.py")), str(folder / "job.json")],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"more than {TIMEOUT} s"}
    if done.returncode:
        return {"failure": done.stderr.strip().splitlines()[-1][:100]}
    with np.load(folder / "result.npz") as result:
        outcome = {**json.loads(done.stdout), "L": result["L"], "finite": bool(result["finite"])}
    return outcome if outcome["finite"] else {**outcome, "failure": "result is not finite"}


def row(contest: Contest, name: str, X, y, ours, theirs) -> str:
    cells = [contest.title, name, f"{len(X)} × {X.shape[1]}", f"{contest.environment} {contest.theirs[1]}"]
    cells.append(ours.get("failure") or f"{ours['cpu']:.3g}")
    cells.append(theirs.get("failure") or f"{theirs['cpu']:.3g}")
    both = "failure" not in ours and "failure" not in theirs
    cells.append(f"**{theirs['cpu'] / ours['cpu']:.1f} ×**" if both else "")
    cells.append(f"{ours['mib']:.0f} / {theirs['mib']:.0f}" if both else "")
    values = [
        f"{contest.objective(o['L'], X, y):.5g}" if contest.objective and "failure" not in o else "–"
        for o in (ours, theirs)
    ]
    cells.append(" / ".join(values))
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sets only, under five minutes")
    quick = parser.parse_args().quick
    lines = [
        "# Speed, side by side",
        "",
        "Same standardised data, default parameters unless both must agree, one thread, one process a fit, one run.",
        "CPU seconds of `fit`; the ratio is theirs to ours. Where both minimise the same objective its value is given:",
        "lower is better.",
        "",
        "| method | data | size | peer | ours, s | theirs, s | ratio | MiB ours / theirs | objective ours / theirs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, (X, y) in data_sets(quick).items():
            data = folder / "data.npz"
            np.savez(data, X=X, y=y)
            for contest in CONTESTS:
                ours = fit(sys.executable, "isometry", *contest.ours, data, folder)
                theirs = fit(str(python(contest.environment)), *contest.theirs, data, folder)
                lines.append(row(contest, name, X, y, ours, theirs))
                print(lines[-1], flush=True)
    if not quick:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text("\n".join([*lines, ""]))
        print(f"written: {RESULTS.relative_to(RESULTS.parents[2])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
