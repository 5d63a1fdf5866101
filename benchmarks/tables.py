"""Real tables, and which of their rows are held out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold, train_test_split

from isometry.select.inputs import choose_scaler, make_scaler

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data"))
EMBEDDED: dict[str, Callable[..., Any]] = {
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
    "iris": load_iris,
    "wine": load_wine,
}
N_FOLDS = 3
MOST_ROWS = 2_000
ENOUGH_ROWS = 1_000  # held out in all, if need be in several orders of the rows
MOST_SHUFFLES = 10
MIN_MEMBERS = 10  # rows of a class, if a set has so many classes that some are left out
MANY_CLASSES = 20  # from so many on, whole classes are held out as well


@dataclass(frozen=True)
class Fold:
    """Rows to learn from and rows held out, prepared by what the former show."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def names_of_sets() -> list[str]:
    """All sets, the quickest to learn from first."""
    names = {*EMBEDDED, *(path.stem for path in DATA.glob("*.npz"))}
    return sorted(names, key=lambda name: (_cost(name), name))


def _cost(name: str) -> int:
    n, d, _ = shape_of(name)
    return n * d * min(n, d)


@cache
def shape_of(name: str) -> tuple[int, int, int]:
    """Rows, features and classes of what is measured."""
    X, y = sample(name)
    return (*X.shape, len(np.unique(y)))


@cache
def sample(name: str) -> tuple[np.ndarray, np.ndarray]:
    """At most 2,000 rows with the same class shares; of very many classes only as many as leave each some rows."""
    X, y = _table(name)
    classes, most = np.unique(y), MOST_ROWS // MIN_MEMBERS
    if len(classes) > most:
        keep = np.isin(y, np.random.default_rng(0).choice(classes, most, replace=False))
        X, y = X[keep], y[keep]
    if len(X) > MOST_ROWS:
        X, _, y, _ = train_test_split(X, y, train_size=MOST_ROWS, stratify=y, random_state=0)
    return X.astype(np.float64), y


def _table(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in EMBEDDED:
        return EMBEDDED[name](return_X_y=True)
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        return arrays["X"], arrays["y"]


def folds(name: str, protocol: str) -> list[Fold]:
    """Three folds, shuffled with seed 0; "closed": stratified, standardised. "open": whole classes are held out.

    In the open protocol embeddings are brought to unit length instead, as `isometry compare` does.
    """
    X, y = sample(name)
    scaler = make_scaler("standard" if protocol == "closed" else choose_scaler("auto", X, protocol)[0])
    made = []
    for train, test in _splits(y, protocol):
        fitted = scaler.fit(X[train])
        made.append(Fold(fitted.transform(X[train]), y[train], fitted.transform(X[test]), y[test]))
    return made


def shuffled_folds(name: str, seed: int) -> tuple[list[Fold], np.ndarray]:
    """Three folds of known classes, of the table in another order (0: as it is), and which rows are held out (n,)."""
    X, y = sample(name)
    order = np.random.default_rng(seed).permutation(len(y)) if seed else np.arange(len(y))
    X, y, scaler = X[order], y[order], make_scaler("standard")
    made, held = [], []
    for train, test in _splits(y, "closed"):
        fitted = scaler.fit(X[train])
        made.append(Fold(fitted.transform(X[train]), y[train], fitted.transform(X[test]), y[test]))
        held.append(order[test])
    return made, np.concatenate(held)


def shuffles(name: str) -> int:
    """In how many orders a table is split, so that chance in small ones is not much larger than in large ones."""
    return min(MOST_SHUFFLES, -(-ENOUGH_ROWS // shape_of(name)[0]))


def _splits(y: np.ndarray, protocol: str) -> list[tuple[np.ndarray, np.ndarray]]:
    if protocol == "open":
        shuffled = np.random.default_rng(0).permutation(np.unique(y))
        held = [np.isin(y, part) for part in np.array_split(shuffled, N_FOLDS)]
        return [(np.flatnonzero(~h), np.flatnonzero(h)) for h in held]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # rare classes miss some folds
        return list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(np.zeros(len(y)), y))
