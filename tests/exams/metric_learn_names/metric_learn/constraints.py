"""metric-learn's `Constraints` over our samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from isometry import Labels, NeighborTriplets, RandomChunklets, RandomPairs


class Constraints:
    def __init__(self, partial_labels: Any):
        self.partial_labels = np.asarray(partial_labels, dtype=int)
        self.labels = Labels.from_codes(self.partial_labels)

    def positive_negative_pairs(
        self, n_constraints: Any, same_length: bool = False, random_state: Any = None, num_constraints: Any = None
    ) -> Any:
        n = len(self.partial_labels)
        drawn = RandomPairs(n_constraints).draw(np.zeros((n, 1)), self.labels, check_random_state(random_state))
        S, D = drawn.similar, drawn.dissimilar
        m = min(len(S.i), len(D.i)) if same_length else None
        return S.i[:m], S.j[:m], D.i[:m], D.j[:m]

    def generate_knntriplets(self, X: Any, k_genuine: int, k_impostor: int) -> Any:
        drawn = NeighborTriplets(k_genuine, misses=k_impostor).draw(np.asarray(X), self.labels, None)
        return np.stack([drawn.a, drawn.p, drawn.n], axis=1)

    def chunks(self, n_chunks: int = 100, chunk_size: int = 2, random_state: Any = None, num_chunks: Any = None) -> Any:
        rng = check_random_state(random_state)
        return RandomChunklets(n_chunks, size=chunk_size).draw(None, self.labels, rng).codes
