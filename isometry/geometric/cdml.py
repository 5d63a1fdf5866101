"""Curvilinear distance metric learning."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.utils import check_random_state

from isometry.base import MetricLearner
from isometry.core.curves import Curves
from isometry.core.linalg import factor
from isometry.core.solve import Progress, adam
from isometry.geometric.gmml import GMML
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.sampling import AllPairs, Sampler, SignedEdges, choose_pairs, signed_edges
from isometry.supervision import Labels, Pairs

NOISE = 1e-2  # size of the higher coefficients at the start
QUANTILE_ROWS = 600  # samples whose distances set the default margins


@parameters
class CDML(MetricLearner):
    """Distances along learned curves: each point is projected to p polynomial curves, and arc lengths are compared.

    d²(x, x') = Σ_l a_l (∫_{T_l(x)}^{T_l(x')} |θ_l'|)²,  θ_l(t) = Σ_{k=1}^c M_lk t^k,  T_l(x) = argmin_t |θ_l(t) − x|,

    with a_l = (∫₀¹ |θ_l'|)². This is the Euclidean distance of φ_l(x) = √a_l ∫₀^{T_l(x)} |θ_l'|. The curves minimise

    mean over pairs of [d² − u]₊² if similar, [v − d²]₊² if dissimilar,  + reg Σ_l |M_l|².

    Parameters
    ----------
    n_components : p curves (default: min(d, 10))
    degree : c; 1 gives a Mahalanobis distance
    reg : penalty on the coefficients
    margins : (u, v) on squared distances; None: their 25 % and 75 % quantiles at the start
    pairs : which pairs to take if given labels: "auto" (all), `AllPairs()` or `RandomPairs(n)`
    n_quad : nodes of the Gauss–Legendre rule for arc lengths
    n_epochs, learning_rate : length and step of Adam; more epochs fit the training pairs better, not always new ones
    batch_size : samples a step; all pairs among them if given labels

    Attributes
    ----------
    curves_ : M (p, d, c), in units of ``scale_`` about ``mean_``
    margins_ : (u, v)

    Notes
    -----
    The curves start as the lines of GMML and pass through the mean of the training samples. Gradients are exact,
    including the motion of T and of a_l. The objective jumps where a sample changes over to another place of a curve,
    which stops a line search but not Adam.

    References
    ----------
    S. Chen, L. Luo, J. Yang, C. Gong, J. Li, H. Huang, "Curvilinear distance metric learning", NeurIPS 2019.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    degree: int = 3
    reg: float = 1e-3
    margins: tuple[float, float] | None = None
    pairs: str | Sampler = "auto"
    n_quad: int = 32
    n_epochs: int = 50
    batch_size: int = 256
    learning_rate: float = 1e-2
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X, side):
        self._check_params(X.shape[1])
        rng = check_random_state(self.random_state)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        self.scale_ = float(np.sqrt(X.var(axis=0, dtype=np.float64).mean())) or 1.0
        Y = self._standardize(X)
        M0 = self._start(Y, side, rng)
        self.margins_ = self._find_margins(Y, M0, rng)
        if isinstance(side, Labels) and self.pairs != "auto":
            side = choose_pairs(side, self.pairs, Y, rng)
        epochs = (self._batches(Y, side, rng) for _ in range(self.n_epochs))
        with Progress(self.verbose, "CDML", self.n_epochs) as progress:
            solution = adam(self._cost, M0, epochs, step=self.learning_rate, progress=progress)
        self.curves_ = solution.x
        self._record(solution)

    def _check_params(self, d: int) -> None:
        if self.n_components is not None and not 1 <= self.n_components <= d:
            raise ValueError(f"n_components={self.n_components} must be between 1 and the number of features, {d}")
        if self.degree < 1 or self.reg < 0:
            raise ValueError(f"degree={self.degree} must be at least 1 and reg={self.reg} not negative")
        if self.n_epochs < 0 or self.batch_size < 2:
            raise ValueError(
                f"n_epochs={self.n_epochs} must not be negative and batch_size={self.batch_size} at least 2"
            )
        if self.margins is not None and not 0 <= self.margins[0] < self.margins[1]:
            raise ValueError(f"margins={self.margins} must satisfy 0 ≤ u < v")

    def _start(self, Y: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState) -> np.ndarray:
        """Lines along the leading rows of GMML's map, with a little noise in the higher powers."""
        L = factor(GMML().fit(Y, side).mahalanobis_, min(Y.shape[1], self.n_components or 10))
        M = NOISE * rng.standard_normal((len(L), Y.shape[1], self.degree))
        M[..., 0] = L
        return M

    def _find_margins(self, Y: np.ndarray, M: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        if self.margins is not None:
            return np.array(self.margins, dtype=np.float64)
        rows = rng.permutation(len(Y))[:QUANTILE_ROWS]
        return np.quantile(pdist(self._embed(M, Y[rows]), "sqeuclidean"), [0.25, 0.75])

    def _batches(
        self, Y: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState
    ) -> Iterator[tuple[np.ndarray, SignedEdges]]:
        """One epoch: samples with all pairs among them if given labels, else pairs with their samples."""
        if len(Y) <= self.batch_size:
            yield Y, signed_edges(side, AllPairs(), Y, rng)
        elif isinstance(side, Labels):
            for rows in np.array_split(rng.permutation(len(Y)), -(-len(Y) // self.batch_size)):
                yield Y[rows], signed_edges(side[rows], AllPairs(), Y[rows], rng)
        else:
            n_pairs = len(side.i)
            for chunk in np.array_split(rng.permutation(n_pairs), -(-n_pairs // (self.batch_size // 2))):
                rows, place = np.unique([side.i[chunk], side.j[chunk]], return_inverse=True)
                i, j = place.reshape(2, -1)
                part = Pairs(i, j, side.similarity[chunk], n=len(rows), weight=side.weight[chunk])
                yield Y[rows], signed_edges(part, AllPairs(), Y[rows], rng)

    def _cost(self, M: np.ndarray, Y: np.ndarray, signed: SignedEdges) -> tuple[float, np.ndarray]:
        """The objective over one batch, and its gradient in M."""
        u, v = self.margins_

        def link(d, t):
            h = np.maximum(np.where(t > 0, d - u, v - d), 0)
            return h**2, 2 * t * h

        average = 1 / max(signed.n_similar + signed.n_dissimilar, 1e-300)
        curves = Curves(M, self.n_quad)
        T = curves.project(Y)
        loss = signed.loss(link, similar=average, dissimilar=average)
        value, pull = signed.edges.evaluate(curves.embed(T), loss)
        gradient = curves.pullback(Y, T, 2 * pull)
        return value + self.reg * float(np.vdot(M, M)), gradient + 2 * self.reg * M

    def _standardize(self, X: np.ndarray) -> np.ndarray:
        return (X.astype(np.float64) - self.mean_) / self.scale_

    def _embed(self, M: np.ndarray, Y: np.ndarray) -> np.ndarray:
        curves = Curves(M, self.n_quad)
        return curves.embed(curves.project(Y))

    def _transform(self, X):
        return self._embed(self.curves_, self._standardize(X)).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.curves_)
