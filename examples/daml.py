"""Negatives made by an adversary: DAML against the same losses without it. Retrieval of unseen characters.

A small network learns from 121 characters; MAP@R is measured on the 121 others. The adversary does what it should: its
negatives lie about as near to the anchor as the positives do, and the metric shrinks against them. But it does not help
here: neither triplets nor N-pair gain by it, and both means are lower with it.

Run with: python -m examples.daml
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from examples.contest import GREY, ORANGE, Scores, draw, panels, report, save
from examples.data import load
from isometry.deep import DAML, BatchHard, NPair, Trainer, Triplet
from isometry.eval import retrieval

SPLITS, EPOCHS, BATCHES, PRETRAIN, FEATURES = 3, 15, 20, 100, 256
NEVER = 10**9  # pretraining that never ends: the plain loss on the same triplets


def learners() -> dict[str, DAML]:
    """Objectives by name; each pair differs in the adversary alone."""
    hard = Triplet(1.0, normalize=False, reduction="mean", miner=BatchHard())
    return {
        "triplets, random negatives": DAML(FEATURES, pretrain_steps=NEVER),
        "triplets, hardest of the batch": DAML(FEATURES, hard, pretrain_steps=NEVER),
        "triplets, DAML": DAML(FEATURES, pretrain_steps=PRETRAIN),
        "N-pair": DAML(FEATURES, NPair(), pretrain_steps=NEVER),
        "N-pair, DAML": DAML(FEATURES, NPair(), pretrain_steps=PRETRAIN),
    }


class Watch:
    """After each epoch: mean squared distances of anchors to positives, real negatives and synthetic ones."""

    def __init__(self, X: np.ndarray, y: np.ndarray):
        rows = np.random.default_rng(0).permutation(len(y))[:400]
        self.x, self.y, self.rows = torch.tensor(X[rows]), torch.tensor(y[rows]), []

    @torch.no_grad()
    def __call__(self, trainer: Trainer) -> None:
        model, daml = trainer.model, trainer.objective
        h, z = model[:-1](self.x), model(self.x)
        a, p, n = daml.triples(z, self.y)
        made = model[-1](daml.generator(torch.cat([h[a], h[p], h[n]], 1)))
        self.rows.append([float((z[a] - other).square().sum(1).mean()) for other in (z[p], z[n], made)])


def main() -> None:
    X, y = load("omniglot_small")
    scores: Scores = {"pixels": []}
    curves = []
    for seed in range(SPLITS):
        known = np.random.default_rng(seed).permutation(np.unique(y))[:121]
        train, test = np.flatnonzero(np.isin(y, known)), np.flatnonzero(~np.isin(y, known))
        Z = (X - X[train].mean(0)) / X[train].std()
        scores["pixels"].append(retrieval(X[test], y[test], ks=(1,)).mean()["map@r"])
        torch.manual_seed(seed)
        for name, objective in learners().items():
            net = nn.Sequential(nn.Linear(X.shape[1], FEATURES), nn.ReLU(), nn.Linear(FEATURES, 64))
            watch = Watch(Z[train], y[train])
            settings = {"max_epochs": EPOCHS, "batches_per_epoch": BATCHES, "monitor": "last", "random_state": seed}
            trainer = Trainer(net, objective, callbacks=[watch], **settings).fit(Z[train], y[train])
            scores.setdefault(name, []).append(
                retrieval(trainer.embed(Z[test]).numpy(), y[test], ks=(1,)).mean()["map@r"]
            )
            if name == "triplets, DAML":
                curves.append(watch.rows)
    triplets = {name: scores[name] for name in scores if not name.startswith("N-pair")}
    report("omniglot, 121 unseen characters: MAP@R, triplets", triplets, {"triplets, DAML"})
    pairs = {name: scores[name] for name in ("pixels", "N-pair", "N-pair, DAML")}
    report("omniglot, 121 unseen characters: MAP@R, N-pair", pairs, {"N-pair, DAML"})
    figure, left, right = panels(2, 3.6)
    draw(left, scores, {name for name in scores if "DAML" in name}, "omniglot: 121 unseen characters", "MAP@R")
    steps, means = BATCHES * np.arange(1, EPOCHS + 1), np.mean(curves, axis=0)  # (epochs, 3)
    lines = (("positive", GREY, "-"), ("real negative", GREY, "--"), ("synthetic negative", ORANGE, "-"))
    for column, (label, colour, style) in zip(means.T, lines, strict=True):
        right.plot(steps, column, style, color=colour, label=label)
    right.axvspan(0, PRETRAIN, color="0.94", lw=0, label="the metric sees real negatives")
    right.set(xlabel="steps", ylabel="squared distance to the anchor", ylim=(0, 1.4 * means.max()))
    right.set_title("triplets, DAML: where the negatives are", fontsize=10)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(fontsize=8, frameon=False)
    save(figure, "daml")


if __name__ == "__main__":
    main()
