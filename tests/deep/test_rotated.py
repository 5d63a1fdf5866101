"""A network turned to the principal axes of its embeddings."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import TensorDataset

from isometry.deep import Rotated, principal_axes
from tests.deep.batches import batch, cosines


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5)).double()


@pytest.mark.parametrize("normalize", [False, True])
def test_a_rotation_leaves_distances_and_angles(normalize):
    net, x = network(), batch(0, n=30)[0]
    turned = principal_axes(net, TensorDataset(x), normalize=normalize)
    z, r = net(x), turned(x)
    assert_close(torch.cdist(r, r), torch.cdist(z, z), rtol=1e-9, atol=1e-6)
    assert_close(cosines(r), cosines(z), rtol=1e-9, atol=1e-9)
    assert_close(turned.axes.T @ turned.axes, torch.eye(5).double(), rtol=0, atol=1e-10)
    y = r / r.norm(dim=1, keepdim=True) if normalize else r - r.mean(0)
    spread = y.square().sum(0)
    assert (spread.diff() <= 0).all()
    off = (y.T @ y).fill_diagonal_(0)
    assert off.abs().max() < 1e-10 * spread.max()  # uncorrelated


def test_what_varies_comes_first():
    """Embeddings of a plane in five dimensions: two coordinates are enough."""
    x = batch(0, n=30)[0]
    plane = nn.Linear(4, 5, bias=False).double()
    plane.weight.data = batch(1, n=5, p=2)[0] @ batch(2, n=4, p=4)[0][:2]
    turned = principal_axes(plane, x)
    cut = turned(x)[:, :2]
    assert_close(torch.cdist(cut, cut), torch.cdist(plane(x), plane(x)), rtol=1e-6, atol=1e-6)
    fresh = Rotated(nn.Linear(4, 5, bias=False).double(), torch.zeros(5, 5).double())
    fresh.load_state_dict(turned.state_dict())
    assert_close(fresh(x), turned(x), rtol=1e-12, atol=1e-12)
