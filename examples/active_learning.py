"""Which pairs to ask about: chosen by BayesianML.select_queries, or drawn at random, at the same budget.

Twenty pairs at random to begin with, then batches of five; held-out rows give the pair AUC. The gain is real but small,
one or two points. Ten questions chosen by "bald" are worth forty random ones on wine, and more than sixty on iris;
"entropy" helps on iris only.

Run with: python -m examples.active_learning
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from examples.contest import GREY, ORANGE, panels, report, save
from isometry import BayesianML, Labels, Pairs
from isometry.eval import pair_auc, paired_interval

SETS = {"wine": load_wine, "iris": load_iris}
STRATEGIES = {"random pairs": ("random", "#444a54"), "entropy": ("entropy", GREY), "bald": ("bald", ORANGE)}
START, BATCH, BUDGETS, SEEDS = 20, 5, (20, 30, 40, 60, 80), 20


def held_out_auc(learner: BayesianML, X: np.ndarray, y: np.ndarray) -> float:
    i, j = np.triu_indices(len(X), 1)
    return pair_auc(learner.pair_distance(X, np.stack([i, j], axis=1)), y[i] == y[j])


def ask(X: np.ndarray, y: np.ndarray, test: tuple, strategy: str, seed: int) -> list[float]:
    """AUC at each budget of one run: fit, choose pairs among those not asked about, look up their labels, again."""
    pool = np.stack([*np.triu_indices(len(X), 1)], axis=1)
    pool = np.random.default_rng(seed).permutation(pool)  # the same first pairs for every strategy
    asked, pool, scores = pool[:START], pool[START:], []
    while True:
        i, j = asked.T
        learner = BayesianML().fit(X, Pairs(i, j, y[i] == y[j], n=len(X)))
        if len(asked) in BUDGETS:
            scores.append(held_out_auc(learner, *test))
        if len(asked) == BUDGETS[-1]:
            return scores
        chosen, _ = learner.select_queries(X, BATCH, pairs=pool, strategy=strategy, random_state=seed)
        asked = np.vstack([asked, chosen])
        pool = pool[~(pool[:, None] == chosen).all(axis=2).any(axis=1)]


def main() -> None:
    figure, *axes = panels(len(SETS), 3.8)
    for ax, (name, source) in zip(axes, SETS.items(), strict=True):
        data, y = source(return_X_y=True)
        y, runs = Labels(y).codes, {strategy: [] for strategy in STRATEGIES}
        for seed in range(SEEDS):
            train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
            X = StandardScaler().fit(data[train]).transform(data)
            for label, (strategy, _) in STRATEGIES.items():
                runs[label].append(ask(X[train], y[train], (X[test], y[test]), strategy, seed))
        curves = {label: list(np.transpose(values)) for label, values in runs.items()}  # budget by seed
        for place, budget in enumerate(BUDGETS[1:], 1):
            scores = {label: list(columns[place]) for label, columns in curves.items()}
            title = f"{name}, {budget} pairs: AUC of held-out pairs, {SEEDS} seeds"
            report(title, scores, STRATEGIES.keys() - {"random pairs"})
        for label, (_, colour) in STRATEGIES.items():
            mean = np.mean(curves[label], axis=1)
            gaps = [paired_interval(a, b) for a, b in zip(curves[label], curves["random pairs"], strict=True)]
            error = np.array([[g.mean - g.low, g.high - g.mean] for g in gaps]).T  # (2, budgets), 0 for random itself
            ax.errorbar(BUDGETS, mean, yerr=error, marker="o", capsize=3, color=colour, label=label)
        ax.set_title(f"{name}: means of {SEEDS} seeds; bars: 95 % of the difference to random", fontsize=9)
        ax.set(xlabel="pairs asked about", ylabel="AUC of held-out pairs")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=8, frameon=False, loc="lower right")
    save(figure, "active_learning")


if __name__ == "__main__":
    main()
