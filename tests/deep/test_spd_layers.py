"""SPD layers (D51): bilinear map, eigenvalue rectification, logarithm, and their gradients."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from isometry.core.spd import spd_log
from isometry.deep import BiMap, DeepMetric, LogEig, NCALoss, ReEig, SPDNet, Trainer
from isometry.deep.models.spd import flatten

torch.set_num_threads(1)


def spd(n=3, m=4, seed=0, ridge=0.05):
    X = torch.randn(n, m, 2 * m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return X @ X.mT / (2 * m) + ridge * torch.eye(m, dtype=torch.float64)


def with_eigenvalues(*values, seed=0):
    """A symmetric matrix (1, m, m) with these eigenvalues."""
    m = len(values)
    Q = torch.linalg.qr(torch.randn(m, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).Q
    return (Q * torch.tensor(values, dtype=torch.float64)) @ Q.T[None]


def symmetric_input(layer):
    """The layer as a function of any matrix, through its symmetric part: what finite differences can move."""
    return lambda X: layer((X + X.mT) / 2)


# -- values ------------------------------------------------------------------------------------------------------------


def test_rectification_by_hand():
    """D51 (1): diag(−1, 0.5), ε = 0.1 → diag(0.1, 0.5)."""
    X = torch.diag(torch.tensor([-1.0, 0.5], dtype=torch.float64))[None]
    assert_close(ReEig(0.1)(X), torch.diag(torch.tensor([0.1, 0.5], dtype=torch.float64))[None], atol=1e-14, rtol=0)
    turned = with_eigenvalues(-1.0, 0.5, 2.0)
    assert_close(ReEig(0.1)(turned), with_eigenvalues(0.1, 0.5, 2.0), atol=1e-13, rtol=0)


def test_rectified_matrices_are_definite_and_stay():
    """D51 (3), (4): smallest eigenvalue ≥ ε, idempotent; what is definite already is unchanged."""
    X = spd(5, 4) - 0.4 * torch.eye(4, dtype=torch.float64)
    assert torch.linalg.eigvalsh(X).min() < 0
    R = ReEig(1e-2)(X)
    assert torch.linalg.eigvalsh(R).min() >= 1e-2 - 1e-12
    assert_close(ReEig(1e-2)(R), R, atol=1e-12, rtol=0)
    assert_close(ReEig(1e-4)(spd()), spd(), atol=1e-12, rtol=0)


def test_log_undoes_exp():
    """D51 (4): log(exp(S)) = S, flattened so that the norm is that of the matrix."""
    S = spd(4, 5, ridge=0) - torch.eye(5, dtype=torch.float64)
    z = LogEig()(torch.linalg.matrix_exp(S))
    assert z.shape == (4, 15)
    assert_close(z, flatten(S), atol=1e-12, rtol=0)
    assert_close(z.norm(dim=1), torch.linalg.matrix_norm(S), atol=1e-12, rtol=0)
    i, j = 1, 3
    assert float(z[2, 0]) == pytest.approx(float(S[2, 0, 0]), rel=1e-9)
    place = list(zip(*torch.triu_indices(5, 5).tolist())).index((i, j))
    assert float(z[2, place]) == pytest.approx(math.sqrt(2) * float(S[2, i, j]), rel=1e-9)


def test_distance_after_the_logarithm_is_log_euclidean():
    A, B = spd(1, seed=1), spd(1, seed=2)
    expected = np.linalg.norm(spd_log(A[0].numpy()) - spd_log(B[0].numpy()))
    assert float((LogEig()(A) - LogEig()(B)).norm()) == pytest.approx(expected, rel=1e-10)


def test_bilinear_map_has_orthonormal_rows_also_after_training():
    torch.manual_seed(0)
    layer, X = BiMap(5, 3).double(), spd(4, 5)
    eye = torch.eye(3, dtype=torch.float64)
    assert_close(layer.weight @ layer.weight.T, eye, atol=1e-12, rtol=0)
    W = layer.weight.detach().clone()
    for x, image in zip(X, layer(X)):
        assert_close(image, W @ x @ W.T, atol=1e-12, rtol=0)
    assert (
        torch.linalg.eigvalsh(layer(X))[:, 0] >= torch.linalg.eigvalsh(X)[:, 0] - 1e-12
    ).all()  # Cauchy's interlacing
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        (-torch.linalg.det(layer(X)).sum()).backward()
        optimizer.step()
    assert_close(layer.weight @ layer.weight.T, eye, atol=1e-12, rtol=0)
    assert (layer.weight - W).abs().max() > 0.05


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [ReEig(0.3), LogEig(), BiMap(4, 2).double()], ids=["ReEig", "LogEig", "BiMap"])
def test_gradients_by_finite_differences(layer):
    """D51 (2): eigenvalues on both sides of ε, near ones, and far ones."""
    X = torch.cat([spd(2), with_eigenvalues(0.1, 0.2, 0.5, 3.0), with_eigenvalues(0.5, 0.5 + 1e-9, 0.9, 50.0)])
    assert torch.autograd.gradcheck(symmetric_input(layer), X.requires_grad_(), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("layer", [ReEig(1e-4), LogEig()], ids=["ReEig", "LogEig"])
def test_gradient_at_the_identity(layer):
    """D51 (2): exact for repeated eigenvalues, where the gradient of eigh is not finite."""
    eye = torch.eye(3, dtype=torch.float64)[None]
    X = eye.clone().requires_grad_()
    G = torch.randn(1, 6 if isinstance(layer, LogEig) else 9, generator=torch.Generator().manual_seed(0)).double()
    (layer(X).flatten(1) * G).sum().backward()
    # both maps have slope 1 at 1: the gradient is that of the symmetric part itself
    Y = eye.clone().requires_grad_()
    S = (Y + Y.mT) / 2
    ((flatten(S) if isinstance(layer, LogEig) else S.flatten(1)) * G).sum().backward()
    assert_close(X.grad, Y.grad, atol=1e-12, rtol=0)
    w, V = torch.linalg.eigh(Z := eye.clone().requires_grad_())
    ((V * w.log()[:, None]) @ V.mT).square().sum().backward()
    assert not Z.grad.isfinite().all()


def slow_slopes(f, slope, w):
    m = len(w)
    return [[slope(w[i]) if w[i] == w[j] else (f(w[i]) - f(w[j])) / (w[i] - w[j]) for j in range(m)] for i in range(m)]


def test_divided_differences_by_loops_and_without_loss_of_digits():
    w = [0.01, 0.3, 0.3, 2.0, 40.0]
    t = torch.tensor([w], dtype=torch.float64)
    assert LogEig.slopes(t)[0].tolist() == [
        pytest.approx(row, rel=1e-12) for row in slow_slopes(math.log, lambda v: 1 / v, w)
    ]
    eps = 0.2
    assert ReEig(eps).slopes(t)[0].tolist() == [
        pytest.approx(row, rel=1e-12) for row in slow_slopes(lambda v: max(v, eps), lambda v: float(v > eps), w)
    ]
    near = torch.tensor([[0.7, 0.7 * (1 + 3e-7)]], dtype=torch.float32)  # log a − log b has one digit left here
    exact = LogEig.slopes(near.double())
    assert_close(LogEig.slopes(near).double(), exact, rtol=1e-5, atol=0)


def test_antisymmetric_parts_do_not_matter():
    X = spd(2)
    tilt = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert_close(LogEig()(X + 0.1 * (tilt - tilt.mT)), LogEig()(X), atol=1e-12, rtol=0)


# -- the network -------------------------------------------------------------------------------------------------------


def planted(n=120, m=6, seed=0):
    """Three classes of covariances that differ in the log-variance of two hidden channels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    mix = np.linalg.qr(rng.standard_normal((m, m)))[0]
    scale = np.exp(2.5 * rng.standard_normal((n, m)))  # noise in every channel
    scale[:, 0] = np.exp(np.array([-1.5, 0.0, 1.5])[y] + 0.3 * rng.standard_normal(n))
    scale[:, 1] = np.exp(np.array([1.0, -2.0, 1.0])[y] + 0.3 * rng.standard_normal(n))
    return (mix * scale[:, None]) @ mix.T, y


def one_nn(Z, y, train=80):
    D = ((Z[train:, None] - Z[None, :train]) ** 2).sum(2)
    return (y[:train][D.argmin(1)] == y[train:]).mean()


def test_network_learns_what_the_log_euclidean_distance_misses():
    X, y = planted()
    torch.manual_seed(0)
    net = SPDNet((6, 4, 3), 4)
    trainer = Trainer(net, NCALoss(), lr=0.02, max_epochs=2, batches_per_epoch=30, samples_per_class=10)
    trainer.fit(X[:80], y[:80])
    Z = trainer.embed(X).numpy()
    plain = one_nn(flatten(torch.tensor(spd_log(X))).numpy(), y)
    assert one_nn(Z, y) >= max(plain + 0.05, 0.95)
    W = net.layers[0].weight
    assert_close(W @ W.T, torch.eye(4), atol=1e-5, rtol=0)


def test_under_the_scikit_learn_contract():
    """A copy of the network is trained; its weights come back from arrays."""
    X, y = planted(60, 4)
    metric = DeepMetric(SPDNet((4, 3), 3), NCALoss(), standardize=False, max_epochs=2, min_steps=4, random_state=0)
    Z = metric.fit(X, y).transform(X)
    assert Z.shape == (60, 3) and np.isfinite(Z).all()
    np.testing.assert_allclose(metric.transform(X[:7]), Z[:7], rtol=1e-5, atol=1e-6)


def test_shapes_copies_and_precision():
    torch.manual_seed(0)
    net, X = SPDNet((4, 3, 2), 5), spd().float()
    assert net(X).shape == (3, 5)
    assert SPDNet((4, 2))(X).shape == (3, 3)
    assert_close(SPDNet((4,))(X), LogEig()(X), atol=1e-5, rtol=0)
    assert_close(copy.deepcopy(net)(X), net(X), atol=0, rtol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net.layers[:-1](X).dtype == torch.float32
        assert_close(net.layers[:-1](X), net.layers[:-1](X.float()), atol=0, rtol=0)
    assert_close(net.double()(X.double()).float(), SPDNet.forward(net.float(), X), atol=1e-4, rtol=1e-4)
    assert net(X[:0]).shape == (0, 5)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="1 <= after <= before, got 3 to 4"):
        BiMap(3, 4)
    with pytest.raises(ValueError, match=r"eps=0\.0 must be positive"):
        ReEig(0.0)
    with pytest.raises(ValueError, match="eigenvalue -1 has no logarithm; put ReEig"):
        LogEig()(with_eigenvalues(-1.0, 2.0))
    with pytest.raises(ValueError, match="matrices 4 × 4, got shape"):
        SPDNet((4, 3))(spd(2, 5).float())


def test_second_derivatives_are_refused():
    """Torch would take the gradient for a constant of the matrices, and be silently wrong."""
    X = torch.randn(2, 3, 3, dtype=torch.float64)
    X = (X @ X.mT + torch.eye(3, dtype=torch.float64)).requires_grad_()
    value = LogEig()(X).square().sum()
    (gradient,) = torch.autograd.grad(value, X, retain_graph=True)
    assert gradient.abs().sum() > 0
    with pytest.raises(RuntimeError, match="SpectralMap can be differentiated only once"):
        torch.autograd.grad(value, X, create_graph=True)
