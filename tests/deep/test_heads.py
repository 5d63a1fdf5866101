"""Proof tests of the losses on a head, D08 to D13."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import hinge_loss
from torch.testing import assert_close

from isometry.deep import KL, MAE, MSE, CrossEntropy, Hinge, Huber, Triplet
from tests.deep.batches import batch, gradient


@pytest.fixture
def outputs():
    return batch(0)


def one_hot(y, c=4):
    return torch.nn.functional.one_hot(y, c).double()


def test_D08a_gradient_of_the_squared_error(outputs):
    f, y = outputs
    assert_close(gradient(MSE(), f, y), 2 * (f - one_hot(y)) / len(f))


def test_D08b_zero_outputs_cost_one(outputs):
    f, y = outputs
    assert MSE()(0 * f, y) == 1


def test_D08c_a_linear_net_converges_to_least_squares(outputs):
    x, y = outputs
    head = MSE(4, 4).double()
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16)

    def closure():
        optimizer.zero_grad()
        value = head(x, y)
        value.backward()
        return value

    optimizer.step(closure)
    X1 = np.column_stack([x.numpy(), np.ones(len(x))])
    B = np.linalg.lstsq(X1, one_hot(y).numpy(), rcond=None)[0]
    assert_close(head.layer.weight.detach(), torch.tensor(B[:4].T), rtol=1e-4, atol=1e-5)


def test_D08_values_are_targets_as_they_are():
    f, t = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 0.0, 1.0])
    assert MSE()(f, t).item() == pytest.approx((0 + 4 + 9) / 3)
    assert MAE()(f, t).item() == pytest.approx((0 + 2 + 3) / 3)
    with pytest.raises(ValueError, match=r"outputs \(3, 2\) need targets of the same shape, got \(3,\)"):
        MSE()(torch.ones(3, 2), t)


def test_D09a_gradient_is_a_sign_and_zero_at_equality(outputs):
    f, y = outputs
    f[0] = one_hot(y)[0]
    g = gradient(MAE(), f, y)
    assert_close(g, torch.sign(f - one_hot(y)) / len(f))
    assert (g[0] == 0).all()


def test_D09b_the_best_constant_is_the_median():
    t = torch.tensor([1.0, 2.0, 2.5, 9.0, 30.0])
    cost = {c: MAE()(torch.full((5,), c), t).item() for c in (1.0, 2.0, 2.5, 8.9, 9.0)}
    assert min(cost, key=cost.get) == 2.5


def test_D10a_value():
    assert Huber(delta=1.0)(torch.tensor([3.0]), torch.tensor([0.0])).item() == 2.5


def test_D10b_large_delta_is_half_the_squared_error(outputs):
    assert_close(Huber(delta=1e6)(*outputs), MSE()(*outputs) / 2)


def test_D10c_small_delta_tends_to_the_absolute_error(outputs):
    assert_close(Huber(delta=1e-7)(*outputs) / 1e-7, MAE()(*outputs), rtol=1e-5, atol=0)


def test_D10d_smooth_at_delta():
    left, right = (
        gradient(Huber(delta=1.0), torch.tensor([r]), torch.tensor([0.0])).item() for r in (1 - 1e-6, 1 + 1e-6)
    )
    assert left == pytest.approx(right, abs=3e-6) and right == pytest.approx(1.0, abs=1e-6)


def test_D11a_one_hot_target_is_cross_entropy(outputs):
    assert_close(KL()(*outputs), CrossEntropy()(*outputs))


def test_D11b_zero_at_the_target(outputs):
    f, _ = outputs
    assert KL()(f, f.softmax(1)).abs() < 1e-15
    assert gradient(KL(), f, f.softmax(1)).abs().max() < 1e-15


def test_D11c_cross_entropy_less_entropy_and_the_reverse(outputs):
    f, t = outputs[0], batch(1)[0].softmax(1)
    log_p = f.log_softmax(1)
    assert_close(KL()(f, t), (-(t * log_p).sum(1) + (t * t.log()).sum(1)).mean())
    t = 0.99 * t + 0.01 / 4
    reverse = sum(float(p * (p / q).log()) for p, q in zip(log_p.exp().flatten(), t.flatten())) / len(f)
    assert KL(reverse=True, label_smoothing=0.01)(f, batch(1)[0].softmax(1)).item() == pytest.approx(reverse)
    with pytest.raises(ValueError, match="label_smoothing to 1e-3 or more"):
        KL(reverse=True)


@pytest.mark.parametrize(("f", "expected"), [(1.0, 0.0), (0.0, 1.0), (-2.0, 3.0)])
def test_D12a_D12b_values(f, expected):
    assert Hinge()(torch.tensor([f]), torch.tensor([1])).item() == expected
    assert Hinge(squared=True)(torch.tensor([f]), torch.tensor([1])).item() == expected**2


def test_D12c_equals_scikit_learn(outputs):
    f, y = outputs
    sign = torch.where(y > 1, 1, -1)
    assert Hinge()(f[:, 0], sign).item() == pytest.approx(hinge_loss(sign, f[:, 0]))
    assert Hinge(multiclass="crammer_singer")(f, y).item() == pytest.approx(hinge_loss(y, f))
    rest = sum(hinge_loss(np.where(y == k, 1, -1), f[:, k]) for k in range(4))
    assert Hinge()(f, y).item() == pytest.approx(rest)
    with pytest.raises(ValueError, match="labels −1 and \\+1"):
        Hinge()(f[:, 0], y)


def test_D13a_zero_logits(outputs):
    assert CrossEntropy()(0 * outputs[0], outputs[1]).item() == pytest.approx(math.log(4))


def test_D13b_a_constant_changes_nothing(outputs):
    assert_close(CrossEntropy()(outputs[0] + 7, outputs[1]), CrossEntropy()(*outputs))


def test_D13c_gradient(outputs):
    f, y = outputs
    assert_close(gradient(CrossEntropy(), f, y), (f.softmax(1) - one_hot(y)) / len(f))


def test_D13d_multilabel_is_binary_cross_entropy():
    f, t = torch.tensor([[0.3], [-1.0]]), torch.tensor([[1.0], [0.0]])
    slow = -(math.log(1 / (1 + math.exp(-0.3))) + math.log(1 - 1 / (1 + math.exp(1.0)))) / 2
    assert CrossEntropy(multilabel=True)(f, t).item() == pytest.approx(slow, rel=1e-6)


def test_D13_with_a_triplet_regulariser(outputs):
    z, y = outputs
    torch.manual_seed(0)
    both = CrossEntropy(4, 4, regularizer=Triplet(), weight=0.3).double()
    plain = CrossEntropy(4, 4).double()
    plain.layer.load_state_dict(both.layer.state_dict())
    assert_close(both(z, y), plain(z, y) + 0.3 * Triplet()(z, y))


def test_a_head_is_whole_or_absent():
    with pytest.raises(ValueError, match="both num_classes and embedding_size"):
        MSE(num_classes=3)
