"""LMNN's objective over parts of the rows, each with targets and impostors of its own."""

from __future__ import annotations

import sys

import numpy as np

from isometry.core.parts import Parts
from isometry.spectral.impostors import Impostors
from isometry.spectral.large_margin import HingeSums

Part = tuple[float, Impostors]  # a sum has no shares: theirs is not looked at


class ImpostorsOfParts:
    """The sum of the objectives of parts, as one `MarginProblem`: impostors of a row are looked for in its part."""

    cap = None  # all impostors of a part count
    max_impostors: int | None = None
    list_lifetime = sys.maxsize

    def __init__(self, X: np.ndarray, parts: Parts, margin: float):
        self.X, self.parts, self.margin = X, parts, margin
        (self.target_scatter,) = parts.total(_target_scatter)

    def __call__(self, L: np.ndarray, mu: float, tau: float) -> tuple[float, np.ndarray, float]:
        value, gradient, sharp = self.parts.total(_evaluated, L, mu, tau)
        return value, gradient, sharp

    def push_gradient(self, L: np.ndarray, tau: float) -> tuple[np.ndarray, HingeSums]:
        gradient, sums = self.parts.total(_push_gradient, L, tau)
        return gradient, HingeSums(*map(float, sums))

    def value(self, L: np.ndarray, mu: float) -> float:
        return float(self.parts.total(_value, L, mu)[0])

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        raise ValueError("solver='sdp' is for small problems, not for parts of many rows. Use solver='lbfgs'")

    def restart(self, L: np.ndarray) -> None:
        """Nothing to do: each part makes a list where it lacks one."""

    def refresh(self, L: np.ndarray) -> int:
        return 0


def _target_scatter(part: Part) -> tuple[np.ndarray]:
    return (part[1].target_scatter,)


def _evaluated(part: Part, L: np.ndarray, mu: float, tau: float) -> tuple[float, np.ndarray, float]:
    return part[1](L, mu, tau)


def _push_gradient(part: Part, L: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    gradient, sums = part[1].push_gradient(L, tau)
    return gradient, np.array(sums)


def _value(part: Part, L: np.ndarray, mu: float) -> tuple[float]:
    return (part[1].value(L, mu),)
