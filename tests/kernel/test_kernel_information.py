"""KernelIGML: the kernel of the labels, reproduced or approximated."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import IGML, KernelIGML

GAMMA = 1.0


def rbf(x, y):
    return np.exp(-GAMMA * np.sum((x - y) ** 2))


def exact(lam):
    """Nothing truncated, no ridge: the published problem at full rank."""
    return KernelIGML(label_reg=lam, reg=0.0, gamma=GAMMA, variance=1.0, max_rank=None, center=False)


@pytest.mark.parametrize("lam", [0.05, 1.0])
def test_P19a_at_full_rank_distances_are_those_of_the_labels(distances, lam):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 3)), np.arange(24) % 3  # the labels have nothing to do with X
    D = distances(exact(lam).fit(X, y), X)
    same = y[:, None] == y
    assert_allclose(D[same & ~np.eye(24, dtype=bool)], 2 * lam, rtol=1e-6)
    assert_allclose(D[~same], 2 + 2 * lam, rtol=1e-6)


def test_P19a_with_unequal_classes_it_is_the_kernel_of_the_labels_once_centred(data, distances):
    """min tr(K_L⁻¹G) − log det G over centred G has G = K_L − K_L11ᵀK_L/1ᵀK_L1: centring is part of the method."""
    X, y, _ = data
    K_L = (y[:, None] == y) + 0.2 * np.eye(25)
    u = K_L.sum(axis=1)
    G = K_L - np.outer(u, u) / u.sum()
    expected = np.diag(G)[:, None] + np.diag(G) - 2 * G
    assert_allclose(distances(exact(0.2).fit(X, y), X), expected, rtol=1e-6, atol=1e-9)


def test_P19b_the_linear_kernel_is_igml(data, distances):
    X, y, new = data
    linear = IGML(reg=1e-3).fit(X, y)
    kernel = KernelIGML(kernel="linear", variance=1.0, max_rank=None, reg=1e-3).fit(X, y)
    assert_allclose(distances(kernel, np.r_[X, new]), distances(linear, np.r_[X, new]), rtol=1e-7, atol=1e-9)


def test_P19c_both_forms_of_the_map_agree_on_new_samples(data, gram):
    X, y, new = data
    model = KernelIGML(gamma=GAMMA, reg=1e-3).fit(X, y)
    K, N, n = gram(rbf, X), gram(rbf, new, X), 25
    assert model.basis_.shape == (25, 6)  # a quarter of the samples
    H = np.eye(n) - 1 / n
    centred = (N - K.mean(axis=0)) @ H
    assert_allclose(model.transform(new), centred @ model.dual_coef_.T, atol=1e-8)
    l, V = np.linalg.eigh(H @ K @ H)
    l, V = l[::-1][:6], V[:, ::-1][:, :6]
    W = IGML(reg=1e-3).fit(V * np.sqrt(l), y).mahalanobis_
    expected = [(x - z) @ W @ (x - z) for x in centred @ V / np.sqrt(l) for z in centred @ V / np.sqrt(l)]
    Z = model.transform(new)
    assert_allclose(((Z[:, None] - Z[None]) ** 2).sum(axis=2).ravel(), expected, rtol=1e-7, atol=1e-9)
