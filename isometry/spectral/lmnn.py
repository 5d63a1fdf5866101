"""Large margin nearest neighbours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame, resolved
from isometry.core.graph import target_neighbors
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective
from isometry.core.parts import current_source, in_parts, parts_of, shared_parts
from isometry.core.solve import Solution
from isometry.core.solvers import Batches
from isometry.core.start import initial_map
from isometry.parameters import (
    KW_ONLY,
    Count,
    Iterations,
    NotNegative,
    Positive,
    Seed,
    Share,
    check_choices,
    parameters,
)
from isometry.searched import SearchedMetric
from isometry.spectral.energy import energies
from isometry.spectral.impostor_batches import lmnn_by_anchors
from isometry.spectral.impostor_parts import ImpostorsOfParts
from isometry.spectral.impostors import Impostors, ListedTriplets, best_multiple
from isometry.spectral.large_margin import MarginProblem, descend, semidefinite_programme
from isometry.spectral.mining import MINERS, mine
from isometry.supervision import Labels, Triplets

ROUNDING = 1e3  # so many units in the last digit may be rounding errors of the samples and of what made them
LEFT_OUT = (
    "some features nearly determine one another, and what they differ by, {:.0e} of the largest deviation, was left "
    "out; take differences of such features, or leave some of them out"
)


@parameters
class LMNN(SearchedMetric):
    """Large margin nearest neighbours: target neighbours near, differently labelled impostors a margin away.

    min_W (1 − μ) Σ_{i, j→i} d²(i, j) + μ Σ_{i, j→i} Σ_{l: y_l ≠ y_i} [margin + d²(i, j) − d²(i, l)]₊,  d² = d_W²

    where j → i are the k nearest samples of the same class in the input space. Given `Triplets`, or triplets found by a
    miner, they take the place of (i, j, l). Convex in W = LᵀL when p = d.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: all features.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    n_neighbors : int, default=3
        Number k of target neighbours; a smaller class uses all its members.
    mu : float in [0, 1], default=0.5
        Weight μ of the push term.
    margin : float > 0, default=1.0
        Margin, in the unit of squared distances: standardise the features.
    init : {"pca", "identity", "lda", "random"} or ndarray, default="pca"
        Where the search starts, of a named start the multiple with the least loss; an array is a map (p, d).
    mining : str, default="batch_all"
        Positives × negatives of every anchor: "batch_all", the k nearest × all, which is the problem above; fewer
        triplets are a smaller problem: "semi_hard", "batch_hard", "HPEN", "EPEN", "EPHN" or "negative_sampling", k × k
        each, see `isometry.spectral.mining`.
    n_mining : int, default=1
        How often triplets are mined: once in the input space, then in the metric found so far.
    max_impostors : int or None, default=None
        Largest number of impostors of an anchor, nearest first ("batch_all" only); None: all. ``max_impostors_`` is
        this number if it left any out, else None.
    batch_size : int, "auto" or None, default="auto"
        "auto": above some 20,000 rows (`core.parts.work` says when) these are dealt to random parts of some 5,000, and
        targets and impostors of a row come from its part: O(n), and nothing to tune; ``n_parts_`` says into how many.
        None: never. A number: so many anchors at a time, with all their impostors: O(batch · n). Adam takes the place
        of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it; ``history_`` has the
        means of the batches, ``objective_`` their last mean.
    solver : {"lbfgs", "sdp"}, default="lbfgs"
        "lbfgs" on L, or "sdp": the convex programme by cvxpy, for some 60 samples at most.
    max_iter : int, default=1000
        Largest number of iterations.
    tol : float ≥ 0, default=0.001
        With p = d and all impostors, how far above the minimum the objective may be, relatively: the search ends when
        duality proves that it is not. Otherwise it ends when a further run would lower it by less than tol/10.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    objective_ : float
        Value of the objective at the solution, over all impostors.
    gap_ : float or None
        How far it is above the minimum at most, relatively, as proven; None where the problem is not convex.
    history_ : ndarray
        The objective after each iteration; with ``max_impostors``, over the impostors that were listed.

    Notes
    -----
    For labels and k-nearest neighbours: the objective is about near samples of other classes only, so that classes
    may have any shape. It searches, where a closed form such as `DCA` or
    `FisherML` needs one pass over the rows: try those first.

    What features differ by that otherwise determine one another is left out where it is below a millionth of their
    deviations: its squares drown in the rounding errors of others. The objective may be lower with it, so that such a
    fit has not converged, and says why. If it counts, as the time between two dates may, take the difference as a
    feature in place of one of the two; if not, leave out one of the features.

    An iteration costs O(T p + n p d) for T active triplets, each search for impostors O(n² p).

    References
    ----------
    | K. Q. Weinberger, L. K. Saul, "Distance metric learning for large margin nearest neighbor classification", JMLR
      2009.
    | P. A. Poorheravi, B. Ghojogh, V. Gaudet, F. Karray, M. Crowley, "Acceleration of large margin metric learning for
      nearest neighbor classification using triplet mining and stratified sampling", Journal of Computational Vision and
      Imaging Systems 6(1), 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LMNN(strength=1, max_iter=50).fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels, Triplets)
    in_chunks = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    n_neighbors: Count = 3
    mu: Share = 0.5
    margin: Positive = 1.0
    init: str | np.ndarray = "pca"
    mining: str = "batch_all"
    n_mining: Count = 1
    max_impostors: Count | None = None
    batch_size: Count | Literal["auto"] | None = "auto"
    solver: Literal["lbfgs", "sdp"] = "lbfgs"
    max_iter: Iterations = 1000
    tol: NotNegative = 1e-3
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets) -> Solution:
        check_choices(self, mining=("batch_all", *MINERS))
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        samples, lost = resolved(frame.X)
        frame = replace(frame, X=samples)
        rng = check_random_state(self.random_state)
        L = initial_map(frame, side, self.init, p, rng)
        codes = side.codes if isinstance(side, Labels) and self.mining == "batch_all" else None
        divisible = codes is not None and self.solver == "lbfgs" and self.max_impostors is None
        parts = parts_of(frame.X, codes, self.batch_size, rng) if codes is not None and divisible else None
        if current_source() is not None and not divisible:
            raise ValueError("a Dask array needs labels, mining='batch_all', solver='lbfgs' and max_impostors=None")
        some = slice(None) if parts is None else parts[0]
        Z, n_iter = frame.X, 0
        history: list[float] = []
        for mined in range(self.n_mining):  # in the input space, then in the metric found so far
            targets = None if codes is None else target_neighbors(Z[some], codes[some], self.n_neighbors)
            if codes is not None and targets is not None and mined == 0 and isinstance(self.init, str):
                mapped = frame.X[some] @ L.T.astype(X.dtype)
                L *= np.sqrt(best_multiple(mapped, codes[some], targets, self.mu, self.margin, rng))
            if parts is not None or current_source() is not None:
                of_part = partial(self._impostors, L=L if mined else None)
                problem: Any = ImpostorsOfParts(frame.X, shared_parts(of_part, frame.X, side, parts), self.margin)
            else:
                problem = self._problem(frame.X, side, Z, targets, rng)
            solution, self.gap_ = self._solve(problem, L, rng)
            L, n_iter, history = solution.x, n_iter + solution.n_iter, history + solution.history
            Z = frame.X @ L.T.astype(X.dtype)
        if lost > ROUNDING * np.finfo(X.dtype).eps:  # what was proven is of a problem without them
            solution = replace(solution, converged=False, reason=LEFT_OUT.format(lost))
            self.gap_ = None if self.gap_ is None else 1.0
        self.objective_ = solution.value
        self.max_impostors_ = None if isinstance(problem, DistanceObjective) else problem.cap
        self.n_parts_ = 1 if parts is None else len(parts)
        self._store(frame.lift(canonical(L)), X.dtype)
        return replace(solution, n_iter=n_iter, history=history, reason=in_parts(solution.reason, parts))

    def _impostors(self, X: np.ndarray, side: Labels, L: np.ndarray | None) -> Impostors:
        """The objective of one part, with the targets of the input space, or of that of a map."""
        targets = target_neighbors(X if L is None else X @ L.T.astype(X.dtype), side.codes, self.n_neighbors)
        return Impostors(X, side.codes, targets, self.margin, None)

    def _solve(
        self, problem: MarginProblem | DistanceObjective, L: np.ndarray, rng: np.random.RandomState
    ) -> tuple[Solution, float | None]:
        """The solution, and how far it is above the minimum at most, if that is known."""
        if isinstance(problem, DistanceObjective):
            assert isinstance(self.batch_size, int)
            return Batches(self.batch_size, rng, self.max_iter, self.tol).minimize(problem, L), None
        if self.solver == "sdp":
            return semidefinite_programme(problem, self.mu, len(L)), None
        return descend(problem, L, self.mu, max_iter=self.max_iter, tol=self.tol)

    def _problem(
        self,
        X: np.ndarray,
        side: Labels | Triplets,
        Z: np.ndarray,
        targets: np.ndarray | None,
        rng: np.random.RandomState,
    ) -> MarginProblem | DistanceObjective:
        """The objective over given triplets, over all impostors of the targets, or over triplets of the points Z."""
        in_batches = self.batch_size not in (None, "auto")
        if in_batches and (self.solver == "sdp" or self.mining != "batch_all" or isinstance(side, Triplets)):
            raise ValueError(
                "batch_size needs labels, mining='batch_all' and solver='lbfgs'; leave it 'auto' otherwise"
            )
        if isinstance(side, Triplets):
            if self.solver == "sdp" and len(np.unique(side.weight)) > 1:
                raise ValueError("solver='sdp' cannot weigh triplets: make their weights equal, or use solver='lbfgs'")
            return ListedTriplets(X, side, self.margin)
        if targets is not None:
            if in_batches:
                return lmnn_by_anchors(X, side.codes, targets, self.mu, self.margin)
            return Impostors(X, side.codes, targets, self.margin, self.max_impostors)
        triplets = mine(Z, side.codes, self.n_neighbors, self.mining, rng)
        if len(triplets.a) == 0:
            raise ValueError(
                f"mining={self.mining!r} found no triplet: no positive has a negative that suits it. Use another "
                "miner, such as mining='batch_all'"
            )
        return ListedTriplets(X, triplets, self.margin)

    def energy_predict(self, X: Any, X_train: Any, y_train: Any) -> np.ndarray:
        """The label under which each row of X would add least to the objective, as one more point of the training data.

        A rule beside the vote of neighbours: it also asks how many training points the new one would be an impostor of.
        Targets are the nearest of each class in the learned space; see `isometry.spectral.energy`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples to classify.
        X_train : array-like of shape (n, d)
            Training samples.
        y_train : array-like of shape (n,)
            Their labels.

        Returns
        -------
        ndarray of shape (n_samples,)
            The labels.
        """
        labels = Labels(y_train)
        Z_train, Z = (np.asarray(self.transform(part), dtype=np.float64) for part in (X_train, X))
        E = energies(Z, Z_train, labels.codes, self.n_neighbors, self.mu, self.margin)  # (m, c)
        return labels.classes[E.argmin(axis=1)]
