"""
Same or different: a threshold and its errors
=============================================

A distance decides nothing until a line is drawn. ``PairVerifier`` draws it on pairs that the metric had not seen, and
says how often it errs there, with intervals that allow for pairs sharing a class.
"""

# %%
# Handwritten digits stand for identities. Four classes or more: whole classes are held out, as when new people come.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from isometry import RCA, PairVerifier

X, y = load_digits(return_X_y=True)
judge = PairVerifier(RCA(), random_state=0).fit(X[:800], y[:800])
print(f"{judge.n_pairs_} held-out pairs, area under the curve {judge.auc_:.3f}")

# %%
# One false match in a hundred different pairs costs so many of the same ones:
for fpr in (0.1, 0.05, 0.01):
    point = judge.operating_point(fpr=fpr)
    false, missed = point.fpr, point.fnr
    print(
        f"distance {point.threshold:5.1f}: false matches {false.mean:.3f} [{false.low:.3f}, {false.high:.3f}], "
        f"missed {missed.mean:.3f} [{missed.low:.3f}, {missed.high:.3f}]"
    )

# %%
# All thresholds at once.
figure, ax = plt.subplots(figsize=(4.6, 4.2))
ax.plot(judge.roc_.fpr, judge.roc_.tpr, color="#0f766e")
ax.plot([0, 1], [0, 1], color="#94a3b8", linestyle=":")
ax.set(xlabel="different pairs called the same", ylabel="same pairs found", aspect="equal")
figure.tight_layout()
