"""Do two versions of the package learn the same metrics? Every row of the method table on three data sets.

    python -m benchmarks.same_numbers --write before.json     # in the old tree
    python -m benchmarks.same_numbers --against before.json   # in the new one

Of every fit the last value of the objective and all learned distances of a few samples are kept. Losses of the deep
family are evaluated, with their gradients, on one batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from isometry.core.distance import sqdist
from isometry.registry import Method, all_methods

SHOWN = 25  # samples whose distances are kept
ALLOWED = 1e-8  # relative difference
SPD = 4  # size of the matrices that stand for samples where a method learns from matrices


def data_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Raw features, standardised ones, and single precision with fewer samples than features."""
    wine, iris, digits = load_wine(), load_iris(), load_digits()
    return {
        "wine": (wine.data, wine.target),
        "iris": (StandardScaler().fit_transform(iris.data), iris.target),
        "digits": (digits.data[:60].astype(np.float32), digits.target[:60] % 3),
    }


def as_matrices(X: np.ndarray) -> np.ndarray:
    """Positive definite matrices (n, s, s) made of the features."""
    A = np.resize(np.asarray(X, dtype=np.float64), (len(X), SPD, SPD))
    return A @ A.transpose(0, 2, 1) / np.mean(A**2) + np.eye(SPD)


def learned(row: Method, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Objective and distances of one fit, or the error that it ends with."""
    learner = row.example(**row.published)
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    if {"matrix-samples", "histograms"} & set(row.traits):
        X = as_matrices(X)
    try:
        learner.fit(X, y)
    except ValueError as error:
        return {"error": str(error)}
    history = getattr(learner, "history_", None)
    objective = getattr(learner, "objective_", None if history is None or not len(history) else history[-1])
    Z = np.asarray(learner.transform(X), dtype=np.float64)[:SHOWN]
    D = np.sqrt(sqdist(Z.reshape(len(Z), -1)))
    return {
        "objective": None if objective is None else float(objective),
        "n_iter": getattr(learner, "n_iter_", None),
        "distances": D[np.triu_indices(len(D), 1)].tolist(),
    }


def evaluated(row: Method) -> dict[str, Any]:
    """Value and gradient of a loss on one batch."""
    import torch

    torch.manual_seed(0)
    loss = row.example().double().eval()
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.standard_normal((24, getattr(loss, "embedding_size", 4))), requires_grad=True)
    value = loss(z, torch.tensor(np.arange(24) % 4))
    value.backward()
    return {"objective": float(value), "n_iter": None, "distances": z.grad.ravel().tolist()}


def measure(names: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    sets = data_sets()
    for row in all_methods():
        if names and row.key not in names and row.name not in names:
            continue
        if row.kind in ("loss", "head"):
            found[f"{row.key} {row.name}"] = evaluated(row)
        elif row.kind == "estimator" and row.family != "deep":
            for name, (X, y) in sets.items():
                found[f"{row.key} {row.name} on {name}"] = learned(row, X, y)
    return found


def difference(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest relative difference of objective or distances."""
    if "error" in a or "error" in b:
        return 0.0 if "error" in a and "error" in b else np.inf
    A, B = np.array(a["distances"]), np.array(b["distances"])
    apart = np.abs(A - B).max() / max(np.abs(A).max(), 1e-300)
    if a["objective"] is not None and b["objective"] is not None:
        apart = max(apart, abs(a["objective"] - b["objective"]) / max(abs(a["objective"]), 1e-300))
    return float(apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="file for the numbers of this tree")
    parser.add_argument("--against", type=Path, help="file with the numbers of another tree")
    parser.add_argument("--methods", default="", help="keys or names, with commas; all if empty")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = measure([name for name in arguments.methods.split(",") if name])
    if arguments.write:
        arguments.write.write_text(json.dumps(found))
    if arguments.against:
        before = json.loads(arguments.against.read_text())
        apart = {name: difference(before[name], now) for name, now in found.items() if name in before}
        different = {name: x for name, x in apart.items() if x > ALLOWED}
        exact = sum(x == 0 for x in apart.values())
        print(
            f"\n{len(apart)} compared, {exact} equal to the last bit, {len(different)} apart by more than {ALLOWED:g}"
        )
        for name, x in sorted(different.items(), key=lambda item: -item[1]):
            old, new = before[name], found[name]
            print(f"  {name}: {x:.1e}; objective {old.get('objective')} → {new.get('objective')}", end="")
            print(f"; iterations {old.get('n_iter')} → {new.get('n_iter')}", old.get("error", ""), new.get("error", ""))
        sys.exit(bool(different))


if __name__ == "__main__":
    main()
