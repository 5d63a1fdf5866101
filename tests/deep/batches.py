"""Small batches that the tests of the losses share, and loops over them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

A = torch.tensor([[0, 0], [1, 0], [0, 2], [3, 0]], dtype=torch.float64)
Y = torch.tensor([0, 0, 1, 1])


def circle(*degrees: float) -> torch.Tensor:
    """Points of the unit circle."""
    return torch.tensor([[math.cos(math.radians(t)), math.sin(math.radians(t))] for t in degrees], dtype=torch.float64)


C = circle(0, 60, 90, 180)
PLAIN = {"distance": "euclidean", "normalize": False}


def batch(seed: int = 0, n: int = 12, p: int = 4, c: int = 4, ties: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Random embeddings (n, p) and labels; with ties, coordinates are small integers and many distances are equal."""
    rng = np.random.default_rng(seed)
    z = rng.integers(-1, 2, (n, p)).astype(float) if ties else rng.standard_normal((n, p))
    y = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    return torch.tensor(z), torch.tensor(y)


def triples(y: torch.Tensor) -> list[tuple[int, int, int]]:
    """All (anchor, positive, negative), by loops."""
    y, n = y.tolist(), range(len(y))
    return [(a, p, k) for a in n for p in n for k in n if a != p and y[a] == y[p] and y[k] != y[a]]


def ordered_pairs(y: torch.Tensor) -> list[tuple[int, int, bool]]:
    """All (i, j, same class) with i ≠ j."""
    y = y.tolist()
    return [(i, j, y[i] == y[j]) for i in range(len(y)) for j in range(len(y)) if i != j]


def euc(z: torch.Tensor, i: int, j: int) -> torch.Tensor:
    return (z[i] - z[j]).square().sum().sqrt() if not torch.equal(z[i], z[j]) else z.new_zeros(())


def sq(z: torch.Tensor, i: int, j: int) -> torch.Tensor:
    return (z[i] - z[j]).square().sum()


def mean(values) -> float:
    values = [float(v) for v in values]
    return sum(values) / len(values)


def gradient(loss, z: torch.Tensor, *args) -> torch.Tensor:
    """∂loss/∂z."""
    z = z.clone().requires_grad_()
    loss(z, *args).backward()
    return z.grad


def close(value: torch.Tensor, expected: float, tolerance: float = 1e-6) -> None:
    assert float(value.detach()) == pytest.approx(expected, abs=tolerance)


def cosines(z: torch.Tensor) -> torch.Tensor:
    u = z / z.norm(dim=1, keepdim=True)
    return u @ u.T


def of_anchor(y: torch.Tensor, i: int) -> tuple[list[int], list[int]]:
    """Positives and negatives of anchor i, by loop."""
    return [j for j in range(len(y)) if j != i and y[j] == y[i]], [j for j in range(len(y)) if y[j] != y[i]]


def same(ours, slow, z: torch.Tensor, *args) -> None:
    """Value and gradient of a loss are those of its loop."""
    assert_close(ours(z, *args), slow(z, *args), rtol=1e-10, atol=1e-12)
    assert_close(gradient(ours, z, *args), gradient(slow, z, *args), rtol=1e-9, atol=1e-11)
