"""Symmetric linear algebra, also for singular matrices and for fewer samples than features; all in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg as sla

from isometry.core.warn import warn_user

RANK_TOL = 1e-10  # an eigenvalue below RANK_TOL · largest counts as zero
PANEL = 96  # columns at a time of half a product: enough for BLAS to be as fast as in one piece
ZERO_TOL = 1e-14  # a scatter whose trace is below ZERO_TOL · that of another of the same rows holds rounding errors

TRIDIAGONAL = "stevd" if hasattr(sla.lapack, "dstevd") else "stemr"  # divide and conquer is quicker; from SciPy 1.16 on

NO_SCATTER = "the samples that y says something about are all equal: no distance between them is above 0"


class SingularMatrixWarning(UserWarning):
    """A matrix that should be positive definite was singular, and a ridge was added."""


def symmetrize(A: np.ndarray) -> np.ndarray:
    return (A + A.T) / 2


def symmetric_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """AᵀB, of which is known that it is symmetric: only its lower half is computed."""
    S = np.empty((A.shape[1], B.shape[1]))
    for start in range(0, len(S), PANEL):
        rows = slice(start, start + PANEL)
        lower = A[:, rows].T @ B[:, : rows.stop]
        S[rows, :start], S[:start, rows] = lower[:, :start], lower[:, :start].T
        S[rows, rows] = symmetrize(lower[:, start:])
    return S


def svd(A: np.ndarray, full_matrices: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, Vᵀ of a matrix, or of each of a stack of matrices.

    LAPACK's fast algorithm, divide and conquer, does not converge on a few finite matrices, most of them of low rank:
    these are left to the slower iterations of QR.
    """
    try:
        return np.linalg.svd(A, full_matrices=full_matrices)
    except np.linalg.LinAlgError:
        if A.ndim == 2:
            return sla.svd(A, full_matrices=full_matrices, lapack_driver="gesvd")
        U, s, Vt = zip(*(svd(M, full_matrices) for M in A), strict=True)
        return np.stack(U), np.stack(s), np.stack(Vt)


def sym_fn(A: np.ndarray, fn: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """f(A) = V f(λ) Vᵀ for symmetric A."""
    w, V = sla.eigh(symmetrize(np.asarray(A, dtype=np.float64)))
    return (V * fn(w)) @ V.T


def simplex_project(v: np.ndarray) -> np.ndarray:
    """The nearest point of {x ≥ 0, Σx = 1}."""
    u = np.sort(v)[::-1]
    shift = (np.cumsum(u) - 1) / np.arange(1, len(u) + 1)
    return np.maximum(v - shift[np.flatnonzero(u > shift)[-1]], 0)


def fix_signs(L: np.ndarray) -> np.ndarray:
    """Turn each row so that its entry of largest magnitude is positive: eigenvectors become reproducible."""
    largest = np.take_along_axis(L, np.abs(L).argmax(axis=1)[:, None], axis=1)
    return L * np.where(largest < 0, -1.0, 1.0)


def canonical(L: np.ndarray, n_components: int | None = None, *, tol: float = 0.0) -> np.ndarray:
    """The same metric by rows that are orthogonal, longest first, signs fixed; rows ≤ tol · the longest are dropped."""
    _, s, Vt = svd(L)
    keep = (s > tol * s[0]) | (s[0] == 0) if tol else np.ones(len(s), dtype=bool)
    return fix_signs((s[:, None] * Vt)[keep][:n_components])


def factor(W: np.ndarray, n_components: int | None = None, *, tol: float = 1e-12) -> np.ndarray:
    """L (p, d) with W = LᵀL, largest eigenvalue first, signs fixed; eigenvalues ≤ tol · largest are dropped."""
    w, V = sla.eigh(symmetrize(np.asarray(W, dtype=np.float64)))
    w, V = w[::-1], V[:, ::-1]
    keep = w > tol * max(w[0], 0)
    if n_components is not None:
        keep[n_components:] = False
    if not keep.any():  # W = 0: every pair at distance 0
        return np.zeros((1, len(W)))
    return fix_signs(np.sqrt(w[keep])[:, None] * V[:, keep].T)


def triangular_factor(W: np.ndarray) -> np.ndarray:
    """L (r, d) with W = LᵀL for a W of rank r that is PSD, by Cholesky with pivots: a tenth of what `factor` costs.

    Its rows are neither orthogonal nor in an order that means something: for distances alone.
    """
    U, pivots, rank, _ = sla.lapack.dpstrf(np.asarray(W, dtype=np.float64))
    L = np.zeros((max(rank, 1), len(W)))
    L[:rank, pivots - 1] = np.triu(U[:rank])
    return L


def ridge(C: np.ndarray, reg: float) -> np.ndarray:
    """C + reg · tr(C)/d · I: a ridge that does not depend on the units of the data."""
    d = len(C)
    return C + (reg * np.trace(C) / d) * np.eye(d) if reg else C


def definite(
    C: np.ndarray, reg: float, *, least: float = 1e-4, tol: float = RANK_TOL, beside: np.ndarray | None = None
) -> np.ndarray:
    """C with its ridge; if that is still singular, with a ridge of at least ``least``, and a warning.

    Where C is 0 to rounding ``beside`` a matrix of the same unit, the ridge is a part of that matrix's trace.
    """
    if beside is not None and is_zero(C, beside):
        warn_user(
            "nothing varies within classes, chunklets or similar pairs: their samples coincide. A ridge of "
            f"{least:g} of the mean variance stands in for it; are there duplicates of rows?",
            SingularMatrixWarning,
        )
        return least * np.trace(beside) / len(C) * np.eye(len(C))
    if not is_singular(ridge(C, reg), tol):
        return ridge(C, reg)
    reg = max(reg, least)
    warn_user(
        f"a scatter matrix is singular (too few samples, or features that depend on one another); a relative ridge of "
        f"{reg:g} was added. Set `reg` yourself to choose another, or reduce the features first",
        SingularMatrixWarning,
    )
    return ridge(C, reg)


def extreme_eigenpairs(A: np.ndarray, p: int, *, smallest: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The p largest (or smallest) eigenpairs of symmetric A, in ascending order.

    LAPACK's routine for a part of the spectrum gives up on some matrices with clustered eigenvalues; the one for all of
    it does not.
    """
    first = 0 if smallest else len(A) - p
    try:
        return sla.eigh(A, subset_by_index=[first, first + p - 1])
    except np.linalg.LinAlgError:
        w, V = sla.eigh(A, driver="evd")
        return w[first : first + p], V[:, first : first + p]


def spectrum(A: np.ndarray) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """All eigenvalues of symmetric A, the largest first, and a function that gives the vectors of so many of these.

    A is brought to tridiagonal form in its own memory, of which the upper half is read; what it costs to bring
    eigenvectors back from there depends on how many are wanted.
    """
    n = len(A)
    if n < 3:  # there is nothing to bring to another form
        w, Y = sla.eigh(A, lower=False)
        return w[::-1], lambda k: Y[:, ::-1][:, :k]
    lwork = int(sla.lapack.dsytrd_lwork(n, lower=1)[0])
    # A.T is in LAPACK's order
    reflectors, diagonal, beside, tau, _ = sla.lapack.dsytrd(A.T, lower=1, lwork=lwork, overwrite_a=True)
    try:
        w, Y = sla.eigh_tridiagonal(diagonal, beside, lapack_driver=TRIDIAGONAL)
    except np.linalg.LinAlgError:  # gives up on some matrices with clustered eigenvalues, unlike this slow one
        w, Y = sla.eigh_tridiagonal(diagonal, beside, lapack_driver="stev")

    def vectors(k: int) -> np.ndarray:
        """Reflections leave the first row alone: what they work on begins one number later, without a copy.

        There, the last row is the first one of the next column, on which the reflectors, 0 in the same place, have no
        effect.
        """
        memory = np.zeros(n * k + 1)
        V, below = (memory[i : i + n * k].reshape(n, k, order="F") for i in (0, 1))
        V[:] = Y[:, ::-1][:, :k]
        reflectors[0, 1:] = 0  # of the other half, which holds nothing
        H = reflectors.ravel(order="F")[1 : n * (n - 1) + 1].reshape(n, n - 1, order="F")
        lwork = int(sla.lapack.dormqr("L", "N", H, tau, below, -1)[1][0])
        done = sla.lapack.dormqr("L", "N", H, tau, below, lwork, overwrite_c=True)[0]
        assert np.shares_memory(done, memory)
        return V

    return w[::-1], vectors


def leading_eigenpairs(A: np.ndarray, B: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The p leading eigenpairs of A v = λ B v for symmetric A and positive definite B, best first, with VᵀBV = I.

    All, if there are no more than p; few of them cost two thirds of what all do.
    """
    p = min(p, len(A))
    R = sla.cholesky(B, lower=True)  # B = RRᵀ
    C = sla.lapack.dsygst(A, R, lower=1)[0]  # R⁻¹ A R⁻ᵀ in one half, the one that is read
    w, vectors = spectrum(C.T)
    return w[:p], sla.solve_triangular(R, vectors(p), lower=True, trans=1)


def is_zero(C: np.ndarray, beside: np.ndarray) -> bool:
    """Whether the scatter C is 0, to rounding, beside another scatter of the same rows; an error if both are."""
    if max(np.trace(C), np.trace(beside)) <= 0:
        raise ValueError(NO_SCATTER)
    return bool(np.trace(C) <= ZERO_TOL * np.trace(beside))


def clearly_definite(C: np.ndarray, tol: float = RANK_TOL) -> bool:
    """Whether a Cholesky factorisation proves that all eigenvalues of the symmetric C are above tol · the largest.

    It costs a tenth of what the eigenvalues do. False proves nothing.
    """
    least = max(tol, 10 * len(C) * np.finfo(np.float64).eps) * np.trace(C)  # the largest is at most the trace
    try:
        sla.cholesky(C - least * np.eye(len(C)), overwrite_a=True)
    except np.linalg.LinAlgError:
        return False
    return True


def is_singular(C: np.ndarray, tol: float = RANK_TOL) -> bool:
    """Whether the symmetric matrix C has an eigenvalue ≤ tol · the largest."""
    if clearly_definite(C, tol):
        return False
    w = sla.eigvalsh(C)
    return bool(w[0] <= tol * max(w[-1], 0))


def column_range(A: np.ndarray, tol: float = RANK_TOL) -> np.ndarray:
    """Orthonormal basis (d, r) of the range of a symmetric PSD matrix, largest eigenvalue first."""
    w, V = sla.eigh(symmetrize(A))
    return V[:, w > tol * max(w[-1], 0)][:, ::-1]


def scatter_range(T: np.ndarray) -> np.ndarray:
    """``column_range`` of a scatter, where its samples differ; an error if they do not."""
    Q = column_range(T)
    if Q.shape[1] == 0:
        raise ValueError(NO_SCATTER)
    return Q


def joint_range(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Orthonormal basis (d, r) of range(A + B) for scatters of the same rows, each weighed by its trace.

    One that is 0 to rounding beside the other has no range: it would be that of the rounding errors.
    """
    traces = np.trace(A), np.trace(B)
    parts = [M / t for M, t in zip((A, B), traces, strict=True) if t > ZERO_TOL * max(traces)]
    return scatter_range(sum(parts, np.zeros_like(A)))


def row_range(X: np.ndarray) -> np.ndarray:
    """Orthonormal basis (d, r) of the row space of X − mean: where all differences of samples live."""
    Xc = np.asarray(X, dtype=np.float64)
    Xc = Xc - Xc[:1]  # first, because rounding errors in the mean of large numbers would remain in all rows
    Xc -= Xc.mean(axis=0)
    _, s, Vt = svd(Xc)
    # a singular value counts as 0 if it is within the rounding errors of the input type, not of float64
    eps = np.finfo(X.dtype).eps if np.issubdtype(X.dtype, np.floating) else np.finfo(np.float64).eps
    return Vt[s > eps * max(X.shape) * (s[0] if len(s) else 0)].T


def top_eigenvectors(
    A: np.ndarray,
    B: np.ndarray | None = None,
    p: int | None = None,
    *,
    reg: float = 0.0,
    smallest: bool = False,
    of_features: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The p leading (or smallest) eigenpairs of A v = λ B v, best first, with Vᵀ(B + ridge)V = I.

    With B, the problem is solved inside range(A + B), where directions without any variance do not exist. If B is
    singular even there, the ridge is raised to at least 1e-4 so that the quotient stays finite, with a warning.
    ``of_features``: rows of A and B are features, which may have units of their own: if some would count as zero
    beside others for that reason alone, all are divided by their deviations first, which changes the ridge and no
    eigenvalue.
    """
    A = symmetrize(np.asarray(A, dtype=np.float64))
    if B is None:
        w, V = sla.eigh(A)
        order = slice(None) if smallest else slice(None, None, -1)
        return w[order][:p], V[:, order][:, :p]
    B = symmetrize(np.asarray(B, dtype=np.float64))
    if is_zero(B, beside=A):
        B = np.zeros_like(B)
    Q = joint_range(A, B)
    if of_features and Q.shape[1] < len(A):
        unit = np.sqrt(A.diagonal() / np.trace(A) + B.diagonal() / max(np.trace(B), 1e-300))
        unit = 1 / np.where(unit > 0, unit, 1.0)  # (d,)
        A1, B1 = (unit[:, None] * M * unit for M in (A, B))
        if joint_range(A1, B1).shape[1] > Q.shape[1]:
            w, V = top_eigenvectors(A1, B1, p, reg=reg, smallest=smallest)
            return w, unit[:, None] * V
    Ar, Br = Q.T @ A @ Q, symmetrize(Q.T @ B @ Q)
    w, V = sla.eigh(symmetrize(Ar), definite(Br, reg, beside=Ar))
    order = slice(None) if smallest else slice(None, None, -1)
    return w[order][:p], (Q @ V[:, order])[:, :p]
