"""Whether a trained network serves samples it never saw better than classical maps do: retrieval under each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from isometry.eval import Interval, Retrieval, mean_interval, paired_interval, retrieval
from isometry.geometric.gmml import GMML
from isometry.select.heldout import HeldOutMap, map_held_out
from isometry.select.inputs import looks_like_embeddings
from isometry.select.verdict import p_value
from isometry.spectral.dca import DCA
from isometry.spectral.rca import RCA

NETWORK = "network"
COSINE = "cosine of the features"  # what embeddings are compared by
MANY_FEATURES = 64  # with more features, classical metrics are learned on principal components
N_PRINCIPAL = 32
ENOUGH_CLASSES = 6  # five classes all in favour may be chance: p = 2 · 2⁻⁵ > 0.05 by the sign test
Samples = tuple[np.ndarray, np.ndarray]  # X (n, d) and labels (n,)


@dataclass
class MapScore:
    """How well held-out samples find others of their class under one map."""

    name: str
    map_at_r: Interval
    recall: Interval
    gain: Interval | None  # MAP@R of the network minus that of this map, paired by query
    sure: bool  # whether that gain is reliably above zero
    seconds: float  # to fit the map, and to map the held-out samples

    def as_dict(self) -> dict[str, Any]:
        """For JSON: intervals with names for their ends."""
        return {k: v._asdict() if isinstance(v, Interval) else v for k, v in vars(self).items()}


@dataclass
class NetworkComparison:
    """The held-out samples before and after, and scores of all maps, best first."""

    scores: list[MapScore]
    raw: str  # what the samples are called before
    X: np.ndarray  # (m, d)
    y: np.ndarray  # (m,)
    before: np.ndarray  # (m, d) the samples themselves, standardised unless they are images or embeddings
    after: np.ndarray  # (m, p) their embeddings
    image_shape: tuple[int, ...] | None
    new_classes: bool  # whether training had none of these classes
    n_train: int

    def __getitem__(self, name: str) -> MapScore:
        return next(s for s in self.scores if s.name == name)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.y))

    @property
    def unit(self) -> str:
        """What intervals are over: classes, if these were held out as a whole."""
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
        over = f"{len(self.X)} samples of {self.n_classes} classes{seen}"
        numbers = f"{network.map_at_r.mean:.4f} against {best.map_at_r.mean:.4f} for {best.name}"
        if best is not raw:
            numbers += f", the best of the others, and {raw.map_at_r.mean:.4f} for {raw.name}"
        nearest_first = max(others, key=lambda s: s.recall.mean)
        if nearest_first.recall.mean > network.recall.mean:
            numbers += (
                f". Recall@1 is higher for {nearest_first.name}: {nearest_first.recall.mean:.4f} against "
                f"{network.recall.mean:.4f}"
            )
        if self.better:
            return f"The network is reliably better than every other map on {over}: MAP@R {numbers}."
        rivals = [s.name for s in others if s.gain is not None and not s.sure]
        verdict = f"The network is not reliably better than {', '.join(rivals)} on {over}: MAP@R {numbers}."
        if self.new_classes and self.n_classes < ENOUGH_CLASSES:
            verdict += f" So few classes cannot settle it: hold out {ENOUGH_CLASSES} or more."
        return verdict


def compare_network(
    network: Any, train: Samples, held: Samples, image_shape: tuple[int, ...] | None = None
) -> NetworkComparison:
    """Fit classical metrics on the training part and compare them with a trained network on the held-out part.

    Where training saw none of the held-out classes, the samples of a class are not independent: intervals and tests
    are then over classes, as in the open protocol of `compare`, otherwise over samples.

    Parameters
    ----------
    network : estimator
        Fitted; only its ``transform`` is used.
    train : tuple of ndarray
        Samples and labels (X, y) that the network was trained on.
    held : tuple of ndarray
        Samples and labels (X, y) that were held out.
    image_shape : tuple of int or None, default=None
        Shape (c, h, w) if the rows are images, which are compared pixel by pixel and not standardised.

    Returns
    -------
    NetworkComparison
        Scores of all maps, with intervals.
    """
    X_held, y_held = held
    raw = "standardised features" if image_shape is None else "raw pixels"
    if image_shape is None and looks_like_embeddings(train[0]):
        raw = COSINE
    classical = classical_maps(raw, train[0].shape, image_shape is not None)
    maps = [map_held_out(NETWORK, network, X_held)]
    maps += [map_held_out(name, model, X_held, train) for name, model in classical.items()]
    found = [retrieval(m.Z, y_held, ks=(1,)) for m in maps]
    new_classes = not np.isin(y_held, train[1]).any()
    groups = y_held[found[0].queries] if new_classes else None
    scores = [_score(m, r, found[0].map_at_r, groups) for m, r in zip(maps, found, strict=True)]
    return NetworkComparison(
        sorted(scores, key=lambda s: -s.map_at_r.mean),
        raw,
        X_held,
        y_held,
        before=maps[1].Z,
        after=maps[0].Z,
        image_shape=image_shape,
        new_classes=new_classes,
        n_train=len(train[0]),
    )


def _score(m: HeldOutMap, found: Retrieval, network: np.ndarray, groups: np.ndarray | None) -> MapScore:
    """One map beside the network, whose MAP@R by query is ``network``; queries of one group depend on one another."""
    recall, map_at_r = _share(found.recall_at[1], groups), _share(found.map_at_r, groups)
    if m.name == NETWORK:
        return MapScore(m.name, map_at_r, recall, None, False, m.seconds)
    gain = paired_interval(network, found.map_at_r, groups=groups)
    sure = gain.low > 0 and p_value(network - found.map_at_r, groups) < 0.05
    return MapScore(m.name, map_at_r, recall, gain, sure, m.seconds)


def _share(values: np.ndarray, groups: np.ndarray | None) -> Interval:
    """The mean of values in [0, 1]; the ends of a t interval may lie outside."""
    return Interval(*(float(v) for v in np.clip(mean_interval(values, groups=groups), 0, 1)))


def classical_maps(raw: str, shape: tuple[int, ...], images: bool) -> dict[str, Pipeline]:
    """Maps to compare a network with, by name; the first leaves the samples as they are.

    With many features the metrics are learned on 32 principal components, too, where some do better.
    """
    scaler: Any = Normalizer if raw == COSINE else FunctionTransformer if images else StandardScaler
    learners: dict[str, list[Any]] = {m.__name__: [m()] for m in (RCA, DCA, GMML)}
    if shape[1] > MANY_FEATURES:
        p = min(N_PRINCIPAL, *shape)
        learners |= {f"PCA({p})": [PCA(p, random_state=0)]}
        learners |= {f"PCA({p}) + {m.__name__}": [PCA(p, random_state=0), m()] for m in (RCA, DCA, GMML)}
    return {name: make_pipeline(scaler(), *steps) for name, steps in {raw: [], **learners}.items()}
