"""Gradient-boosted large margin nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_random_state

from isometry.base import MetricLearner, check_components
from isometry.core.edges import EdgeLoss, NeighborEdges
from isometry.core.graph import nearest_misses, target_neighbors
from isometry.core.progress import report
from isometry.core.solve import Solution
from isometry.parameters import KW_ONLY, Count, Iterations, PositiveShare, Seed, Share, parameters
from isometry.sampling import in_own_order
from isometry.spectral.lmnn import LMNN
from isometry.supervision import Labels

STRANGERS = 50  # nearest samples of other classes that may be impostors of an anchor
REFRESH = 10  # rounds after which they are searched anew


@parameters
class GBLMNN(MetricLearner):
    """Gradient-boosted large margin nearest neighbours: the map of LMNN, bent by regression trees.

    min_φ (1 − μ) Σ_{i, j→i} d²(i, j) + μ Σ_{i, j→i, l} [1 + d²(i, j) − d²(i, l)]₊,  φ(x) = Lx + Σ_t α_t T_t(x)

    with d² = ``|φ(x) − φ(x')|²``. L is that of `LMNN`; each tree T_t, with p outputs, follows the negative gradient
    at the mapped samples. Targets j → i are the nearest of the class in the map of LMNN.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: all features.
    n_estimators : int, default=100
        Largest number of trees; 0 is LMNN.
    max_depth : int, default=4
        Depth of a tree.
    min_samples_leaf : int, default=5
        Least number of samples in a leaf of a tree.
    learning_rate : float in (0, 1], default=0.3
        Share of the step that a line search finds.
    n_neighbors : int, default=3
        Number k of target neighbours; a smaller class uses all its members.
    mu : float in [0, 1], default=0.5
        Weight μ of the push term.
    validation : float in [0, 1], default=0.2
        Share of every class with at least 3 samples that is held out, to stop by its k-NN accuracy; 0: none, and all
        trees are kept.
    patience : int, default=10
        Number of rounds without better accuracy there before it stops; the best number of trees is kept.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (p, d)
        The map L of LMNN.
    n_trees_ : int
        How many trees are kept.
    history_ : ndarray
        The objective after each round, over the samples of other classes that were listed then.

    Notes
    -----
    For labelled samples whose classes no linear map separates, with at least some hundred samples. It is slower
    than `LMNN` and its map is piecewise constant beyond it; where classes are linearly apart it gains nothing.

    A round costs O(n d log n) for the tree and O(n k p) for the triplets; the search for impostors costs O(n² p)
    every ten rounds.

    References
    ----------
    | D. Kedem, S. Tyree, K. Q. Weinberger, F. Sha, G. Lanckriet, "Non-linear metric learning", NIPS 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import GBLMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = GBLMNN(n_estimators=5, random_state=0).fit(X[::2], y[::2])
    >>> metric.transform(X).shape
    (150, 4)
    >>> metric.n_trees_ <= 5
    True
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    n_estimators: Iterations = 100
    max_depth: Count = 4
    min_samples_leaf: Count = 5
    learning_rate: PositiveShare = 0.3
    n_neighbors: Count = 3
    mu: Share = 0.5
    validation: Share = 0.2
    patience: Count = 10
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, rng = check_components(self.n_components, X.shape[1]), check_random_state(self.random_state)
        X, side = in_own_order(X, side)  # what is held out shall not depend on how the samples are listed
        held = held_out(side.codes, self.validation, rng) if self.n_estimators else np.zeros(len(X), dtype=bool)
        labels = side[~held]
        first = LMNN(p, n_neighbors=self.n_neighbors, mu=self.mu, strength=1.0).fit(X[~held], labels)
        self.components_ = first.components_
        self.mean_, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        self.scale_ = np.where(deviation > 0, deviation, 1.0)
        Z, S = self._linear(X), self._scaled(X)  # (n, p) where trees begin, (n, d) what they see
        chosen, history, reason = self._boost(S, Z, side.codes, held, rng)
        self.n_trees_ = len(chosen)
        self.roots_, nodes = Forest.of(chosen, Z.shape[1])
        self.features_, self.thresholds_, self.children_, self.values_ = nodes
        return Solution(None, history[-1], max(len(history) - 1, 1), reason, True, history)

    def _boost(
        self, S: np.ndarray, Z: np.ndarray, codes: np.ndarray, held: np.ndarray, rng: np.random.RandomState
    ) -> tuple[list[tuple[Any, float]], list[float], str]:
        """Trees with their steps, up to the best number of them; the values; why it ended."""
        train, classes = ~held, codes[~held]
        targets = target_neighbors(Z[train], classes, self.n_neighbors)
        trees, best, best_score, history = list[tuple[Any, float]](), 0, -1.0, list[float]()
        reason = f"{self.n_estimators} trees grown"
        for t in range(self.n_estimators + 1):
            if t % REFRESH == 0:
                problem = MappedHinges(targets, nearest_misses(Z[train], classes, STRANGERS), self.mu)
            value, G = problem(Z[train])
            if not history:
                history.append(value)
            score = accuracy(Z[train], classes, Z[held], codes[held], self.n_neighbors) if held.any() else float(t)
            if score > best_score:
                best, best_score = t, score
            if t - best >= self.patience:
                reason = f"no better accuracy on held-out samples in {self.patience} rounds"
                break
            if t == self.n_estimators:
                break
            tree = DecisionTreeRegressor(
                max_depth=self.max_depth,
                min_samples_leaf=min(self.min_samples_leaf, max(1, int(train.sum()) // 4)),
                random_state=rng.randint(2**31),
            ).fit(S[train], -G)
            T = tree.predict(S).reshape(Z.shape)
            step, value = self._step(problem, Z[train], T[train], value)
            if step == 0:
                reason = "no tree lowers the objective"
                break
            trees.append((tree, step))
            Z = Z + step * T
            history.append(value)
            report(value)
        return trees[:best], history, reason

    def _step(self, problem: MappedHinges, Z: np.ndarray, T: np.ndarray, value: float) -> tuple[float, float]:
        """learning_rate times the longest step, halved from the size of Z, that lowers the value; the value then."""
        size = float(np.linalg.norm(T))
        step = float(np.linalg.norm(Z)) / size if size > 0 else 0.0
        for _ in range(50):
            short = self.learning_rate * step
            if step and problem(Z + step * T)[0] < value and (lower := problem(Z + short * T)[0]) < value:
                return short, lower
            step /= 2
        return 0.0, value

    def _linear(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self.mean_) @ self.components_.T.astype(np.float64))

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        """Trees compare in float32, in which features far from 0 would lose their digits."""
        return ((X - self.mean_) / self.scale_).astype(np.float32)

    def _transform(self, X: np.ndarray) -> np.ndarray:
        forest = Forest(self.roots_, self.features_, self.thresholds_, self.children_, self.values_)
        return (self._linear(X) + forest.predict(self._scaled(X))).astype(X.dtype, copy=False)


@dataclass(frozen=True)
class MappedHinges:
    """LMNN's objective as a function of mapped samples Z (n, p), for fixed targets (n, k) and others (n, m)."""

    targets: np.ndarray
    others: np.ndarray
    mu: float

    def __call__(self, Z: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and ∂f/∂Z."""
        edges = NeighborEdges(np.hstack([self.targets, self.others]))
        value, pull = edges.evaluate(Z, self._loss())
        return value, 2 * pull

    def _loss(self) -> EdgeLoss:
        k, mu = self.targets.shape[1], self.mu

        def loss(d: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
            there = self.targets[rows] >= 0  # (b, k)
            t = np.where(there, d[:, :k], -np.inf)
            h = 1 + t[:, :, None] - d[:, None, k:]  # (b, k, m); −inf where either is missing
            active = h > 0
            C = np.empty_like(d)
            C[:, :k] = there * (1 - mu) + mu * active.sum(axis=2)
            C[:, k:] = -mu * active.sum(axis=1)
            return (1 - mu) * float(d[:, :k][there].sum()) + mu * float(h[active].sum()), C

        return loss


@dataclass(frozen=True)
class Forest:
    """Σ_t α_t T_t(x): the nodes of all trees in one table, α included in the values."""

    roots: np.ndarray  # (T,)
    features: np.ndarray  # (N,) −1 at a leaf
    thresholds: np.ndarray  # (N,)
    children: np.ndarray  # (N, 2) of x ≤ threshold, and of others; itself at a leaf
    values: np.ndarray  # (N, p)

    @staticmethod
    def of(trees: list[tuple[Any, float]], p: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Roots, and features, thresholds, children and values, of scikit-learn's trees with their steps."""
        sizes = [tree.tree_.node_count for tree, _ in trees]
        roots = np.cumsum([0, *sizes])[:-1].astype(np.intp)
        if not trees:
            none = np.zeros(0, dtype=np.intp)
            return none, (none, np.zeros(0), np.zeros((0, 2), dtype=np.intp), np.zeros((0, p)))
        features = np.concatenate([tree.tree_.feature for tree, _ in trees]).astype(np.intp)
        children = np.concatenate(
            [
                np.c_[tree.tree_.children_left, tree.tree_.children_right] + root
                for (tree, _), root in zip(trees, roots, strict=True)
            ]
        )
        leaf = features < 0
        children[leaf] = np.flatnonzero(leaf)[:, None]
        thresholds = np.concatenate([tree.tree_.threshold for tree, _ in trees])
        values = np.concatenate([step * tree.tree_.value[:, :, 0] for tree, step in trees])  # (N, p)
        return roots, (np.where(leaf, -1, features), thresholds, children.astype(np.intp), values)

    def predict(self, S: np.ndarray) -> np.ndarray:
        total, line = np.zeros((len(S), self.values.shape[1])), np.arange(len(S))
        for root in self.roots:
            node = np.full(len(S), root)
            while np.any(self.features[node] >= 0):
                right = ~(S[line, np.maximum(self.features[node], 0)] <= self.thresholds[node])
                node = self.children[node, right.astype(np.intp)]
            total += self.values[node]
        return total


def held_out(codes: np.ndarray, share: float, rng: np.random.RandomState) -> np.ndarray:
    """(n,) mask of a share of every class with at least 3 samples, one at least, drawn at random."""
    held = np.zeros(len(codes), dtype=bool)
    for c in range(codes.max() + 1) if share else ():
        rows = np.flatnonzero(codes == c)
        if len(rows) >= 3:
            held[rng.permutation(rows)[: min(max(1, int(share * len(rows))), len(rows) - 2)]] = True
    return held


def accuracy(Z: np.ndarray, codes: np.ndarray, queries: np.ndarray, answers: np.ndarray, k: int) -> float:
    """Share of queries whose k nearest rows of Z vote for the right class; ties for the first of the classes."""
    near = codes[NearestNeighbors(n_neighbors=min(k, len(Z))).fit(Z).kneighbors(queries, return_distance=False)]
    votes = np.zeros((len(queries), codes.max(initial=0) + 1))
    np.add.at(votes, (np.arange(len(queries))[:, None], near), 1)
    return float(np.mean(votes.argmax(axis=1) == answers))
