"""Metric learning with privileged information."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data

from isometry.base import LinearMetric
from isometry.core.linalg import factor, row_range
from isometry.core.logistic import ThresholdObjective, minimize_threshold
from isometry.core.probability import pair_logistic
from isometry.core.solve import Progress
from isometry.core.start import mean_sqdist
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.sampling import Sampler, SignedEdges, signed_edges
from isometry.supervision import Labels, Pairs


@parameters
class PrivilegedML(LinearMetric):
    """Metric learning with privileged information: features known in training only give each pair its threshold.

    min_{W₁, W₂ ⪰ 0, b ≥ 0} mean over pairs of log(1 + exp(t (d²_{W₁}(x_i, x_j) − d²_{W₂}(z_i, z_j) − b)))
                            + reg tr(W₁) + reg_privileged tr(W₂),  t = +1 similar, −1 dissimilar

    Convex; the global minimum is certified. W₁ is the metric; z is never needed again.

    Parameters
    ----------
    n_components : p < d starts from the leading eigenvectors of the full W₁ and descends on from there
    reg, reg_privileged : penalties on the traces; without them pairs that can be separated have no finite minimiser
    fit_bias : learn the constant b ≥ 0 as well; False is the published form, b = 0
    pairs : which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`
    max_iter, tol, random_state, verbose : as everywhere

    Attributes
    ----------
    bias_ : b;  privileged_components_ : factor of W₂ on the standardised z, None if there were none
    threshold_ : root of the mean threshold over the training pairs, to compare with ``pair_distance``

    Notes
    -----
    The two distances are not made close, as the survey has it: similar pairs are drawn below their privileged distance
    and dissimilar ones pushed above it. Without privileged features the threshold is b alone.

    References
    ----------
    X. Yang, M. Wang, L. Zhang, D. Tao, "Empirical risk minimization for metric learning using privileged information",
    IJCAI 2016.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    reg: float = 1e-3
    reg_privileged: float = 1e-3
    fit_bias: bool = True
    pairs: str | Sampler = "auto"
    max_iter: int = 300
    tol: float = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def fit(self, X: Any, y: Any = None, *, privileged: Any = None) -> PrivilegedML:
        """Learn the metric of X; ``privileged`` (n, q) holds the features that exist at training only."""
        X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        side, views = self._supervise(y, len(X)), [X]
        if privileged is not None:
            Z = check_array(privileged, dtype=np.float64, input_name="privileged")
            if len(Z) != len(X):
                raise ValueError(f"X has {len(X)} samples but privileged has {len(Z)}: give one row for each sample")
            views.append(StandardScaler().fit_transform(Z).astype(X.dtype))
        elif not self.fit_bias:
            raise ValueError("fit_bias=False needs privileged features: fit(X, y, privileged=Z)")
        if isinstance(side, Labels) and not side.labelled.all():
            views, side = [V[side.labelled] for V in views], side[side.labelled]
        self._fit(views, side)
        return self

    def _fit(self, views, side):
        if self.reg < 0 or self.reg_privileged < 0:
            raise ValueError(f"reg={self.reg} and reg_privileged={self.reg_privileged} must not be negative")
        dtype, p = views[0].dtype, self._check_n_components(views[0].shape[1])
        spans = [row_range(V) if V.shape[1] > len(V) else np.eye(V.shape[1]) for V in views]
        views = [(V - V.mean(axis=0)) @ Q.astype(dtype) for V, Q in zip(views, spans, strict=True)]
        signed = signed_edges(side, self.pairs, views[0], check_random_state(self.random_state))
        average = 1 / (signed.n_similar + signed.n_dissimilar)
        loss = signed.loss(pair_logistic, similar=average, dissimilar=average)
        objective = ThresholdObjective(views, signed.edges, loss, [self.reg, self.reg_privileged])
        b = (0.5 if len(views) > 1 else 1.0) if self.fit_bias else 0.0  # the threshold's parts share the mean distance
        factors = [
            np.eye(V.shape[1]) * np.sqrt(share / mean_sqdist(V))
            for V, share in zip(views, (1.0, 1.0 - b), strict=False)
        ]
        bounds = (0.0, None) if self.fit_bias else (0.0, 0.0)
        with Progress(self.verbose, "PrivilegedML", self.max_iter) as progress:
            options = {"bounds": bounds, "max_iter": self.max_iter, "tol": self.tol, "progress": progress}
            solution = minimize_threshold(objective, factors, b, **options)
            (L, *rest), b = solution.x
            if p is not None and p < len(L):
                solution = minimize_threshold(objective, [factor(L.T @ L, p), *rest], b, **options)
                (L, *rest), b = solution.x
        threshold = b + sum(mean_pair_sqdist(signed, V @ M.T) for V, M in zip(views[1:], rest, strict=True))
        self.bias_, self.threshold_ = b, float(np.sqrt(threshold))
        self.privileged_components_ = factor(rest[0].T @ rest[0]) @ spans[1].T if rest else None
        self._set_components(factor(L.T @ L) @ spans[0].T, dtype)
        self._record(solution)


def mean_pair_sqdist(signed: SignedEdges, Z: np.ndarray) -> float:
    """The mean of |z_i − z_j|² over the pairs."""
    average = 1 / (signed.n_similar + signed.n_dissimilar)
    loss = signed.loss(lambda d, t: (d, np.zeros_like(d)), similar=average, dissimilar=average)
    return signed.edges.evaluate(Z, loss)[0]
