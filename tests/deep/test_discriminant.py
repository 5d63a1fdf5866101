"""Proof tests of deep discriminant analysis, D46 to D48."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.linalg import subspace_angles
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.testing import assert_close

from isometry.deep import DeepFisherDA, ProbabilisticDA, VirtualSampleDA
from isometry.deep.losses.discriminant import deviations
from tests.deep.batches import A, Y, batch, gradient


def close(value, expected, tolerance=1e-6):
    assert float(value.detach()) == pytest.approx(expected, abs=tolerance)


def slow_scatters(z, y):
    """Within and total covariance, biased, by loops over classes and points."""
    z, y = z.numpy(), y.numpy()
    W, T = np.zeros((z.shape[1],) * 2), np.zeros((z.shape[1],) * 2)
    for v, k in zip(z, y):
        W += np.outer(v - z[y == k].mean(0), v - z[y == k].mean(0)) / len(z)
        T += np.outer(v - z.mean(0), v - z.mean(0)) / len(z)
    return W, T


def test_D46a_toy_values():
    within, between = deviations(A, Y)
    close(within.square().sum(), 1.75, 1e-12)
    close(between.square().sum(), 0.5, 1e-12)
    close(ProbabilisticDA(eps=0)(A, Y), 3.5, 1e-12)
    close(ProbabilisticDA("logdet", ridge=0)(A, Y), -1.319529)
    close(ProbabilisticDA("logdet")(A, Y), -1.196170)


def test_D46c_equals_the_loop_and_the_parts_add_up():
    z, y = batch(0)
    W, T = slow_scatters(z, y)
    within, between = deviations(z, y)
    assert_close(within.T @ within, torch.tensor(W))
    assert_close(within.T @ within + between.T @ between, torch.tensor(T))
    ratio = np.trace(W) / (np.trace(T) - np.trace(W))
    close(ProbabilisticDA(eps=0)(z, y), ratio, 1e-12)
    close(ProbabilisticDA("log_ratio", eps=0)(z, y), math.log(ratio), 1e-12)
    ridge = 1e-2 * np.trace(T) / 4 * np.eye(4)
    logdet = (np.linalg.slogdet(W + ridge)[1] - np.linalg.slogdet(T + ridge)[1]) / 4
    close(ProbabilisticDA("logdet")(z, y), logdet, 1e-12)


def test_D46b_invariances():
    z, y = batch(0)
    Q = torch.linalg.qr(batch(1, n=4)[0]).Q
    for form in ("ratio", "logdet"):
        loss = ProbabilisticDA(form, eps=0)
        close(loss(3 * z @ Q + 7, y), loss(z, y).item(), 1e-10)
    affine = batch(1, n=4)[0]
    close(ProbabilisticDA("logdet", ridge=0)(z @ affine, y), ProbabilisticDA("logdet", ridge=0)(z, y).item(), 1e-9)


def test_D46d_collapsed_classes_cost_nothing():
    y = batch(0)[1]
    assert ProbabilisticDA()(torch.eye(4, dtype=torch.float64)[y], y) < 1e-25


SMALL = {"embedding_size": 4, "output_size": 3}


def slow_hinge(z, y, loss, scale):
    """The hinge of D47 for given pairs in the order the loss matches them, with the scale of the samples frozen."""
    i, j = torch.triu_indices(len(z), len(z), 1)
    g = torch.exp(-(F.normalize(z) @ F.normalize(z).T)[i, j])
    same = y[i] == y[j]
    draw = torch.Generator().manual_seed(loss.random_state)
    q = int(same.sum())
    chosen = [g[k][torch.randperm(int(k.sum()), generator=draw)[:q]] for k in (same, ~same)]
    s = (chosen[0].mean() + chosen[1].mean()).item() / 2
    return ((chosen[0] - chosen[1]) * (s if scale is None else scale) + loss.margin).relu().mean(), s


def test_D47a_without_noise_the_samples_are_their_mean():
    z, y = batch(0)
    loss = VirtualSampleDA(epsilon=0.0, kappa=0.0, **SMALL).double()
    close(loss(z, y), slow_hinge(z, y, loss, None)[0].item(), 1e-12)


def test_D47_gradient_holds_the_scale_constant():
    z, y = batch(0)
    loss = VirtualSampleDA(epsilon=0.0, kappa=0.0, **SMALL).double()
    scale = slow_hinge(z, y, loss, None)[1]
    assert_close(gradient(loss, z, y), gradient(lambda u: slow_hinge(u, y, loss, scale)[0], z))
    ratio = VirtualSampleDA(kappa=1.0, **SMALL).double()
    u = F.normalize(z)
    assert torch.autograd.gradcheck(lambda v: ratio.fisher(*deviations(v, y)), (u.requires_grad_(),))


def test_D47b_the_mean_eigenvalue_is_a_trace():
    z, y = batch(0)
    W, T = slow_scatters(z, y)
    loss = VirtualSampleDA(**SMALL)
    slow = np.linalg.eigvals(np.linalg.solve(W + 1e-3 * np.eye(4), T - W)).real.mean()
    close(loss.mean_eigenvalue(*deviations(z, y)), slow, 1e-9)


def test_D47c_the_ratio_ignores_the_scale_of_the_projection_and_equals_the_traces():
    z, y = batch(0)
    W, T = slow_scatters(z, y)
    loss = VirtualSampleDA(**SMALL).double()
    U = loss.projection.weight.detach().numpy().T
    slow = np.trace(U.T @ (T - W) @ U) / np.trace(U.T @ W @ U)
    close(loss.fisher(*deviations(z, y)), slow, 1e-10)
    loss.projection.weight.data *= 5
    close(loss.fisher(*deviations(z, y)), slow, 1e-10)


def test_D47d_same_seed_same_value():
    z, y = batch(0)

    def values(seed):
        torch.manual_seed(0)
        loss = VirtualSampleDA(epsilon=10.0, random_state=seed, **SMALL).double()
        return [loss(z, y).item() for _ in range(3)]

    first = values(0)
    assert first == values(0) and first != values(1) and len(set(first)) == 3


def test_D48a_toy_targets():
    table = DeepFisherDA([3, 1], target_scale=None).table
    assert_close(table, torch.tensor([[0.144338, -0.25], [-0.433013, 0.75]]), rtol=0, atol=1e-6)
    assert_close(DeepFisherDA([3, 1]).table, 2 * table)


def slow_targets(y, c):
    n, counts = len(y), np.bincount(y, minlength=c)
    return np.array(
        [[(n - counts[j]) / (n * counts[j] ** 0.5) if k == j else -(counts[j] ** 0.5) / n for j in range(c)] for k in y]
    )


def test_D48b_D48d_columns_sum_to_zero_and_the_gram_matrix_is_a_projection():
    y = batch(0)[1]
    counts = torch.bincount(y).double()
    rows = DeepFisherDA(counts, None).targets(counts)[y]
    assert_close(rows, torch.tensor(slow_targets(y.numpy(), 4)))
    assert rows.sum(0).abs().max() < 1e-12
    root = (counts / len(y)).sqrt()
    assert_close(rows.T @ rows, torch.eye(4).double() - torch.outer(root, root))
    f = batch(1)[0]
    expected = 0.5 * np.mean(np.sum((f.numpy() - slow_targets(y.numpy(), 4)) ** 2, 1))
    close(DeepFisherDA(counts, None)(f, y), expected, 1e-6)
    close(DeepFisherDA(per_batch=True, target_scale=None)(f, y), expected, 1e-12)


def test_D48c_the_linear_solution_spans_the_directions_of_discriminant_analysis():
    X, y = (t.numpy() for t in batch(0, n=40))
    B = np.linalg.lstsq(X - X.mean(0), slow_targets(y, 4), rcond=None)[0]
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :3]
    left = np.linalg.svd(B)[0][:, :3]
    assert subspace_angles(left, lda).max() < 1e-6


def test_D48_input_is_checked():
    with pytest.raises(ValueError, match="needs class_counts"):
        DeepFisherDA()
    with pytest.raises(ValueError, match=r"4 classes need network outputs \(B, 4\), got \(12, 3\)"):
        DeepFisherDA([1, 2, 3, 4])(batch(0)[0][:, :3], batch(0)[1] % 3)
    with pytest.raises(ValueError, match="labels"):
        ProbabilisticDA()(A, Y[:, None] == Y)


@pytest.mark.parametrize("form", ["ratio", "log_ratio"])
@pytest.mark.parametrize("size", [1e19, 1e30])
def test_D46_squares_of_large_embeddings_do_not_overflow(form, size):
    """Once a class for each sample gave 0 / ∞: a value of 0 and a gradient of NaN."""
    z, loss = batch(7)[0].float(), ProbabilisticDA(form=form)
    for y in (torch.arange(12), torch.arange(12) % 4):
        big = (size * z).requires_grad_()
        value = loss(big, y)
        value.backward()
        assert value.isfinite() and big.grad.isfinite().all()
    assert_close(loss(size * z, y), loss(1e6 * z, y), rtol=1e-4, atol=1e-6)


def test_D46_logdet_of_denormal_embeddings_is_that_of_one_point():
    z = (1e-45 * batch(7)[0]).float().requires_grad_()
    for y in (torch.arange(12), (torch.arange(12) == 0).long()):
        ProbabilisticDA(form="logdet")(z, y).backward()
        assert z.grad.isfinite().all()
