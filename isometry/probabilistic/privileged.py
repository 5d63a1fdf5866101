"""Metric learning with privileged information."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import factor
from isometry.core.probability import pair_logistic
from isometry.core.solve import Solution
from isometry.core.start import mean_sqdist
from isometry.core.threshold import ThresholdObjective, minimize_threshold
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Sampler, SignedEdges, signed_edges
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs


@parameters
class PrivilegedML(SearchedMetric):
    """Metric learning with privileged information: features known in training only give each pair its threshold.

    min_{W₁, W₂ ⪰ 0, b ≥ 0} mean over pairs of log(1 + exp(t (d²_{W₁}(x_i, x_j) − d²_{W₂}(z_i, z_j) − b)))
                            + reg tr(W₁) + reg_privileged tr(W₂),  t = +1 similar, −1 dissimilar

    Convex; the global minimum is certified. W₁ is the metric; z is never needed again.

    ``fit(X, y, privileged=Z)`` takes the features Z (n, q) that exist at training only.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map: p < d starts from the leading eigenvectors of the full W₁ and descends on from there;
        None: all features.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    reg : float ≥ 0, default=0.001
        Penalty on tr(W₁); without penalties pairs that can be separated have no finite minimiser.
    reg_privileged : float ≥ 0, default=0.001
        Penalty on tr(W₂).
    fit_bias : bool, default=True
        Whether to learn the constant b ≥ 0 as well; False is the published form, b = 0.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=300
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    bias_ : float
        The constant b.
    privileged_components_ : ndarray or None
        Factor of W₂ on the standardised z; None if there were none.
    threshold_ : float
        Root of the mean threshold over the training pairs, to compare with ``pair_distance``.

    Notes
    -----
    For tables where training samples have features that new ones will not have: a diagnosis made later, a text
    beside a picture. Without such features it is `LDML`, with one threshold for all pairs and its loss of local
    detail.

    An evaluation costs O(n² (d + q)) over all pairs, O(m (d + q)) over m listed ones, and the certificate O(d³ +
    q³).

    The two distances are not made close, as the survey has it: similar pairs are drawn below their privileged distance
    and dissimilar ones pushed above it. Without privileged features the threshold is b alone.

    References
    ----------
    | X. Yang, M. Wang, L. Zhang, D. Tao, "Empirical risk minimization for metric learning using privileged
      information", IJCAI 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import PrivilegedML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = PrivilegedML(max_iter=50).fit(X[::3, :2], y[::3], privileged=X[::3, 2:])
    >>> metric.transform(X[:, :2]).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    reg: NotNegative = 1e-3
    reg_privileged: NotNegative = 1e-3
    fit_bias: bool = True
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 300
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs, privileged: np.ndarray | None = None) -> Solution:
        if privileged is None and not self.fit_bias:
            raise ValueError("fit_bias=False needs privileged features: fit(X, y, privileged=Z)")
        p, frames = check_components(self.n_components, X.shape[1]), [Frame.of(X)]
        if privileged is not None:
            frames.append(Frame.of(StandardScaler().fit_transform(privileged).astype(X.dtype)))
        views = [frame.X for frame in frames]
        signed = signed_edges(side, self.pairs, views[0], check_random_state(self.random_state))
        loss = signed.mean_loss(pair_logistic)
        objective = ThresholdObjective(views, signed.edges, loss, [self.reg, self.reg_privileged])
        b = (0.5 if len(views) > 1 else 1.0) if self.fit_bias else 0.0  # the threshold's parts share the mean distance
        start = [
            np.eye(V.shape[1]) * np.sqrt(share / mean_sqdist(V)) for V, share in zip(views, (1.0, 1 - b), strict=False)
        ]
        bounds = (0.0, None) if self.fit_bias else (0.0, 0.0)
        start.append(np.array([b]))
        solution = minimize_threshold(objective, start, bounds, p, max_iter=self.max_iter, tol=self.tol)
        L, *others, bias = solution.x
        self.bias_ = float(bias.item())
        mean_sqdists = [mean_pair_sqdist(signed, V @ M.T) for V, M in zip(views[1:], others, strict=True)]
        self.threshold_ = float(np.sqrt(self.bias_ + sum(mean_sqdists)))
        self.privileged_components_ = frames[1].lift(factor(others[0].T @ others[0])) if others else None
        self._store(frames[0].lift(factor(L.T @ L)), X.dtype)
        return solution


def mean_pair_sqdist(signed: SignedEdges, Z: np.ndarray) -> float:
    """The mean of |z_i − z_j|² over the pairs."""
    return signed.edges.evaluate(Z, signed.mean_loss(lambda d, t: (d, np.zeros_like(d))))[0]
