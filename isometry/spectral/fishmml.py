"""Fisher–HSIC multi-view metric learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from isometry.core.linalg import fix_signs, top_eigenvectors
from isometry.core.moments import between_scatter, total_scatter
from isometry.core.solve import Solution, alternate
from isometry.core.warn import warn_user
from isometry.mixed import MixedMetric
from isometry.moments import label_moments
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, parameters
from isometry.supervision import Labels


@parameters
class FishMML(MixedMetric):
    """Fisher–HSIC multi-view metric learning: a projection of each view that separates classes and agrees with others.

    max_{U_rᵀU_r = I} Σ_r tr(U_rᵀ(S_b^r + λ₁S_t^r)U_r) + λ₂ Σ_{r<w} HSIC(X^rU_r, X^wU_w)

    with S_b, S_t the between-class and total covariance of a view. For linear kernels (n − 1)² HSIC =
    ``|U_rᵀC_rwU_w|_F²``, C_rw the cross-scatter of two views, so each U_r in turn is a set of leading eigenvectors.
    The output joins the views.

    Parameters
    ----------
    n_components : int, sequence of int, "auto" or None, default="auto"
        Number of directions of each view, one number or one per view; "auto" is max(2, c − 1). A view with no more
        columns than that is only rotated.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    views : sequence or None, default=None
        Sets of columns, each a list of indices, of names (if X has them), or a slice; None: two halves of X. Columns in
        no view are left out.
    lambda1 : float ≥ 0, default=1.0
        Weight λ₁ of the total variance.
    lambda2 : float ≥ 0, default=1.0
        Weight λ₂ of the agreement between views.
    scale_views : bool, default=True
        Whether to bring every view to total variance 1, in learning and in the output; without it the term in λ₂, which
        grows with the fourth power of the units, dominates or vanishes.
    max_iter : int, default=50
        Largest number of sweeps over the views.
    tol : float ≥ 0, default=1e-6
        Relative change of the objective at which the sweeps stop.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labelled samples described in several ways, such as colour, texture and text, each a set of columns. With
    one view it is no more than Fisher's discriminant without its whitening: use `FisherML`. Each view keeps as many
    directions as asked for, whether it tells classes apart or not.

    A sweep costs O(d³) after O(n d²) for the covariances.

    References
    ----------
    | C. Zhang, Y. Liu, Y. Liu, Q. Hu, X. Liu, P. Zhu, "FISH-MML: Fisher-HSIC multi-view metric learning", IJCAI 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import FishMML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = FishMML(1, views=[[0, 1], [2, 3]]).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels,)

    n_components: Count | Sequence[int] | Literal["auto"] | None = "auto"
    _: KW_ONLY
    views: Sequence[Any] | None = None
    lambda1: NotNegative = 1.0
    lambda2: NotNegative = 1.0
    scale_views: bool = True
    max_iter: Iterations = 50
    tol: NotNegative = 1e-6
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        n, d = X.shape
        views = view_columns(self.views, d, getattr(self, "feature_names_in_", None))
        sizes = self._view_sizes([len(v) for v in views], len(side.classes))
        moments = label_moments(X, side)
        (within,) = moments.within(np.ones(len(moments.counts)))
        T, B = total_scatter(moments, within) / n, between_scatter(moments) / n  # (d, d), all views at once
        traces = [np.trace(T[np.ix_(v, v)]) for v in views]
        scales = [1 / np.sqrt(t) if self.scale_views and t > 0 else 1.0 for t in traces]

        def block(M, r, w):
            return scales[r] * scales[w] * M[np.ix_(views[r], views[w])]  # (d_r, d_w)

        every, root = range(len(views)), np.sqrt(self.lambda2) * n / (n - 1)
        own = [block(B + self.lambda1 * T, r, r) for r in every]
        cross = [[root * block(T, r, w) for w in every] for r in every]

        def sweep(U):
            U = list(U)
            for r, A in enumerate(own):
                pull = [cross[r][w] @ U[w] for w in every if w != r]  # (d_r, p_w) each
                U[r] = top_eigenvectors(A + sum(C @ C.T for C in pull), p=sizes[r])[1]
            return U, -fisher_hsic(U, own, cross)

        start = [top_eigenvectors(A, p=p)[1] for A, p in zip(own, sizes, strict=True)]
        solution = alternate(sweep, start, max_iter=self.max_iter, tol=self.tol)
        L, row = np.zeros((sum(sizes), d)), 0
        for a, v, U in zip(scales, views, solution.x, strict=True):
            L[row : row + U.shape[1], v] = a * fix_signs(U.T)
            row += U.shape[1]
        self.view_sizes_, self.view_scales_ = np.array(sizes), np.array(scales)
        self._store(L, X.dtype)
        return solution

    def _view_sizes(self, widths: Sequence[int], n_classes: int) -> list[int]:
        """Directions for each view, at most its width."""
        auto = self.n_components is None or isinstance(self.n_components, str)
        asked = np.asarray(max(2, n_classes - 1) if auto else self.n_components)
        asked = np.broadcast_to(asked, len(widths)) if asked.ndim == 0 else asked
        if len(asked) != len(widths) or min(asked) < 1:
            raise ValueError(
                f"n_components={self.n_components} must be a number ≥ 1, or one for each of the {len(widths)} views"
            )
        turned = [r for r, (p, w) in enumerate(zip(asked, widths, strict=True)) if p >= w > 1]
        if turned:
            warn_user(
                f"views {turned} have no more columns than n_components: they are rotated and nothing is learned there"
            )
        return [min(int(p), w) for p, w in zip(asked, widths, strict=True)]


def fisher_hsic(U: list[np.ndarray], own: list[np.ndarray], cross: list[list[np.ndarray]]) -> float:
    """Σ_r tr(U_rᵀA_rU_r) + Σ_{r<w} |U_rᵀC_rwU_w|_F²."""
    value = sum(np.vdot(V, A @ V) for V, A in zip(U, own, strict=True))
    for r in range(len(U)):
        value += sum(np.sum((U[r].T @ cross[r][w] @ U[w]) ** 2) for w in range(r))
    return float(value)


def view_columns(views: Any, d: int, names: Any = None) -> list[np.ndarray]:
    """Column indices of each view; None: two halves."""
    if views is None:
        return [v for v in np.array_split(np.arange(d), 2) if len(v)]
    position = {} if names is None else {name: k for k, name in enumerate(names)}
    columns = []
    for r, view in enumerate(views):
        view = range(d)[view] if isinstance(view, slice) else view
        unknown = [c for c in view if isinstance(c, str) and c not in position]
        if unknown:
            raise ValueError(f"view {r} names column {unknown[0]!r}, which X does not have")
        index = np.array([position[c] if isinstance(c, str) else c for c in view], dtype=np.intp)
        if len(index) == 0 or index.min() < 0 or index.max() >= d:
            raise ValueError(f"view {r} must hold column indices from 0 to {d - 1}, and at least one; got {list(view)}")
        columns.append(index)
    if not columns:
        raise ValueError("views is empty; give at least one set of columns, or None for two halves")
    return columns
