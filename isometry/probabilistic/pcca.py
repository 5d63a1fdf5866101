"""Pairwise constrained component analysis."""

from __future__ import annotations

from isometry.base import ObjectiveMetric
from isometry.core.objective import Objective, ridge_penalty
from isometry.core.probability import softplus
from isometry.core.start import mean_sqdist
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.sampling import Sampler, signed_edges
from isometry.supervision import Labels, Pairs


@parameters
class PCCA(ObjectiveMetric):
    """Pairwise constrained component analysis: a low-dimensional map from a sparse list of pairs, by a logistic loss.

    min_L mean over pairs of (1/β) log(1 + exp(β t (|L(x_i − x_j)|² − b))) + reg |L|²,  t = +1 similar, −1 dissimilar

    Parameters
    ----------
    n_components : p (default: min(d, 40))
    beta : β, sharpness of the loss
    margin : b, the squared distance that separates similar from dissimilar. Only βb shapes the metric: margin b and
        sharpness β give √b times the map of margin 1 and sharpness βb
    reg : penalty on |L|²
    pairs : which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`
    batch_size : mini-batches, for n beyond 10⁵: so many pairs at a time; of labels, random pairs.
        Adam takes the place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it;
        ``history_`` has the means of the batches. None: no batches
    max_iter, tol, random_state, verbose : as everywhere

    References
    ----------
    A. Mignon, F. Jurie, "PCCA: a new approach for distance learning from sparse pairwise constraints", CVPR 2012.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    beta: float = 3.0
    margin: float = 1.0
    reg: float = 0.0
    pairs: str | Sampler = "auto"
    batch_size: int | None = None
    max_iter: int = 200
    tol: float = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _start_size(self, d, side):
        return self._check_n_components(d) or min(d, 40)

    def _objective(self, X, side, rng):
        if self.beta <= 0 or self.margin <= 0:
            raise ValueError(f"beta={self.beta} and margin={self.margin} must be positive")
        signed = signed_edges(side, self.pairs, X, rng, listed=self.batch_size is not None)
        beta, b = self.beta, self.margin

        def link(d, t):
            value, slope = softplus(beta * t * (d - b))
            return value / beta, t * slope

        average = 1 / (signed.n_similar + signed.n_dissimilar)
        loss = signed.loss(link, similar=average, dissimilar=average)
        self.threshold_ = float(b) ** 0.5
        return Objective(X, signed.edges, loss, ridge_penalty(self.reg))

    def _start_sqdist(self, Z, rng):
        return mean_sqdist(Z) / self.margin  # start with mean squared distance b
