"""What a training run did for samples it never saw: retrieval under several maps, and their nearest neighbours."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import check_random_state

from isometry.eval import Interval, Retrieval, mean_interval, nearest, paired_interval, retrieval
from isometry.geometric.gmml import GMML
from isometry.select.verdict import p_value
from isometry.spectral.dca import DCA
from isometry.spectral.rca import RCA

NETWORK, RAW = "network", {True: "raw pixels", False: "standardised features"}
MANY_FEATURES, PRINCIPAL = 64, 32  # beyond so many features classical metrics stand on principal components
QUERIES, NEIGHBORS = 12, 8
FEW_CLASSES = 6  # of fewer, all in favour is no rare event if a coin decides for each: 2 · 2⁻⁵ > 0.05
Samples = tuple[np.ndarray, np.ndarray]  # X (n, d) and labels (n,)


@dataclass
class HeldOutScore:
    """How well held-out samples find others of their class under one map."""

    name: str
    map_at_r: Interval
    recall: Interval
    gain: Interval | None  # MAP@R of the network minus that of this map, paired by query
    sure: bool  # whether that gain is above zero for more than chance
    seconds: float  # to learn the map

    def as_dict(self) -> dict[str, Any]:
        """For JSON: intervals with names for their ends."""
        return {k: v._asdict() if isinstance(v, Interval) else v for k, v in vars(self).items()}


@dataclass
class HeldOutScene:
    """The held-out samples before and after, and scores of all maps, best first."""

    scores: list[HeldOutScore]
    raw: str  # what the samples are called before
    X: np.ndarray  # (m, d)
    y: np.ndarray  # (m,)
    before: np.ndarray  # (m, d) embeddings: the samples themselves, in the units they are compared in
    after: np.ndarray  # (m, p)
    queries: np.ndarray  # (q,) rows that are shown, drawn at random, evenly from the classes
    neighbors: dict[str, np.ndarray]  # "before", "after" → (q, k) rows, nearest first
    image_shape: tuple[int, ...] | None
    new_classes: bool  # whether training had none of these classes
    n_train: int

    def __getitem__(self, name: str) -> HeldOutScore:
        return next(s for s in self.scores if s.name == name)

    @property
    def unit(self) -> str:
        """What was drawn, over which intervals are."""
        return "classes" if self.new_classes else "samples"

    @property
    def better(self) -> bool:
        """Whether the network is reliably better than every other map."""
        return all(s.sure for s in self.scores if s.gain is not None)

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        network, others = self[NETWORK], [s for s in self.scores if s.name != NETWORK]
        best, raw = others[0], self[self.raw]
        seen = " it never saw" if self.new_classes else ""
        over = f"{len(self.X)} samples of {len(np.unique(self.y))} classes{seen}"
        told = f"{network.map_at_r.mean:.4f} against {best.map_at_r.mean:.4f} for {best.name}"
        if best is not raw:
            told += f", the best of the others, and {raw.map_at_r.mean:.4f} for {raw.name}"
        nearest_first = max(others, key=lambda s: s.recall.mean)
        if nearest_first.recall.mean > network.recall.mean:
            told += (
                f". Recall@1 is higher for {nearest_first.name}: {nearest_first.recall.mean:.4f} against "
                f"{network.recall.mean:.4f}"
            )
        if self.better:
            return f"The network is reliably better than every other map on {over}: MAP@R {told}."
        rivals = [s.name for s in others if s.gain is not None and not s.sure]
        said = f"The network is not reliably better than {', '.join(rivals)} on {over}: MAP@R {told}."
        if self.new_classes and len(np.unique(self.y)) < FEW_CLASSES:
            said += f" So few classes cannot settle it: hold out {FEW_CLASSES} or more."
        return said


def score_held_out(
    network: Any, train: Samples, held: Samples, image_shape: tuple[int, ...] | None = None, random_state: int = 0
) -> HeldOutScene:
    """Fit classical metrics on the training part and compare them with a trained network on the held-out part.

    Where training saw none of the held-out classes, what was drawn is classes, and the samples of one go up and down
    together: intervals and tests are then over classes, as in the open protocol of `compare`, otherwise over samples.

    Parameters
    ----------
    network : fitted; its ``transform`` is what counts
    train, held : (X, y)
    image_shape : (c, h, w) if the rows are images, which are compared pixel by pixel and not standardised
    random_state : seed of which queries are shown
    """
    (X, y), (X_held, y_held) = train, held
    raw = RAW[image_shape is not None]
    maps: dict[str, Any] = {NETWORK: network, **classical_maps(raw, X.shape, image_shape is not None)}
    found: dict[str, tuple[np.ndarray, Retrieval, float]] = {}
    for name, model in maps.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant pixels and the like: they are not the user's metrics
            Z = np.asarray(model.transform(X_held) if model is network else model.fit(X, y).transform(X_held))
        found[name] = Z, retrieval(Z, y_held, ks=(1,)), time.perf_counter() - start
    new_classes = not np.isin(y_held, y).any()
    ours = found[NETWORK][1].map_at_r
    groups = y_held[found[NETWORK][1].queries] if new_classes else None
    scores = [_score(name, r, ours, groups, seconds) for name, (_, r, seconds) in found.items()]
    before, after = found[raw][0], found[NETWORK][0]
    queries = draw_queries(y_held, random_state)
    return HeldOutScene(
        sorted(scores, key=lambda s: -s.map_at_r.mean),
        raw,
        X_held,
        y_held,
        before,
        after,
        queries,
        {"before": _neighbors(before, queries), "after": _neighbors(after, queries)},
        image_shape,
        new_classes,
        len(X),
    )


def _score(name: str, found: Retrieval, ours: np.ndarray, groups: np.ndarray | None, seconds: float) -> HeldOutScore:
    """One map beside the network, whose MAP@R by query is ``ours``; queries of one group depend on one another."""
    recall, precision = _share(found.recall_at[1], groups), _share(found.map_at_r, groups)
    if name == NETWORK:
        return HeldOutScore(name, precision, recall, None, False, seconds)
    gain = paired_interval(ours, found.map_at_r, groups=groups)
    sure = gain.low > 0 and p_value(ours - found.map_at_r, groups) < 0.05
    return HeldOutScore(name, precision, recall, gain, sure, seconds)


def _share(values: np.ndarray, groups: np.ndarray | None) -> Interval:
    """The mean of values in [0, 1]; the ends of a t interval may lie outside."""
    return Interval(*(float(v) for v in np.clip(mean_interval(values, groups=groups), 0, 1)))


def classical_maps(raw: str, shape: tuple[int, ...], images: bool) -> dict[str, Pipeline]:
    """Maps to compare a network with, by name; the first leaves the samples as they are.

    With many features the metrics stand on 32 principal components, where they do better than on the features.
    """
    units = FunctionTransformer if images else StandardScaler
    if shape[1] <= MANY_FEATURES:
        learners: dict[str, list[Any]] = {m.__name__: [m()] for m in (RCA, DCA, GMML)}
    else:
        p = min(PRINCIPAL, *shape)
        learners = {f"PCA({p})": [PCA(p, random_state=0)]}
        learners |= {f"PCA({p}) + {m.__name__}": [PCA(p, random_state=0), m()] for m in (RCA, DCA, GMML)}
    return {raw: make_pipeline(units()), **{name: make_pipeline(units(), *steps) for name, steps in learners.items()}}


def draw_queries(y: np.ndarray, random_state: int, count: int = QUERIES) -> np.ndarray:
    """Rows drawn at random, one of each class before a second of any."""
    rng, codes = check_random_state(random_state), np.unique(y, return_inverse=True)[1]
    order = rng.permutation(len(y))
    turn = np.empty(len(y), dtype=int)  # how often the class has come before in this order
    by_class = order[np.argsort(codes[order], kind="stable")]
    sizes = np.bincount(codes)
    turn[by_class] = np.arange(len(y)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[np.argsort(turn[order], kind="stable")][:count]


def _neighbors(Z: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """(q, k) rows nearest to each query among all others."""
    k = min(NEIGHBORS, len(Z) - 1)
    found = nearest(Z[queries], min(k + 1, len(Z)), Z)[0]  # (q, k + 1), itself among them, or a duplicate of it
    return np.stack([row[row != q][:k] for row, q in zip(found, queries)])
