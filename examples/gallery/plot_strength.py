"""
How far from Euclidean distance?
================================

Closed forms as published go all the way to their metric. On a raw table that may be too far: ridges, and shares of the
learned metric in a mixture with the Euclidean one, are tried on rows held out; the weakest within one standard error
of the best is taken.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry import RCA, Euclidean

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
metric = RCA().fit(X, y)
print(metric.reg_reason_)

# %%
# The same question asked from outside, with folds of its own: accuracy of three neighbours by ridge, and with the
# choice left to the data.
regs = [0.0, 0.01, 0.1, 1.0, 10.0]
folds = {"cv": 5, "n_jobs": 1}
score = {
    reg: cross_val_score(make_pipeline(RCA(reg=reg), KNeighborsClassifier(3)), X, y, **folds).mean() for reg in regs
}
auto = cross_val_score(make_pipeline(RCA(), KNeighborsClassifier(3)), X, y, **folds).mean()
euclidean = cross_val_score(make_pipeline(Euclidean(), KNeighborsClassifier(3)), X, y, **folds).mean()

figure, ax = plt.subplots(figsize=(6.4, 3.4))
ax.plot(np.arange(len(regs)), list(score.values()), marker="o", color="#0f766e", label="RCA, ridge as given")
ax.axhline(euclidean, color="#64748b", linestyle=":", label="Euclidean distance")
ax.axhline(auto, color="#c2410c", label="RCA, the data choose")
ax.set(
    xticks=np.arange(len(regs)),
    xticklabels=[f"{reg:g}" for reg in regs],
    xlabel="ridge, relative to the variance",
    ylabel="3-NN accuracy",
)
ax.legend(frameon=False)
figure.tight_layout()
