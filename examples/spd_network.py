"""A network on SPD matrices: region covariances of images, from which SPDNet learns. 1-NN and MAP@R.

One block of SPDNet, with a fifteenth of the weights of a perceptron, does as well as that on the distinct entries or
their logarithms by 1-NN, but has a lower MAP@R; a second block only loses. A closed form, SPDGMML, has the best 1-NN.
All of them retrieve far better than the log-Euclidean distance, which here adds nothing to the Euclidean one.

Run with: python -m examples.spd_network
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from examples.contest import Scores, draw, panels, report, save, splits
from examples.data import load_all
from isometry import SPDGMML
from isometry.core.linalg import sym_fn
from isometry.core.spd import spd_log
from isometry.deep import MLP, SPDNet, Trainer, Triplet
from isometry.eval import knn_hits, retrieval
from isometry.geometric.descriptors import CovarianceDescriptor, region_channels

ROWS, SPLITS = 160, 5
DERIVATIVES = ((0, 1), (1, 0), (0, 2), (2, 0), (1, 1))


def channels(images: np.ndarray) -> np.ndarray:
    """Position, intensity and edges, and the size of derivatives at two scales: (n, 15, pixels)."""
    more = [gaussian_filter(images, (0, s, s), order=(0, *order)) for s in (1, 2) for order in DERIVATIVES]
    return np.concatenate([region_channels(images), *(np.abs(m).reshape(len(m), 1, -1) for m in more)], axis=1)


def triangle(C: np.ndarray) -> np.ndarray:
    """The distinct entries of symmetric matrices, scaled so that the norm stays."""
    i, j = np.triu_indices(C.shape[1])
    return C[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def trained(net: torch.nn.Module, X: np.ndarray, y: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Embeddings of all rows after training on some."""
    settings = {"lr": 5e-3, "max_epochs": 5, "batches_per_epoch": 40, "monitor": "last"}
    return Trainer(net, Triplet(), **settings).fit(X[train], y[train]).embed(X).numpy()


def embeddings(C: np.ndarray, y: np.ndarray, train: np.ndarray) -> dict[str, np.ndarray]:
    """All rows in the space of each method, learned from the training rows."""
    R = sym_fn(C[train].mean(axis=0), lambda w: w**-0.5)
    C = R @ C @ R  # the mean covariance is the identity: one scale for all channels
    m, p = C.shape[1], 32
    torch.manual_seed(0)
    return {
        "Euclidean of the entries": triangle(C),
        "log-Euclidean": triangle(spd_log(C)),
        "SPDGMML(form='flat', t=0.2)": SPDGMML(form="flat", t=0.2).fit(C[train], y[train]).transform(C),
        "MLP of the entries": trained(MLP(m * (m + 1) // 2, p), triangle(C), y, train),
        "MLP of the logarithms": trained(MLP(m * (m + 1) // 2, p), triangle(spd_log(C)), y, train),
        "SPDNet": trained(SPDNet((m, 8), p), C, y, train),
        "SPDNet, two blocks": trained(SPDNet((m, 10, 6), p), C, y, train),
    }


def main() -> None:
    arrays = load_all("coil20")
    images, y = arrays["X"].reshape(-1, *arrays["image_shape"]) / 255.0, arrays["y"]
    C = CovarianceDescriptor().fit_transform(channels(images))
    accuracy: Scores = {}
    precision: Scores = {}
    for train, test in splits(y, SPLITS, ROWS, 600):
        for name, Z in embeddings(C, y, train).items():
            accuracy.setdefault(name, []).append(float(knn_hits(Z[train], y[train], Z[test], y[test], 1).mean()))
            precision.setdefault(name, []).append(float(retrieval(Z[test], y[test], ks=(1,)).mean()["map@r"]))
    special = {"SPDNet", "SPDNet, two blocks"}
    title = f"coil20, 15 × 15 covariances of {ROWS} images"
    report(f"{title}: accuracy of 1-NN", accuracy, special)
    report(f"{title}: MAP@R", precision, special)
    figure, left, right = panels(2, 3.6)
    draw(left, accuracy, special, title, "accuracy of 1-NN")
    draw(right, precision, special, title, "MAP@R of 600 other images")
    save(figure, "spd_network")


if __name__ == "__main__":
    main()
