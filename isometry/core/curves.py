"""Polynomial curves through the origin: projection of points onto them, arc length, and the gradient of both.

A curve is θ(t) = Σ_k M_k t^k, k = 1..c. Its Gram matrix G = MᵀM and the products m = xᵀM are all that is needed:
|θ'(t)|² = Σ_ab ab G_ab t^{a+b−2}, and the foot point T of x minimises |θ(t)|² − 2 Σ_k m_k t^k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isometry.core.distance import row_blocks

NEWTON_STEPS = 3  # that refine a root found by eigenvalues


@dataclass(frozen=True)
class Curves:
    """p curves in d dimensions, and the map φ_l(x) = A_l(1) A_l(T_l(x)) with the arc length A(t) = ∫₀ᵗ |θ'|."""

    M: np.ndarray  # (p, d, c)
    n_quad: int = 32

    @cached_property
    def powers(self) -> np.ndarray:
        return np.arange(1, self.M.shape[2] + 1)  # (c,)

    @cached_property
    def gram(self) -> np.ndarray:
        return self.M.transpose(0, 2, 1) @ self.M  # (p, c, c)

    @cached_property
    def speed2(self) -> np.ndarray:
        """Coefficients of |θ'(t)|², lowest power first: (p, 2c − 1)."""
        return antidiagonal_sums(self.gram * np.outer(self.powers, self.powers))

    @cached_property
    def quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        nodes, weights = np.polynomial.legendre.leggauss(self.n_quad)
        return (nodes + 1) / 2, weights / 2

    def project(self, X: np.ndarray) -> np.ndarray:
        """T (n, p): the parameter of the nearest point of each curve, the smallest one if there are several."""
        T = np.empty((len(X), len(self.M)))
        for rows in self._blocks(len(X)):
            T[rows] = foot_points(*self._distance(X[rows]))
        return T

    def embed(self, T: np.ndarray) -> np.ndarray:
        """φ (n, p) at the foot points T."""
        A = np.empty_like(T)
        for rows in self._blocks(len(T)):
            A[rows] = self.length(T[rows])
        return A * self.length(np.ones((1, len(self.M))))

    def length(self, T: np.ndarray) -> np.ndarray:
        """A(T) = ∫₀ᵀ |θ'| (n, p), negative where T is."""
        nodes, weights = self.quadrature
        return T * (self._speed(T[..., None] * nodes) @ weights)

    def pullback(self, X: np.ndarray, T: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
        """∂/∂M of Σ cotangent ∘ φ(X) (p, d, c), with foot points T that move as the curves do.

        ∂A/∂M_k = ∫₀ᵀ θ'/|θ'| k t^{k−1} dt + |θ'(T)| ∂T/∂M_k,  ∂T/∂M_k = −(θ'(T) T^k + (θ(T) − x) k T^{k−1})/e,

        where e = |θ'|² + (θ − x)ᵀθ'' is half the second derivative of the distance. Both parts are M times a (c, c)
        matrix of sums over the samples, but for the one with x.
        """
        k, (p, _, c) = self.powers, self.M.shape
        one = np.ones((1, p))
        unit, unit_moments = self.length(one), self._length_moments(one)[0]  # (1, p), (p, 2c − 1)
        moments, nu, gradient = np.zeros((p, 2 * c - 1)), np.zeros((p, 2 * c - 1)), np.zeros_like(self.M)
        for rows in self._blocks(len(X)):
            t, bar = T[rows], cotangent[rows] * unit  # (b, p)
            moments += np.einsum("np,nps->ps", bar, self._length_moments(t))
            moments += np.einsum("np,np->p", cotangent[rows], self.length(t))[:, None] * unit_moments
            s = bar * self._speed(t) * self._inverse_bend(X[rows], t)
            nu += np.einsum("np,nps->ps", s, t[..., None] ** np.arange(1, 2 * c))
            steps = s[..., None] * k * t[..., None] ** (k - 1)  # (b, p, c)
            gradient += np.einsum("nd,npc->pdc", X[rows], steps, optimize=True)
        sums, index = np.add.outer(k, k), np.add.outer(k, k) - 2
        return gradient + self.M @ (np.outer(k, k) * moments[:, index] - sums * nu[:, index])

    def _blocks(self, n: int) -> Iterator[slice]:
        p, _, c = self.M.shape
        return row_blocks(n, 8 * p * max(self.n_quad, (2 * c) ** 2))

    def _speed(self, t: np.ndarray) -> np.ndarray:
        """|θ'(t)| for t (n, p) or (n, p, q)."""
        coefficients = self.speed2 if t.ndim == 2 else self.speed2[:, None]
        return np.sqrt(np.maximum(polynomial(coefficients, t), np.finfo(float).tiny))

    def _length_moments(self, T: np.ndarray) -> np.ndarray:
        """∫₀ᵀ t^s/|θ'(t)| dt for s = 0..2c − 2: (n, p, 2c − 1)."""
        nodes, weights = self.quadrature
        t = T[..., None] * nodes  # (n, p, q)
        rate = T[..., None] * weights / self._speed(t)
        moments = np.empty((*T.shape, 2 * self.M.shape[2] - 1))
        for s in range(moments.shape[-1]):
            moments[..., s] = rate.sum(axis=-1)
            rate *= t
        return moments

    def _distance(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coefficients of |θ(t) − x|² − |x|² and of half its first and second derivatives, each (n, p, ·)."""
        p, d, c = self.M.shape
        products = (X @ self.M.transpose(1, 0, 2).reshape(d, p * c)).reshape(len(X), p, c)
        value = np.zeros((len(X), p, 2 * c + 1))
        value[..., 2:] = antidiagonal_sums(self.gram)
        value[..., 1 : c + 1] -= 2 * products
        slope = value[..., 1:] * np.arange(1, 2 * c + 1) / 2
        return value, slope, slope[..., 1:] * np.arange(1, 2 * c)

    def _inverse_bend(self, X: np.ndarray, T: np.ndarray) -> np.ndarray:
        """1/e at the foot points; 0 near the curve's evolute, where they jump and have no derivative."""
        bend, speed2 = polynomial(self._distance(X)[2], T), polynomial(self.speed2, T)
        regular = bend > 1e-8 * speed2
        return np.where(regular, 1 / np.where(regular, bend, 1), 0)


def foot_points(value: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """The global minimiser of each polynomial: the best root of its slope, polished by Newton's method."""
    roots = np.sort(root_real_parts(slope), axis=-1)  # real parts of complex roots are no minima, and never chosen
    best = np.argmin(polynomial(value[..., None, :], roots), axis=-1)
    T = np.take_along_axis(roots, best[..., None], axis=-1)[..., 0]
    for _ in range(NEWTON_STEPS):
        bend = polynomial(curvature, T)
        trial = T - polynomial(slope, T) / np.where(bend > 0, bend, np.inf)
        T = np.where(polynomial(value, trial) <= polynomial(value, T), trial, T)
    return T


def root_real_parts(coefficients: np.ndarray) -> np.ndarray:
    """Real parts of the roots of polynomials (..., D + 1), lowest power first: eigenvalues of companion matrices."""
    D = coefficients.shape[-1] - 1
    lead = coefficients[..., -1:]
    floor = np.maximum(1e-14 * np.abs(coefficients).max(axis=-1, keepdims=True), 1e-300)
    monic = coefficients[..., :-1] / np.where(
        np.abs(lead) < floor, floor, lead
    )  # where the leading coefficient is 0, one root is very large
    if D == 1:
        return -monic
    C = np.zeros((*monic.shape, D))
    C[..., 0, :] = -monic[..., ::-1]
    C[..., np.arange(1, D), np.arange(D - 1)] = 1
    return np.linalg.eigvals(C).real


def polynomial(coefficients: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Σ_s coefficients[..., s] t^s by Horner's rule."""
    value = np.broadcast_to(coefficients[..., -1], np.broadcast_shapes(coefficients.shape[:-1], t.shape))
    for s in range(coefficients.shape[-1] - 2, -1, -1):
        value = value * t + coefficients[..., s]
    return value


def antidiagonal_sums(A: np.ndarray) -> np.ndarray:
    """Σ_{a+b=s} A_ab for s = 0..2c − 2 of matrices (p, c, c): (p, 2c − 1)."""
    c = A.shape[-1]
    flipped = A[:, ::-1]
    return np.stack([np.trace(flipped, offset=s - c + 1, axis1=1, axis2=2) for s in range(2 * c - 1)], axis=-1)
