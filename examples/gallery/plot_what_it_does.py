"""
What metric learning does
=========================

Neighbours decide by distance, and Euclidean distance counts every feature alike. A learned metric is Euclidean distance
after a map that was learned from labels: directions that tell classes apart become long, the others short.
"""

# %%
# Ten wines of each class, by two of their thirteen features. Flavanoids tell the classes apart, proline is a number in
# the hundreds: without units, proline decides alone.
import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry

X, y = load_wine(return_X_y=True)

# %%
# The accuracy of three neighbours on samples held out: raw, scaled, and after a metric was learned within each fold.
neighbours = KNeighborsClassifier(3)
for name, model in {
    "raw": neighbours,
    "scaled": make_pipeline(StandardScaler(), neighbours),
    "scaled, then RCA": make_pipeline(StandardScaler(), isometry.RCA(), neighbours),
}.items():
    print(f"{name:18s} {cross_val_score(model, X, y, cv=5).mean():.3f}")

# %%
# Two directions of the learned space, beside two of the scaled one. Nothing but a linear map lies between them.
Z = StandardScaler().fit_transform(X)
metric = isometry.FisherML(n_components=2).fit(Z, y)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
axes[0].scatter(Z[:, 6], Z[:, 12], c=y, cmap="Set2")
axes[0].set(title="scaled: flavanoids, proline", xticks=[], yticks=[])
axes[1].scatter(*metric.transform(Z).T, c=y, cmap="Set2")
axes[1].set(title="learned: FisherML in two dimensions", xticks=[], yticks=[])
figure.tight_layout()
