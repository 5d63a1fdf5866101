"""LMNN's objective over parts of the rows, each with targets and impostors of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isometry.spectral.impostors import Impostors
from isometry.spectral.large_margin import HingeSums


class ImpostorsOfParts:
    """The sum of the objectives of parts, as one `MarginProblem`: impostors of a row are looked for in its part."""

    def __init__(self, X: np.ndarray, parts: Sequence[Impostors]):
        self.X, self.parts, self.margin = X, parts, parts[0].margin
        self.target_scatter = np.sum([part.target_scatter for part in parts], axis=0)

    def __call__(self, L: np.ndarray, mu: float, tau: float) -> tuple[float, np.ndarray, float]:
        value, gradient, sharp = 0.0, np.zeros(L.shape), 0.0
        for part in self.parts:
            f, g, s = part(L, mu, tau)
            value, gradient, sharp = value + f, gradient + g, sharp + s
        return value, gradient, sharp

    def push_gradient(self, L: np.ndarray, tau: float) -> tuple[np.ndarray, HingeSums]:
        gradients, sums = zip(*(part.push_gradient(L, tau) for part in self.parts), strict=True)
        return np.sum(gradients, axis=0), HingeSums(*map(float, np.sum(sums, axis=0)))

    def value(self, L: np.ndarray, mu: float) -> float:
        return sum(part.value(L, mu) for part in self.parts)

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        raise ValueError("solver='sdp' is for small problems, not for parts of many rows. Use solver='lbfgs'")

    def restart(self, L: np.ndarray) -> None:
        for part in self.parts:
            part.restart(L)

    def refresh(self, L: np.ndarray) -> int:
        return sum(part.refresh(L) for part in self.parts)

    @property
    def cap(self) -> int | None:
        return next((part.cap for part in self.parts if part.cap is not None), None)

    @property
    def list_lifetime(self) -> int:
        return min(part.list_lifetime for part in self.parts)
