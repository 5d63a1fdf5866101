"""Layers of geometric mean metric learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from isometry.base import MetricLearner
from isometry.core.spd import shifted_mean_factor
from isometry.core.warn import warn_user
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, NotNegative, Positive, Share, parameters
from isometry.supervision import Labels, Pairs


@parameters
class LayeredGMML(MetricLearner):
    """Layered geometric metric learning: layers are maps of GMML, fitted one after another, with a tanh between them.

    x_l = σ(U_lᵀ x_{l−1}),  U_l = W_l^{ρ/2},  W_l = (S + λI)⁻¹ ♯_t (D + λI),

    with S, D the mean scatters of similar and dissimilar pairs of x_{l−1}; σ(x) = s tanh((x − x̄)/s), and none after the
    last layer. A truncated layer keeps the leading eigenvectors V_r Λ_r^{ρ/2} of W_l.

    Parameters
    ----------
    n_layers : int, default=2
        Number of layers.
    dims : sequence of int or None, default=None
        Width of each layer; None: no layer is truncated.
    t : float in [0, 1], default=0.5
        Position on the geodesic: 0 is the inverse of the similar scatter, 1 the dissimilar scatter.
    reg : float ≥ 0, default=0.001
        Weight λ of the identity, relative to tr(S)/d.
    activation : "tanh" or None, default="tanh"
        "tanh", or None for layers that are linear.
    activation_scale : float > 0, default=3.0
        Scale s of the activation, in standard deviations of the layer's output.
    damping : float > 0 or None, default=None
        Power ρ of the layers; None: 1/n_layers.

    Attributes
    ----------
    weights_ : list of ndarray
        The maps U_1, …, one array (width before, width after) for each layer.
    centers_ : list of ndarray
        The centre x̄ of each layer but the last.
    scales_ : list of ndarray
        The scale s of each layer but the last.

    Notes
    -----
    For labels or pairs, to see whether a map with a bend helps over `GMML`, still in closed form. Layers are fitted
    one after another and never together: for a network that is trained as a whole use `isometry.deep.DeepMetric`.

    A layer costs O(n d² + d³).

    Standardise X first. Without activation and truncation, L layers are the single metric W^{ρL}. The survey's
    rectification of eigenvalues cannot serve as activation: x is a vector, not a symmetric matrix. A second layer has
    done no harm where it was tried, nor much good.

    References
    ----------
    | H. Hajiabadi, R. Godaz, M. Ghasemi, R. Monsefi, "Layered geometric learning", ICAISC 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LayeredGMML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LayeredGMML().fit(X, y)
    >>> len(metric.weights_)
    2
    >>> metric.transform(X).shape
    (150, 4)
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    n_layers: Count = 2
    dims: Sequence[int] | None = None
    t: Share = 0.5
    reg: NotNegative = 1e-3
    activation: Literal["tanh"] | None = "tanh"
    activation_scale: Positive = 3.0
    damping: Positive | None = None

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> None:
        widths = self._check_params(X.shape[1])
        rho = 1 / self.n_layers if self.damping is None else self.damping
        H, weights, centers, scales = X.astype(np.float64), [], [], []
        for layer, width in enumerate(widths, start=1):
            L = shifted_mean_factor(*mean_pair_scatters(H, side), self.t, self.reg)
            _, s, Vt = np.linalg.svd(L)  # W = V diag(s²) Vᵀ
            U = Vt[:width].T * s[:width] ** rho  # (d, width)
            weights.append(U @ Vt if width == len(s) else U)
            H = H @ weights[-1]
            if self.activation is not None and layer < self.n_layers:
                centers.append(H.mean(axis=0))
                scales.append(self.activation_scale * float((H - centers[-1]).std()))
                H = squash(H, centers[-1], scales[-1])
        self.weights_, self.centers_, self.scales_ = weights, centers, scales

    def _check_params(self, d: int) -> list[int]:
        """The widths of the layers."""
        widths = [d] * self.n_layers if self.dims is None else [int(width) for width in self.dims]
        if len(widths) != self.n_layers or not all(1 <= b <= a for a, b in zip([d, *widths], widths, strict=False)):
            raise ValueError(f"dims={self.dims} must name {self.n_layers} widths that never grow, from {d} features on")
        if self.n_layers > 1 and self.activation is None and widths[-1] == d:
            warn_user("without activation and truncation the layers collapse to one: a power of GMML's metric")
        return widths

    def _transform(self, X: np.ndarray) -> np.ndarray:
        H = X.astype(np.float64) @ self.weights_[0]
        for U, center, scale in zip(self.weights_[1:], *self._activations(), strict=True):
            H = (H if center is None else squash(H, center, scale)) @ U
        return H.astype(X.dtype, copy=False)

    def _activations(self) -> tuple[list, list]:
        none = [None] * (len(self.weights_) - 1)
        return (self.centers_, self.scales_) if self.centers_ else (none, none)


def squash(H: np.ndarray, center: np.ndarray, scale: float) -> np.ndarray:
    """s tanh((x − x̄)/s): the identity near the mean, never beyond s."""
    return scale * np.tanh((H - center) / scale) if scale > 0 else H - center
