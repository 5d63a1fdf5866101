"""Samples that are matrices: region covariances of images (SPDGMML), subspaces of image sets (GrassmannGMML). 1-NN.

The logarithm helps covariances, and a metric on its entries (form="flat") helps more than one that acts on one side.
For subspaces most of the gain over set means is that of the projection distance; the learned metric adds half a point.

Run with: python -m examples.matrices
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from examples.contest import contest, draw, knn_score, panels, report, save, splits
from examples.data import load_all
from isometry import GMML, SPDGMML, Euclidean, GrassmannGMML
from isometry.core.spd import spd_log
from isometry.geometric.descriptors import CovarianceDescriptor, SubspaceDescriptor, region_channels

SET_SIZE, N_DIRECTIONS = 4, 3  # images of a set, dimension of their subspace


def triangle(C: np.ndarray) -> np.ndarray:
    """The distinct entries of symmetric matrices, (n, d(d + 1)/2), scaled so that the norm stays."""
    i, j = np.triu_indices(C.shape[1])
    return C[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))


def region_covariances(images: np.ndarray, y: np.ndarray):
    """Each image as the 5 × 5 covariance of position, intensity and edges over its pixels."""
    C = CovarianceDescriptor().fit_transform(region_channels(images))
    entries, logarithms = FunctionTransformer(triangle), FunctionTransformer(lambda C: triangle(spd_log(C)))
    learners = {
        "Euclidean": lambda: make_pipeline(entries, StandardScaler(), Euclidean()),
        "GMML of the entries": lambda: make_pipeline(entries, StandardScaler(), GMML()),
        "log-Euclidean": lambda: make_pipeline(logarithms, Euclidean()),
        "SPDGMML": SPDGMML,
        "SPDGMML(form='flat', t=0.2)": lambda: SPDGMML(form="flat", t=0.2),
    }
    return contest(learners, splits(y, 8, 80, 600), lambda m, s: knn_score(m, C, y, s, k=1))


def image_sets(images: np.ndarray, y: np.ndarray):
    """Sets of images of one object, each as the span of the images; three sets of each object to learn from."""
    rng, pixels = np.random.default_rng(0), images.reshape(len(images), -1)
    sets = np.vstack([rng.permutation(np.flatnonzero(y == c)).reshape(-1, SET_SIZE) for c in np.unique(y)])
    y = y[sets[:, 0]]

    def score(kind, learner, split):
        pca = PCA(30, random_state=0).fit(pixels[sets[split[0]].ravel()])
        Z = pca.transform(pixels)[sets].transpose(0, 2, 1)  # (n, 30, SET_SIZE)
        B = SubspaceDescriptor(N_DIRECTIONS, center=False).fit_transform(Z)
        X = {"means": Z.mean(axis=2), "bases": B, "projectors": triangle(B @ B.transpose(0, 2, 1))}[kind]
        return knn_score(learner, X, y, split, k=1)

    learners = {
        "Euclidean of set means": ("means", Euclidean),
        "GMML of set means": ("means", lambda: GMML(reg=0.1)),
        "projection distance": ("projectors", Euclidean),
        "GrassmannGMML": ("bases", GrassmannGMML),
    }
    plan = splits(y, 8, 3 * len(np.unique(y)))
    return {name: [score(kind, make(), split) for split in plan] for name, (kind, make) in learners.items()}


def main() -> None:
    arrays = load_all("coil20")
    images, y = arrays["X"].reshape(-1, *arrays["image_shape"]) / 255.0, arrays["y"]
    covariances, sets = region_covariances(images, y), image_sets(images, y)
    special = {"SPDGMML", "SPDGMML(form='flat', t=0.2)"}
    report("coil20, region covariances of 80 images", covariances, special)
    report("coil20, 60 sets of 4 images", sets, {"GrassmannGMML"})
    figure, left, right = panels(2)
    draw(left, covariances, special, "coil20: region covariances of 80 images", "accuracy of 1-NN")
    draw(right, sets, {"GrassmannGMML"}, "coil20: 60 sets of 4 images", "accuracy of 1-NN")
    save(figure, "matrices")


if __name__ == "__main__":
    main()
