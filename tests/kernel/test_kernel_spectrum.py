"""KernelSpectrum: new eigenvalues for a kernel, against a quadratic programme."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from isometry import KernelSpectrum, Labels, Pairs

GAMMA = 0.3


def rbf(x, y):
    return np.exp(-GAMMA * np.sum((x - y) ** 2))


def eigen(K, p):
    """The p leading eigenpairs of the centred kernel."""
    H = np.eye(len(K)) - 1 / len(K)
    l, A = np.linalg.eigh(H @ K @ H)
    return l[::-1][:p], A[:, ::-1][:, :p]


def slow_f(A, y, reg):
    """f_r = mean over similar pairs of (a_ri − a_rj)², with its relative ridge."""
    pairs = [(A[i] - A[j]) ** 2 for i in range(len(y)) for j in range(i) if y[i] == y[j]]
    f = np.mean(pairs, axis=0)
    return f + reg * f.mean()


@pytest.mark.parametrize("scale", [1.0, 7.0, "trace"])
def test_M17a_M17b_beta_solves_the_programme(data, gram, scale):
    X, y, _ = data
    model = KernelSpectrum(6, gamma=GAMMA, scale=scale).fit(X, y)
    l, A = eigen(gram(rbf, X), 6)
    f = slow_f(A, y, 1e-3)
    assert_allclose(model.pair_means_, f, rtol=1e-8)
    c = model.beta_.sum()
    if scale == "trace":
        assert_allclose(np.sum(model.beta_**2), l.sum(), rtol=1e-10)  # tr K̃ = tr K
    else:
        assert_allclose(c, scale, rtol=1e-12)
    best = minimize(
        lambda b: b @ (f * b),
        np.full(6, c / 6),
        jac=lambda b: 2 * f * b,
        constraints={"type": "eq", "fun": lambda b: b.sum() - c, "jac": lambda b: np.ones(6)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert_allclose(model.beta_, best.x, rtol=1e-5)
    assert_allclose(np.ptp(f * model.beta_), 0, atol=1e-12 * c)  # 2f_rβ_r equals the multiplier for every r
    assert_allclose(model.beta_ @ (f * model.beta_), c**2 / np.sum(1 / f), rtol=1e-12)


def test_M17c_training_samples_lie_on_the_scaled_eigenvectors_and_new_ones_on_eigenfunctions(data, gram):
    X, y, new = data
    model = KernelSpectrum(5, gamma=GAMMA).fit(X, y)
    K, N = gram(rbf, X), gram(rbf, new, X)
    l, A = eigen(K, 5)
    Z = model.transform(X)
    A = A * np.sign(np.sum(A * Z, axis=0))
    assert_allclose(Z, A * model.beta_, atol=1e-8)
    centred = N - K.mean(axis=0) - N.mean(axis=1, keepdims=True) + K.mean()
    slow = [[model.beta_[r] / l[r] * sum(A[i, r] * k[i] for i in range(25)) for r in range(5)] for k in centred]
    assert_allclose(model.transform(new), slow, atol=1e-7)


def test_M17d_the_linear_kernel_reweighs_whitened_principal_components(data):
    X, y, new = data
    model = KernelSpectrum(3, kernel="linear").fit(X, y)
    Xc = X - X.mean(axis=0)
    _, s, Vt = np.linalg.svd(Xc, full_matrices=False)
    whitened = (new - X.mean(axis=0)) @ Vt.T / s
    f = slow_f(Xc @ Vt.T / s, y, 1e-3)
    beta = np.sqrt(np.sum(s**2) / np.sum(f**-2)) / f
    assert_allclose(np.abs(model.transform(new)), np.abs(whitened * beta), rtol=1e-7)


def test_variance_decides_unless_the_number_is_given(data, gram):
    X, y, _ = data
    l = eigen(gram(rbf, X), 25)[0]
    kept = KernelSpectrum(gamma=GAMMA, variance=0.8).fit(X, y).beta_
    assert len(kept) == next(r for r in range(1, 26) if l[:r].sum() >= 0.8 * l.sum())
    assert len(KernelSpectrum(15, gamma=GAMMA, variance=0.1).fit(X, y).beta_) == 15


def test_pairs_labels_and_unlabelled_rows(data, distances):
    X, y, new = data
    i, j, _ = Labels(y).similar
    listed = KernelSpectrum().fit(X, Pairs(i, j, np.ones(len(i), dtype=bool), n=25))
    assert_allclose(distances(listed, new), distances(KernelSpectrum().fit(X, y), new), rtol=1e-8)
    some = np.where(np.arange(25) % 2 > 0, y, -1)  # the kernel still rests on all rows
    hidden = KernelSpectrum(4, gamma=GAMMA).fit(X, Labels(some, unlabelled=-1))
    assert_allclose(hidden.spectrum_, KernelSpectrum(4, gamma=GAMMA).fit(X, y).spectrum_)
    i, j = (v[(some[v] >= 0) & (some[w] >= 0)] for v, w in ((i, j), (j, i)))
    listed = KernelSpectrum(4, gamma=GAMMA).fit(X, Pairs(i, j, np.ones(len(i), dtype=bool), n=25))
    assert_allclose(hidden.beta_, listed.beta_, rtol=1e-9)
    signs = np.where(y > 0, 1, -1)  # −1 in an array is a class
    assert_allclose(KernelSpectrum().fit(X, signs).beta_, KernelSpectrum().fit(X, y > 0).beta_)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"reg": -1.0}, "reg=-1.0 must not be negative"),
        ({"n_components": 0}, "n_components=0 must be at least 1"),
        ({"scale": "unit"}, "scale='unit' is unknown; expected 'trace' or a number"),
        ({"scale": 0.0}, "scale=0.0 must be"),
    ],
)
def test_wrong_parameters_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        KernelSpectrum(**params).fit(data[0], data[1])
