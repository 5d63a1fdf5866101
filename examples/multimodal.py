"""Several modalities of which some are missing when they are needed: MultiModalNet. 1-NN.

Six feature sets of handwritten numerals; the network learns from 300 complete rows. All modalities together are far
better than any alone. When some are missing at test time, the network as published fails; hiding modalities from it in
training (modality dropout) repairs that, and helps with complete rows too. The gain is that of the dropout: a plain
network with the same does as well. With four or five of six missing, the Euclidean distance over what is left is best.

Run with: python -m examples.multimodal
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from examples.contest import draw, draw_curves, panels, report, save, splits
from examples.data import load_all
from isometry.deep import MLP, Contrastive, MultiModal, MultiModalNet, Trainer, pretrain_levels
from isometry.eval import knn_hits

ROWS, SPLITS, COMPONENTS, LAM, DROPOUT = 300, 4, 16, 5.0, 0.3
TRAINING = {"lr": 3e-3, "max_epochs": 5, "batches_per_epoch": 40, "monitor": "last"}


class Learner:
    """Abstract: a trained network, and 1-NN among the rows it has learned from."""

    def fit(self, X, y, sizes):
        torch.manual_seed(0)
        self.trainer = self.train(X, y, sizes)
        self.gallery, self.y = self.trainer.embed(X).numpy(), y
        return self

    def score(self, X, y):
        return float(knn_hits(self.gallery, self.y, self.trainer.embed(X).numpy(), y, 1).mean())


class Plain(Learner):
    """One network for all columns: what is missing is the mean, which is 0 in standard units."""

    def train(self, X, y, sizes):
        loss = Contrastive(1.5, 0.5, squared_hinge=False, balanced=True, distance="sqeuclidean")  # the same margins
        net = nn.Sequential(HideModalities(sizes), MLP(X.shape[1], COMPONENTS, (128,)))
        return Trainer(net, loss, **TRAINING).fit(X, y)


class HideModalities(nn.Module):
    """Zeros for what is missing and, in training, for modalities drawn at random."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = torch.tensor(sizes)

    def forward(self, x):
        hidden = torch.rand(len(x), len(self.sizes)) < DROPOUT * self.training
        return x.nan_to_num().masked_fill(hidden.repeat_interleave(self.sizes, dim=1), 0)


class Modal(Learner):
    """A MultiModalNet, trained layer by layer without labels, then all together with them."""

    def __init__(self, dropout=0.0):
        self.dropout = dropout

    def train(self, X, y, sizes):
        net = MultiModalNet(sizes, COMPONENTS)
        pretrain_levels(net, X, max_epochs=5)
        return Trainer(net, MultiModal(LAM, LAM, modality_dropout=self.dropout), **TRAINING).fit(X, y)


class Present:
    """The Euclidean distance over the columns that are there."""

    def fit(self, X, y, sizes):
        self.knn = KNeighborsClassifier(1, metric="nan_euclidean").fit(X, y)
        return self

    def score(self, X, y):
        return float(self.knn.score(X, y))


SPECIAL = "MultiModal, modality dropout"
LEARNERS = {
    "Euclidean of what is there": Present,
    "plain network, modality dropout": Plain,
    "MultiModal": Modal,
    SPECIAL: lambda: Modal(DROPOUT),
}


def units(X: np.ndarray, views: list[slice], train: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1 / d_l, so that every modality has the same weight."""
    X = (X - X[train].mean(0)) / X[train].std(0).clip(1e-9)
    return np.hstack([X[:, view] / np.sqrt(view.stop - view.start) for view in views])


def without(X: np.ndarray, views: list[slice], count: int) -> np.ndarray:
    """``count`` modalities of each row are missing, others for each."""
    X, rng = X.copy(), np.random.default_rng(0)
    for row in X:
        for k in rng.permutation(len(views))[:count]:
            row[views[k]] = np.nan
    return X


def main() -> None:
    arrays = load_all("mfeat")
    X, y = arrays["X"].astype(np.float64), arrays["y"]
    names, views = [str(name) for name in arrays["view_names"]], [slice(*ends) for ends in arrays["view_slices"]]
    sizes, plan = [view.stop - view.start for view in views], splits(y, SPLITS, ROWS, 800)

    def accuracies(learner, split, chosen=None):
        """By number of missing modalities; or of chosen modalities alone, of which none is missing."""
        train, test = split
        Z = units(X, views, train)
        if chosen is not None:
            Z, widths, counts = Z[:, views[chosen]], [sizes[chosen]], [0]
        else:
            widths, counts = sizes, range(len(views))
        learner.fit(Z[train], y[train], widths)
        return [learner.score(without(Z[test], views, count), y[test]) for count in counts]

    results = {name: [accuracies(make(), split) for split in plan] for name, make in LEARNERS.items()}
    curves = {name: [list(column) for column in zip(*runs, strict=True)] for name, runs in results.items()}
    for count in range(len(views)):
        scores = {name: columns[count] for name, columns in curves.items()}
        report(f"mfeat, {ROWS} rows, {count} of {len(views)} modalities missing: accuracy of 1-NN", scores, {SPECIAL})
    alone = {f"{name} alone": k for k, name in enumerate(names)}
    single = {name: [accuracies(Modal(), split, k)[0] for split in plan] for name, k in alone.items()}
    single |= {"all, MultiModal": curves["MultiModal"][0], "all, modality dropout": curves[SPECIAL][0]}
    together = {"all, MultiModal", "all, modality dropout"}
    report(f"mfeat, {ROWS} rows: one modality or all, accuracy of 1-NN", single, together)
    figure, left, right = panels(2, 3.8)
    draw(left, single, together, f"mfeat, {ROWS} rows: one modality or all", "accuracy of 1-NN")
    draw_curves(right, list(range(len(views))), curves, SPECIAL, "mfeat: modalities missing at test time")
    right.set(xlabel="modalities missing, of 6", ylabel="accuracy of 1-NN")
    save(figure, "multimodal")


if __name__ == "__main__":
    main()
