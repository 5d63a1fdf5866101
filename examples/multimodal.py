"""One code of several modalities, pre-trained without labels: MultiModalNet. Few labels, gaps, and crossing modalities.

Six feature sets of handwritten numerals: 1,000 rows without labels, a few of them labelled, and 1-NN among the latter.
The code of all modalities is far better than the best of them alone. Where query and gallery have one modality each,
and not the same, it is the best way to compare them, better than regression from one to the other. Pre-training without
labels is what makes it so: the network that knows the labelled rows only falls behind, most where there are gaps.

What it does not do: for complete rows a linear head (PCA, then GMML) on the joined columns is as good, and as good with
gaps in the query if regression fills them. As published, layer by layer and then with labels, the network suits
complete rows and fails with gaps; that it learns in between to restore all modalities from some is an addition here.

Run with: python -m examples.multimodal
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import nn

from examples.contest import Scores, draw, draw_curves, panels, report, save
from examples.data import load_all
from isometry import GMML
from isometry.deep import MultiModal, MultiModalNet, TableDataset, Trainer, embed, pretrain_levels
from isometry.eval import knn_hits

SEEDS, POOL, TEST = range(5), 1000, 800  # settings were chosen with seeds from 100 on
LABELS, FEW = [2, 5, 20], 5  # labelled rows of each class
MISSING = [0, 2, 4, 5]  # modalities of the query
COMPONENTS, DROPOUT, RIDGE = 32, 0.7, 1e-3
JOINED, HEAD, PLAIN, OURS = "joined columns", "joined columns, PCA + GMML", "network, labelled rows only", "MultiModal"
PUBLISHED = "MultiModal, as published"
Embed = Callable[[np.ndarray], np.ndarray]


class Regression:
    """Fills in the gaps of a row: E[missing | present] of a normal distribution, with a small ridge."""

    def __init__(self, X: np.ndarray):
        self.covariance = np.cov(X.T)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        X, C = X.astype(np.float64), self.covariance
        patterns, which = np.unique(np.isnan(X), axis=0, return_inverse=True)
        for k, gone in enumerate(patterns):
            if gone.any():
                rows, there = which.ravel() == k, ~gone
                ridge = RIDGE * np.eye(there.sum())
                B = np.linalg.solve(C[np.ix_(there, there)] + ridge, C[np.ix_(there, gone)])
                X[np.ix_(rows, gone)] = X[np.ix_(rows, there)] @ B
        return X


class Networks:
    """Networks that learn without labels once, and from labelled rows each time; each with settings that suit it."""

    def __init__(self, X: np.ndarray, sizes: list[int], seed: int):
        self.seed = seed
        torch.manual_seed(seed)
        self.untrained = MultiModalNet(sizes, COMPONENTS, (128,))
        self.stacked = self.stack(MultiModalNet(sizes, COMPONENTS), X)
        whole = self.stack(MultiModalNet(sizes, COMPONENTS, fusion="mean"), X)
        no_labels = np.zeros(len(X), dtype=int)  # λ = 0: pairs do not count
        self.joint = self.train(whole, MultiModal(0, 0, modality_dropout=DROPOUT), X, no_labels, 3e-3, max_epochs=30)

    def stack(self, net: MultiModalNet, X: np.ndarray) -> nn.Module:
        pretrain_levels(net, X, max_epochs=10, lr=3e-3, random_state=self.seed)
        return net

    def train(
        self, net: nn.Module, objective: MultiModal, X: np.ndarray, y: np.ndarray, lr: float, **steps
    ) -> nn.Module:
        """A copy of the network, trained."""
        settings = steps | {"monitor": "last", "random_state": self.seed}
        return Trainer(copy.deepcopy(net), objective, lr=lr, **settings).fit(X, y).model

    def tune(self, name: str, X: np.ndarray, y: np.ndarray) -> Embed:
        """Learn from labelled rows."""
        net, dropout, lr = {
            PLAIN: (self.untrained, 0.3, 3e-3),
            PUBLISHED: (self.stacked, 0.0, 1e-3),
            OURS: (self.joint, DROPOUT, 1e-3),
        }[name]
        tuned = self.train(net, MultiModal(modality_dropout=dropout), X, y, lr, max_epochs=3, batches_per_epoch=40)
        return lambda rows: embed(tuned, TableDataset(rows)).numpy()


def units(X: np.ndarray, views: list[slice], pool: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1 / d_l, so that every modality has the same weight."""
    X = (X - X[pool].mean(0)) / X[pool].std(0).clip(1e-9)
    return np.hstack([X[:, view] / np.sqrt(view.stop - view.start) for view in views]).astype(np.float32)


def without(X: np.ndarray, views: list[slice], count: int) -> np.ndarray:
    """``count`` modalities of each row are missing, others for each."""
    X, order = X.copy(), np.argsort(np.random.default_rng(0).random((len(X), len(views))), axis=1)  # (n, M)
    for k, view in enumerate(views):
        X[order[:, k] < count, view] = np.nan
    return X


def alone(X: np.ndarray, view: slice) -> np.ndarray:
    """One modality; all others are missing."""
    gaps = np.full_like(X, np.nan)
    gaps[:, view] = X[:, view]
    return gaps


def head(pool: np.ndarray, X: np.ndarray, y: np.ndarray) -> Embed:
    """Linear: the widest 50 directions of all rows, and a metric on them from the labelled ones."""
    pca = PCA(min(50, pool.shape[1]), random_state=0).fit(pool)
    metric = GMML(reg=0.03).fit(pca.transform(X), y)
    return lambda rows: metric.transform(pca.transform(rows))


def contest(X: np.ndarray, y: np.ndarray, views: dict[str, slice], seed: int) -> tuple[dict, dict, dict]:
    """Accuracies of one split: by number of labels; with gaps, and crossed; of single modalities."""
    rows, places = np.random.default_rng(seed).permutation(len(y)), list(views.values())
    pool, test = rows[:POOL], rows[POOL : POOL + TEST]
    Z, sizes = units(X, places, pool), [view.stop - view.start for view in places]
    labelled = {count: np.concatenate([pool[y[pool] == c][:count] for c in np.unique(y)]) for count in LABELS}
    few, networks = labelled[FEW], Networks(Z[pool], sizes, seed)
    with_gaps = {
        "queries": [without(Z[test], places, count) for count in MISSING],
        "asked": [alone(Z[test], view) for view in places],
        "given": [alone(Z[few], view) for view in places],
    }
    fill = Regression(Z[pool])
    filled = {kind: [fill(table) for table in tables] for kind, tables in with_gaps.items()}

    def learn(name: str, known: np.ndarray) -> Embed:
        if name == JOINED:
            return lambda rows: rows
        return head(Z[pool], Z[known], y[known]) if name == HEAD else networks.tune(name, Z[known], y[known])

    def accuracy(gallery: np.ndarray, known: np.ndarray, queries: np.ndarray) -> float:
        return float(knn_hits(gallery, y[known], queries, y[test], 1).mean())

    by_labels, by_gaps = {}, {}
    for name in (JOINED, HEAD, PLAIN, PUBLISHED, OURS):
        maps = {count: learn(name, known) for count, known in labelled.items()}
        by_labels[name] = [accuracy(maps[n](Z[known]), known, maps[n](Z[test])) for n, known in labelled.items()]
        tables = filled if name in (JOINED, HEAD) else with_gaps
        queries, asked, given = ([maps[FEW](table) for table in tables[kind]] for kind in with_gaps)
        pairs = [(g, q) for i, q in enumerate(asked) for j, g in enumerate(given) if i != j]
        crossed = np.mean([accuracy(g, few, q) for g, q in pairs])
        by_gaps[name] = [*(accuracy(maps[FEW](Z[few]), few, q) for q in queries), float(crossed)]
    single = {}
    for name, view in views.items():
        linear = head(Z[pool, view], Z[few, view], y[few])
        single[f"{name} alone, PCA + GMML"] = accuracy(linear(Z[few, view]), few, linear(Z[test, view]))
    return by_labels, by_gaps, single


def main() -> None:
    arrays = load_all("mfeat")
    X, y = arrays["X"].astype(np.float64), arrays["y"]
    views = {str(name): slice(*ends) for name, ends in zip(arrays["view_names"], arrays["view_slices"], strict=True)}
    runs = [contest(X, y, views, seed) for seed in SEEDS]
    labels, gaps = (
        {name: [list(column) for column in zip(*(run[part][name] for run in runs), strict=True)] for name in runs[0][0]}
        for part in (0, 1)
    )
    for k, count in enumerate(LABELS):
        report(f"mfeat, {count} labels a class: accuracy of 1-NN", {n: labels[n][k] for n in labels}, {OURS})
    situations = [*map(str, MISSING), "crossed"]
    for k, missing in list(enumerate(situations))[1:]:
        report(f"mfeat, {FEW} labels a class, modalities missing: {missing}", {n: gaps[n][k] for n in gaps}, {OURS})
    single: Scores = {f"all, {name}": labels[name][LABELS.index(FEW)] for name in (JOINED, OURS)}
    single |= {name: [run[2][name] for run in runs] for name in runs[0][2]}
    report(f"mfeat, {FEW} labels a class: one modality or all, accuracy of 1-NN", single, {f"all, {OURS}"})
    figure, left, middle, right = panels(3, 3.8)
    draw(left, single, {f"all, {OURS}"}, f"mfeat, {FEW} labels a class: one modality or all", "accuracy of 1-NN")
    shown = (JOINED, HEAD, PLAIN, OURS)
    draw_curves(middle, LABELS, {name: labels[name] for name in shown}, OURS, "mfeat: few labels, complete rows")
    middle.set(xlabel="labels of each class", ylabel="accuracy of 1-NN")
    draw_curves(right, situations, {name: gaps[name] for name in shown}, OURS, f"mfeat: gaps, {FEW} labels a class")
    right.set(ylabel="accuracy of 1-NN")
    right.set_xlabel("modalities missing from the query, of 6\ncrossed: query and gallery have one each, not the same")
    save(figure, "multimodal")


if __name__ == "__main__":
    main()
