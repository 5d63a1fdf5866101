"""Neighbours by label, where some samples have none and features are whole numbers."""

import numpy as np

from isometry import Labels, NeighborPairs, NeighborTriplets


def test_unlabelled_samples_are_in_no_triplet_or_pair():
    X = np.array([[0, 0], [2, 2], [4, 4], [8, 8], [16, 16], [32, 32], [33, 33]])  # whole numbers
    labels = Labels([1, 1, 1, 2, 2, 2, -1], unlabelled=-1)
    drawn = NeighborTriplets(1, misses=2).draw(X, labels, np.random.RandomState(0))
    found = sorted(zip(drawn.a.tolist(), drawn.p.tolist(), drawn.n.tolist(), strict=True))
    assert found == [
        *[(0, 1, 3), (0, 1, 4), (1, 0, 3), (1, 0, 4), (2, 1, 3), (2, 1, 4)],
        *[(3, 4, 1), (3, 4, 2), (4, 3, 1), (4, 3, 2), (5, 4, 1), (5, 4, 2)],
    ]
    pairs = NeighborPairs(2).draw(X, labels, np.random.RandomState(0))
    assert 6 not in np.concatenate([pairs.i, pairs.j])
