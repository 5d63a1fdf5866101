"""What is measured: the same problem for both sides, and figures of merit that our code computes for every map.

A contest has our fit and those of the peers on the same data, from the same start. ``small`` contests belong to the
quick run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.environments import HOME, OURS
from benchmarks.tables import DATA
from isometry.core.distance import pair_sqdist, sqdist, sqdist_blocks
from isometry.core.graph import target_neighbors
from isometry.eval import loo_hits

Figure = Callable[[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]], float]  # (L, X, y, arrays) → value


@dataclass(frozen=True)
class Side:
    """One fit: the environment it runs in, and the call of peers.py."""

    name: str
    environment: str
    call: str
    params: dict[str, Any] = field(default_factory=dict)
    mapped: bool = False  # X as a mapped file


@dataclass(frozen=True)
class Contest:
    """Ours and theirs on one data set."""

    title: str
    data: str
    ours: tuple[Side, ...]  # ratios refer to the first: ours, or a yardstick
    theirs: tuple[Side, ...]
    figures: tuple[str, ...] = ()  # keys of FIGURES; the map of every side is judged by each
    small: bool = False
    n_pairs: int = 0  # listed pairs to learn from, half of them similar
    note: str = ""
    paced: tuple[str, ...] = ()  # peers that minimise the first figure: how soon is ours as far as they?
    limit: float = 0  # seconds, if the usual limit is too short

    def arrays(self, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        return {"pairs": draw_pairs(y, self.n_pairs)} if self.n_pairs else {}


# ---- data ----


def synthetic(n: int, d: int, classes: int, informative: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes in clusters, as many redundant features as informative ones, and the rest noise: a singular set."""
    return make_classification(
        n, d, n_informative=informative, n_redundant=informative, n_classes=classes, random_state=0
    )


def clouds(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes in float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, n)
    centres = 0.25 * rng.standard_normal((classes, d), dtype=np.float32)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += centres[y]
    return X, y


def letter() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "letter.npz", allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"]


FITTED, ALL = "synthetic 10,000 of 12,500 × 100", "synthetic 12,500 × 100"
SETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "letter": letter,
    "synthetic 500 × 20": lambda: synthetic(500, 20, 4, 5),
    "synthetic 2,000 × 50": lambda: synthetic(2_000, 50, 5, 10),
    "synthetic 10,000 × 100": lambda: synthetic(10_000, 100, 10, 15),
    ALL: lambda: synthetic(12_500, 100, 10, 15),
    FITTED: lambda: tuple(array[:10_000] for array in synthetic(12_500, 100, 10, 15)),  # type: ignore
    "synthetic 50,000 × 100": lambda: synthetic(50_000, 100, 10, 15),
    "clouds 5,000 × 64": lambda: clouds(5_000, 64, 100),
    "clouds 50,000 × 64": lambda: clouds(50_000, 64, 100),
    "clouds 100,000 × 128": lambda: clouds(100_000, 128, 1000),
    "clouds 1,000,000 × 128": lambda: clouds(1_000_000, 128, 100),
}


def stored(name: str) -> Path:
    """The folder with X.npy and y.npy of a set, standardised unless it is float32; made on first use."""
    folder = HOME / "data" / name.replace(" ", "_").replace(",", "").replace("×", "x")
    if not (folder / "y.npy").exists():
        X, y = SETS[name]()
        folder.mkdir(parents=True, exist_ok=True)
        np.save(
            folder / "X.npy", np.ascontiguousarray(X if X.dtype == np.float32 else StandardScaler().fit_transform(X))
        )
        np.save(folder / "y.npy", np.unique(y, return_inverse=True)[1].astype(np.int64))
    return folder


def draw_pairs(y: np.ndarray, m: int) -> np.ndarray:
    """(m, 3) i, j, similar; half of the pairs are similar."""
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(y), (2, 100 * m))
    rows = np.flatnonzero(i != j)
    same = y[i[rows]] == y[j[rows]]
    rows = np.concatenate([rows[same][: m // 2], rows[~same][: m // 2]])
    return np.stack([i[rows], j[rows], y[i[rows]] == y[j[rows]]], axis=1).astype(np.int64)


# ---- figures of merit ----


def lmnn_loss(L, X, y, arrays) -> float:
    """½ Σ_target d_ij + ½ Σ [1 + d_ij − d_il]₊ over three target neighbours and all impostors."""
    targets, Z = target_neighbors(X, y, 3), X @ L.T
    near = np.stack([pair_sqdist(Z, np.arange(len(Z)), t) for t in targets.T], axis=1)  # (n, 3)
    push = 0.0
    for rows, D in sqdist_blocks(Z):
        D[y[rows, None] == y] = np.inf
        push += sum(float(np.maximum(1 + t[:, None] - D, 0).sum()) for t in near[rows].T)
    return (float(near.sum()) + push) / 2


def nca_share(L, X, y, arrays) -> float:
    """Mean probability that a point picks a neighbour of its own class; higher is better."""
    total = 0.0
    for rows, D in sqdist_blocks(X @ L.T):
        P = np.exp(D.min(axis=1, keepdims=True) - D)
        total += float(np.sum(np.sum(P * (y[rows, None] == y), axis=1) / P.sum(axis=1)))
    return total / len(X)


def mcml_loss(L, X, y, arrays) -> float:
    """Mean KL from collapsed classes to the neighbour softmax."""
    total = 0.0
    for rows, D in sqdist_blocks(X @ L.T):
        i = np.arange(rows.start, rows.stop)
        same = (y[rows, None] == y) & (i[:, None] != np.arange(len(X)))
        low = D.min(axis=1)
        log_sum = np.log(np.exp(low[:, None] - D).sum(axis=1)) - low
        n_same = same.sum(axis=1)
        total += float(np.sum(np.where(same, D, 0).sum(axis=1) / n_same + log_sum - np.log(n_same)))
    return total / len(X)


def ldml_loss(L, X, y, arrays) -> float:
    """Mean logistic loss of all pairs, at the threshold that suits the map best."""
    from scipy.optimize import minimize_scalar

    i, j = np.triu_indices(len(X), 1)
    d, sign = pair_sqdist(X @ L.T, i, j), np.where(y[i] == y[j], 1.0, -1.0)
    best = minimize_scalar(lambda b: float(np.mean(np.logaddexp(0, sign * (d - b)))), bracket=(0, np.median(d)))
    return float(best.fun)


def itml_loss(L, X, y, arrays) -> float:
    """D(W, I) + Σ h(d/bound) over violated pairs: the published problem with its slacks eliminated, γ = 1."""
    i, j, similar = arrays["pairs"].T
    d, W = np.maximum(pair_sqdist(X @ L.T, i, j), 1e-300), L.T @ L
    if np.linalg.eigvalsh(W)[0] <= 0:
        return np.inf
    u, l = itml_bounds(X)
    r = np.where(similar == 1, np.maximum(d / u, 1), np.minimum(d / l, 1))
    divergence = np.trace(W) - np.linalg.slogdet(W)[1] - len(W)
    return float(divergence + np.sum(r - np.log(r) - 1))


def itml_bounds(X: np.ndarray) -> tuple[float, float]:
    """5th and 95th percentile of the squared distances of a sample of points."""
    rows = np.random.default_rng(0).permutation(len(X))[:500]
    u, l = np.percentile(sqdist(X[rows])[np.triu_indices(len(rows), 1)], [5, 95])
    return float(u), float(l)


def mmc_ratio(L, X, y, arrays) -> float:
    """Mean distance of dissimilar pairs over the root mean square of similar ones; higher is better."""
    i, j, similar = arrays["pairs"].T
    d = pair_sqdist(X @ L.T, i, j)
    return float(np.sqrt(d[similar == 0]).mean() / np.sqrt(d[similar == 1].mean()))


def mlkr_loss(L, X, y, arrays) -> float:
    """Σ_i (y_i − ŷ_i)², ŷ the average of the others by the weights exp(−d²), y the numbers of the classes."""
    Z, total = X @ L.T, 0.0
    for rows, D in sqdist_blocks(Z):
        K = np.exp(np.min(D, axis=1, keepdims=True) - D)
        total += float(np.sum((y[rows] - K @ y / K.sum(axis=1)) ** 2))
    return total


def lsml_loss(L, X, y, arrays) -> float:
    """Mean [d(a, b) − d(c, d)]₊² over the comparisons, plus tr W − log det W."""
    a, b, c, d = arrays["quadruplets"].T
    Z, W = X @ L.T, L.T @ L
    excess = np.maximum(np.sqrt(pair_sqdist(Z, a, b)) - np.sqrt(pair_sqdist(Z, c, d)), 0)
    return float(np.mean(excess**2) + np.trace(W) - np.linalg.slogdet(W)[1])


def accuracy(L, X, y, arrays) -> float:
    """Leave-one-out 3-NN accuracy."""
    return float(loo_hits(X @ L.T.astype(X.dtype), y, 3).mean())


def held_out(L, X, y, arrays) -> float:
    """3-NN accuracy of the rows that FITTED lacks."""
    (rows, labels), scaler = SETS[ALL](), StandardScaler()
    n, labels = len(X), np.unique(labels, return_inverse=True)[1]
    scaler.fit(rows[:n])
    vote = KNeighborsClassifier(3).fit(X @ L.T, y)
    return float(vote.score(scaler.transform(rows[n:]) @ L.T, labels[n:]))


FIGURES: dict[str, tuple[str, Figure]] = {
    "lmnn": ("loss ↓", lmnn_loss),
    "nca": ("share ↑", nca_share),
    "mcml": ("KL ↓", mcml_loss),
    "ldml": ("log loss ↓", ldml_loss),
    "itml": ("objective ↓", itml_loss),
    "mmc": ("ratio of distances ↑", mmc_ratio),
    "mlkr": ("squared error ↓", mlkr_loss),
    "lsml": ("objective ↓", lsml_loss),
    "held out": ("3-NN accuracy of other rows ↑", held_out),
    "accuracy": ("3-NN accuracy ↑", accuracy),
}


# ---- contests ----


def ours(name: str, call: str = "isometry", *, mapped: bool = False, label: str = "", **params: Any) -> Side:
    return Side(label or f"isometry {name}", OURS, call, {"name": name, **params}, mapped)


def peer(environment: str, name: str, **params: Any) -> Side:
    """A class of metric-learn or pydml."""
    call = environment.replace("-", "_")
    return Side(f"{environment} {name}", environment, call, {"name": name, **params})


PYLMNN = Side("pylmnn", "pylmnn", "pylmnn", {"n_neighbors": 3, "init": "identity", "max_iter": 200, "random_state": 0})
MLPACK = Side("mlpack", "mlpack", "mlpack_lmnn", {"k": 3, "optimizer": "lbfgs", "max_iterations": 200, "seed": 1})
NCA_THERE = Side("scikit-learn NCA", OURS, "scikit_learn_nca", {"init": "identity", "random_state": 0, "max_iter": 200})
LMNN_THERE = peer("metric-learn", "LMNN", n_neighbors=3, regularization=0.5, init="identity", random_state=0)
MATCH = Side("pytorch-metric-learning", "pytorch-metric-learning", "accuracy_calculator")
RETRIEVAL = Side("isometry", OURS, "isometry_retrieval")
PRODUCT = Side("one product XᵀX", OURS, "product")


def lmnn_contests() -> Iterator[Contest]:
    for data, peers, small in (
        ("wine", (LMNN_THERE, PYLMNN, MLPACK), True),
        ("synthetic 500 × 20", (LMNN_THERE, PYLMNN, MLPACK), True),
        ("digits", (LMNN_THERE, PYLMNN, MLPACK), False),
        ("synthetic 2,000 × 50", (LMNN_THERE, PYLMNN, MLPACK), False),
        ("synthetic 10,000 × 100", (PYLMNN, MLPACK, LMNN_THERE), False),
        ("letter", (MLPACK, PYLMNN), False),
    ):
        sides, figures = (ours("LMNN", strength=1.0, init="identity"),), ("lmnn", "accuracy")
        if data == "letter":
            sides += (ours("LMNN", strength=1.0, init="identity", n_neighbors=5, label="isometry LMNN, n_neighbors=5"),)
        yield Contest("LMNN", data, sides, peers, figures, small, paced=(LMNN_THERE.name, PYLMNN.name))


def nca_contests() -> Iterator[Contest]:
    mine = ours("NCA", strength=1.0, init="eye")
    fast = ours("FastNCA", strength=1.0, max_iter=100, label="isometry FastNCA, max_iter=100 as NCA")
    for data, sides, small, limit in (
        ("breast cancer", (mine,), True, 0),
        ("synthetic 2,000 × 50", (mine,), False, 0),
        ("synthetic 10,000 × 100", (mine, fast), False, 1200),
    ):
        figures, paced = ("nca", "accuracy"), (NCA_THERE.name,)
        yield Contest("NCA", data, sides, (NCA_THERE,), figures, small, paced=paced, limit=limit)
    fast = ours("FastNCA", strength=1.0, max_iter=100, n_updates=1, label="isometry FastNCA, max_iter=100, n_updates=1")
    yield Contest(
        "NCA beside FastNCA",
        FITTED,
        (
            fast,
            ours("FastNCA", strength=1.0, max_iter=100, label="isometry FastNCA, max_iter=100"),
            ours("NCA", strength=1.0),
        ),
        (),
        ("held out", "accuracy"),
        note="10,000 rows were fitted; the first accuracy is that of the other 2,500, by their neighbours among those.",
        limit=1200,
    )
    few = {"init": "identity", "max_iter": 3}
    yield Contest(
        "NCA, memory",
        "synthetic 50,000 × 100",
        (ours("NCA", strength=1.0, **few),),
        (Side("scikit-learn NCA", OURS, "scikit_learn_nca", {**few, "random_state": 0}),),
        note="Three iterations: what counts is whether it runs, and in which memory.",
        limit=1200,
    )


def pair_contests() -> Iterator[Contest]:
    for data, m, small in (("wine", 400, True), ("digits", 2000, False)):
        bounds = itml_bounds(np.load(stored(data) / "X.npy"))
        yield Contest(
            "ITML",
            data,
            (ours("ITML", "isometry_pairs", strength=1.0, bounds=bounds, gamma=1.0),),
            (
                Side(
                    "metric-learn ITML",
                    "metric-learn",
                    "metric_learn_pairs",
                    {"name": "ITML", "bounds": bounds, "gamma": 1.0, "random_state": 0},
                ),
            ),
            ("itml", "accuracy"),
            small,
            m,
            f"The same {m:,} pairs and bounds on both sides.",
        )
        yield Contest(
            "MMC",
            data,
            (ours("MMC", "isometry_pairs", reg=0.0),),
            (Side("metric-learn MMC", "metric-learn", "metric_learn_pairs", {"name": "MMC", "random_state": 0}),),
            ("mmc", "accuracy"),
            small,
            m,
            f"The same {m:,} pairs on both sides.",
        )


def pydml_contests() -> Iterator[Contest]:
    for name, figure in (("MCML", "mcml"), ("LDML", "ldml")):
        for data, small in (("iris", True), ("wine", False), ("breast cancer", False)):
            theirs = peer("pydml", name)
            yield Contest(name, data, (ours(name),), (theirs,), (figure, "accuracy"), small, paced=(theirs.name,))


def beyond_contests() -> Iterator[Contest]:
    """Learners beyond the survey that metric-learn or pydml have as well, with the defaults of each library."""
    for data, small in (("wine", True), ("breast cancer", False), ("digits", False)):
        theirs = peer("metric-learn", "MLKR", init="pca", random_state=0)
        note = "The numbers of the classes are what is predicted."
        yield Contest("MLKR", data, (ours("MLKR", reg=0.0),), (theirs,), ("mlkr", "accuracy"), small, note=note)
        for name, there, options in (
            ("LFDA", "LFDA", {}),
            ("LSML", "LSML_Supervised", {"random_state": 0}),
            ("SCML", "SCML_Supervised", {"random_state": 0}),
            ("SDML", "SDML_Supervised", {"random_state": 0}),
        ):
            yield Contest(name, data, (ours(name),), (peer("metric-learn", there, **options),), ("accuracy",), small)
        for name, there in (
            ("ANMM", "ANMM"),
            ("DMLMJ", "DMLMJ"),
            ("NCM", "NCMML"),
            ("DMLeig", "DML_eig"),
        ):
            yield Contest(name, data, (ours(name),), (peer("pydml", there),), ("accuracy",), small)


def singular_contests() -> Iterator[Contest]:
    """Constant pixels and redundant features: what comes out at all?"""
    theirs = (
        peer("metric-learn", "RCA_Supervised", n_chunks=30, random_state=0),
        peer("metric-learn", "LFDA"),
        peer("metric-learn", "SDML_Supervised", random_state=0),
    )
    for data, small in (("digits", True), ("synthetic 2,000 × 50", False)):
        sides = (ours("RCA"), ours("FisherML"), ours("DCA"))
        yield Contest("Closed forms on singular data", data, sides, theirs, ("accuracy",), small)


def size_contests() -> Iterator[Contest]:
    for data, rows, small in (("clouds 50,000 × 64", 10_000, True), ("clouds 1,000,000 × 128", 50_000, False)):
        for name in ("GMML", "FisherML", "DCA", "RCA", "Covariance", "IGML"):
            sides = [
                ours(name, label=f"isometry {name}, in memory"),
                ours(name, label=f"isometry {name}, mapped file", mapped=True),
                ours(name, "isometry_chunks", label=f"isometry {name}, Dask", mapped=True, rows=rows),
            ]
            if name not in ("GMML", "RCA"):
                sides = sides[:1]
            note = f"Dask chunks have {rows:,} rows and come from the mapped file." if len(sides) > 1 else ""
            if not small or name == "GMML":
                yield Contest("Moments", data, (PRODUCT, *sides), (), small=small, note=note)


def retrieval_contests() -> Iterator[Contest]:
    for data, small in (("clouds 5,000 × 64", True), ("clouds 100,000 × 128", False)):
        yield Contest("Retrieval metrics", data, (RETRIEVAL,), (MATCH,), small=small)


def all_contests() -> Iterator[Contest]:
    yield from lmnn_contests()
    yield from nca_contests()
    yield from pair_contests()
    yield from pydml_contests()
    yield from beyond_contests()
    yield from singular_contests()
    yield from size_contests()
    yield from retrieval_contests()
