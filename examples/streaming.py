"""A stream that changes: ITML.partial_fit follows it, a metric learned once does not.

Pairs of digits arrive in batches. After a third of the stream a quarter of the pixels fail and send noise; after two
thirds they are mended. Each metric is measured on held-out digits seen through the sensors of the moment. What is
learned once falls to chance as long as they fail; the online metric needs some 2,000 pairs to climb back, not all the
way.

Run with: python -m examples.streaming
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from examples.contest import GREY, ORANGE, panels, save
from isometry import ITML, Euclidean, Labels, Pairs, RandomPairs
from isometry.eval import mean_interval, pair_auc, paired_interval

BATCHES, BATCH, SEEDS, NOISE = 120, 50, 6, 4.0
LEARNERS = {  # colour, and whether it goes on learning
    "Euclidean": ("#444a54", False),
    "ITML, the first 10 batches only": (GREY, False),
    "ITML, online": (ORANGE, True),
}


def sensors(X: np.ndarray, t: int, broken: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """X as it is seen in batch t."""
    X = X.copy()
    if BATCHES // 3 <= t < 2 * BATCHES // 3:
        X[:, broken] = NOISE * rng.standard_normal((len(X), len(broken)))
    return X


def draw_pairs(X: np.ndarray, y: np.ndarray, m: int, rng: np.random.RandomState) -> Pairs:
    """m pairs in random order, half of them similar."""
    pairs, order = RandomPairs(m // 2).draw(X, Labels(y), rng), rng.permutation(2 * (m // 2))
    return Pairs(pairs.i[order], pairs.j[order], pairs.similarity[order], n=len(X))


def run(seed: int) -> dict[str, list[float]]:
    """AUC after every batch, by learner."""
    rng = np.random.RandomState(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    X, y = ((X - X.mean()) / X.std())[order], y[order]
    stream, test, broken = slice(0, 1200), slice(1200, None), rng.permutation(64)[:16]
    learners = {name: Euclidean().fit(X) if name == "Euclidean" else ITML(eta=0.1, random_state=0) for name in LEARNERS}
    curves: dict[str, list[float]] = {name: [] for name in LEARNERS}
    held_out = draw_pairs(X[test], y[test], 1500, rng)
    for t in range(BATCHES):
        seen, pairs = sensors(X[stream], t, broken, rng), draw_pairs(X[stream], y[stream], BATCH, rng)
        now = sensors(X[test], t, broken, rng)
        for name, (_, goes_on) in LEARNERS.items():
            if name != "Euclidean" and (goes_on or t < 10):
                learners[name].partial_fit(seen, pairs)
            curves[name].append(pair_auc(learners[name].pair_distance(now, held_out), held_out.similarity))
    return curves


def main() -> None:
    runs, third = [run(seed) for seed in range(SEEDS)], BATCHES // 3
    frozen, online = list(LEARNERS)[1:]
    for title, end in (("before", third), ("during", 2 * third), ("after", BATCHES)):
        mean = {name: np.array([np.mean(r[name][end - 10 : end]) for r in runs]) for name in LEARNERS}
        gain = paired_interval(mean[online], mean[frozen])
        print(f"{title:7s}", *(f"{name}: {v.mean():.3f}  " for name, v in mean.items()))
        print(f"        online − frozen {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
    figure, ax = panels(1)
    figure.set_size_inches(8, 3.8)
    ax.axvspan(third * BATCH, 2 * third * BATCH, color="0.94", lw=0, label="a quarter of the pixels is noise")
    at = BATCH * np.arange(1, BATCHES + 1)
    for name, (colour, _) in LEARNERS.items():
        means = [mean_interval(np.array(v)) for v in zip(*(r[name] for r in runs), strict=True)]
        ax.plot(at, [m.mean for m in means], color=colour, label=name, ls="--" if name == "Euclidean" else "-")
        ax.fill_between(at, [m.low for m in means], [m.high for m in means], color=colour, alpha=0.15, lw=0)
    ax.set(xlabel="pairs seen", ylabel="AUC of held-out pairs")
    ax.set_title(f"digits, {SEEDS} streams, 95 % intervals", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False, loc="lower left")
    save(figure, "streaming")


if __name__ == "__main__":
    main()
