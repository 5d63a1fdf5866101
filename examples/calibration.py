"""Do intervals cover the truth as often as they say? A metric is planted in real data, and BayesianML asked about it.

Weights and threshold are drawn from the prior, labels of random pairs of wine from the model; then the posterior
intervals of the distances of other pairs are compared with the planted ones, at the default precision of the prior.
Nominal 90 % covers between 85 and 95 %, whatever the number of pairs; no promise for data that do not follow the model.

Run with: python -m examples.calibration
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from examples.contest import GREY, ORANGE, panels, save
from isometry import BayesianML, Pairs
from isometry.core.basis import eigenbasis
from isometry.eval import mean_interval

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
N_PAIRS, DRAWS, PRECISION = (30, 100, 300, 1000), 60, 1.0


def planted_coverage(X: np.ndarray, n_pairs: int, seed: int) -> tuple[list[float], float]:
    """One planted metric: the share of 300 new pairs whose distance lies in its interval, at each level; and the width.

    ``n_pairs`` labelled pairs are what the learner sees of the metric.
    """
    rng = np.random.default_rng([seed, n_pairs])
    Y = eigenbasis(X, X.shape[1])(X)  # coordinates in which a metric is a vector of weights
    threshold, *weights = rng.normal(1.0, PRECISION**-0.5, Y.shape[1] + 1)
    i = rng.integers(0, len(X), n_pairs + 300)
    j = (i + rng.integers(1, len(X), len(i))) % len(X)  # another row
    sqdist = (Y[i] - Y[j]) ** 2 @ weights
    similar = rng.random(len(i)) < expit(threshold - sqdist)
    seen = Pairs(i[:n_pairs], j[:n_pairs], similar[:n_pairs], n=len(X))
    learner = BayesianML(prior_precision=PRECISION).fit(X, seen)
    new, truth = np.stack([i, j], axis=1)[n_pairs:], np.sqrt(np.maximum(sqdist[n_pairs:], 0))
    ends = [learner.pair_distance_interval(X, new, level=level) for level in LEVELS]
    shares = [float(np.mean((low <= truth) & (truth <= high))) for low, high in ends]
    return shares, float(np.mean(ends[-1][1] - ends[-1][0]))


def main() -> None:
    X = StandardScaler().fit_transform(load_wine(return_X_y=True)[0])
    runs = {n_pairs: [planted_coverage(X, n_pairs, seed) for seed in range(DRAWS)] for n_pairs in N_PAIRS}
    figure, left, right = panels(2, 3.8)
    pooled = np.array([shares for run in runs.values() for shares, _ in run])  # (budgets · draws, levels)
    cover = [mean_interval(column) for column in pooled.T]
    left.plot([LEVELS[0], 1], [LEVELS[0], 1], color=GREY, lw=0.8, ls=":")
    left.plot(LEVELS, [c.mean for c in cover], "o-", color=ORANGE)
    left.fill_between(LEVELS, [c.low for c in cover], [c.high for c in cover], color=ORANGE, alpha=0.2, lw=0)
    left.set(xlabel="nominal level", ylabel="share of distances covered")
    left.set_title(f"wine, {len(pooled)} planted metrics, 95 % intervals", fontsize=10)
    right.axhspan(0.85, 0.95, color="0.93", lw=0, label="85 to 95 %")
    for place, (n_pairs, run) in enumerate(runs.items()):
        m = mean_interval(np.array([shares[-1] for shares, _ in run]))
        width = np.mean([width for _, width in run])
        print(f"{n_pairs:5d} pairs: 90 % intervals cover {m.mean:.3f} [{m.low:.3f}, {m.high:.3f}], width {width:.3f}")
        right.errorbar(place, m.mean, yerr=[[m.mean - m.low], [m.high - m.mean]], fmt="o", color=ORANGE, capsize=3)
    right.axhline(0.9, color=GREY, lw=0.8, ls=":")
    right.set_xticks(range(len(N_PAIRS)), N_PAIRS)
    right.set(xlabel="labelled pairs", ylabel="share covered", ylim=(0.7, 1.0))
    right.set_title("nominal 90 %", fontsize=10)
    right.legend(fontsize=8, frameon=False, loc="lower right")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, "calibration")


if __name__ == "__main__":
    main()
