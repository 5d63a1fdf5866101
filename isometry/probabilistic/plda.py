"""Probabilistic linear discriminant analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg as sla
from scipy.special import expit, logit
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import check_components, pair_rows
from isometry.core.linalg import RANK_TOL, definite, fix_signs, scatter_range, symmetrize
from isometry.core.moments import ClassMoments
from isometry.core.solve import Solution, alternate
from isometry.core.warn import warn_user
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Iterations, Positive, Share, parameters
from isometry.strength import Reg
from isometry.supervision import Labels


@parameters
class PLDA(MomentsMetric):
    """Probabilistic linear discriminant analysis: classes are Gaussian, and so is the spread of their means.

    x = m + a_c + ε,  a ~ N(0, B),  ε ~ N(0, E):  L = diag √(ψ/(1 + ψ)) Vᵀ,  VᵀEV = I,  VᵀBV = diag ψ

    The map is the part of the log-likelihood ratio of "same class" to "different classes" that is a distance;
    ``score_pairs`` gives the ratio itself, which also knows that two samples near the mean of all say little. Classes
    never seen before are what the model is for.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of directions to keep, those of the largest ψ; None: all.
    estimator : {"moments", "em"}, default="moments"
        How B and E are found: "moments", the analysis of variance, in closed form and for any class sizes; or "em", the
        maximum of the likelihood ("Joint Bayesian").
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on E, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.
    shrinkage : float in [0, 1], default=0.1
        Share of B that becomes tr(B)/d · I: with c classes B has rank c − 1, and unseen classes need the rest.
    max_iter : int, default=200
        Largest number of iterations of "em".
    tol : float > 0, default=1e-6
        Relative change of the likelihood at which "em" stops.
    verbose : bool, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    directions_ : ndarray of shape (p, d)
        The directions Vᵀ.
    psi_ : ndarray of shape (p,)
        Variances ψ between classes along these directions.
    mean_ : ndarray of shape (d,)
        The mean m.

    Notes
    -----
    For verification of classes never seen before: speakers, faces, products. Its score is a likelihood ratio with a
    prior to choose, and several samples of a class can be enrolled together. Classes are taken for Gaussian clouds
    of one covariance; it needs some tens of classes to learn how classes differ.

    A fit costs O(n d² + d³), with "em" O(c d² + d³) for every iteration.

    References
    ----------
    | S. Ioffe, "Probabilistic linear discriminant analysis", ECCV 2006.
    | S. J. D. Prince, J. H. Elder, "Probabilistic linear discriminant analysis for inferences about identity", ICCV
      2007.
    | D. Chen, X. Cao, L. Wang, F. Wen, J. Sun, "Bayesian face revisited: a joint formulation", ECCV 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import PLDA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = PLDA(reg=0.1).fit(X, y)
    >>> same, different = metric.score_pairs(X, [[0, 1], [0, 60]])
    >>> bool(same > 0 > different)
    True
    """

    _sees = (Labels,)
    _pooled = True

    n_components: int | None = None
    _: KW_ONLY
    estimator: Literal["moments", "em"] = "moments"
    reg: Reg = "auto"
    shrinkage: Share = 0.1
    max_iter: Iterations = 200
    tol: Positive = 1e-6
    verbose: bool = False

    def _fit_moments(self, moments: ClassMoments) -> Solution:
        p = check_components(self.n_components, self.n_features_in_)
        n = moments.counts
        pooled = moments.pooled()
        T = moments.covariance(pooled)
        Q = scatter_range(T)  # (d, r)
        centre = n @ moments.offsets / n.sum()
        M = (moments.offsets - centre) @ Q  # (c, r)
        E = definite(symmetrize(Q.T @ pooled @ Q) / (n.sum() - len(n)), float(self.reg), beside=Q.T @ T @ Q)
        B = between_covariance(M, n, E)
        if self.estimator == "em":
            solution = maximise_likelihood(M, n, E, B, self.max_iter, self.tol)
        else:
            start = np.zeros(len(E)), B, E
            solution = Solution(start, -log_likelihood(M, n, E, start) / n.sum(), 1, "closed form")
            solution.history.append(solution.value)
        (m, B, E), r = solution.x, len(E)
        B = (1 - self.shrinkage) * B + self.shrinkage * np.trace(B) / r * np.eye(r)
        psi, V = sla.eigh(B, E)
        keep = np.argsort(-psi, kind="stable")[: min(p or r, int(np.sum(psi > RANK_TOL * psi[-1])))]
        psi, V = psi[keep], V[:, keep]
        self.psi_, self.mean_ = psi, _grand_mean(moments, Q @ m)
        self.directions_ = moments.lift(fix_signs((Q @ V).T))
        self._store(np.sqrt(psi / (1 + psi))[:, None] * self.directions_, moments.dtype)
        return solution

    def score_pairs(self, X: Any, pairs: Any) -> np.ndarray:
        """Log-likelihood ratio of "same class" to "different classes".

        ½ Σ_l [log((1+ψ)²/(1+2ψ)) + s²ψ/((1+ψ)(1+2ψ)) − t²ψ/(1+ψ)],  s, t = (u ± u')/√2,  u = Vᵀ(x − m)

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        pairs : array-like of shape (m, 2) or Pairs
            Pairs of rows of X.

        Returns
        -------
        ndarray of shape (m,)
            The ratios.
        """
        U, psi = self._coordinates(X), self.psi_
        i, j = pair_rows(pairs, len(U))
        s, t = (U[i] + U[j]) ** 2 / 2, (U[i] - U[j]) ** 2 / 2  # (m, p)
        constant = np.sum(2 * np.log1p(psi) - np.log1p(2 * psi))
        return np.asarray(constant + s @ (psi / ((1 + psi) * (1 + 2 * psi))) - t @ (psi / (1 + psi))) / 2

    def pair_probability(self, X: Any, pairs: Any, prior: float = 0.5) -> np.ndarray:
        """Probability that the samples of a pair are of one class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        pairs : array-like of shape (m, 2) or Pairs
            Pairs of rows of X.
        prior : float, default=0.5
            Share of pairs of one class among those asked about.

        Returns
        -------
        ndarray of shape (m,)
            The probabilities.
        """
        if not 0 < prior < 1:
            raise ValueError(f"prior={prior} is the share of pairs that are the same: choose it between 0 and 1")
        return np.asarray(expit(self.score_pairs(X, pairs) + logit(prior)))

    def enroll(self, X: Any, y: Any) -> Enrolled:
        """What samples of (new) classes say of their means: scores other samples against them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples of classes that may be new.
        y : array-like of shape (n_samples,)
            Their classes.

        Returns
        -------
        Enrolled
            Scores other samples against these classes.
        """
        labels = Labels(y)
        U = self._coordinates(X)
        if len(labels) != len(U):
            raise ValueError(f"y has {len(labels)} entries but X has {len(U)} rows: give one entry per row")
        n = labels.counts[:, None].astype(np.float64)  # (c, 1)
        sums = np.zeros((len(n), U.shape[1]))
        np.add.at(sums, labels.codes, U)
        return Enrolled(self, labels.classes, self.psi_ * sums / (1 + n * self.psi_), self.psi_ / (1 + n * self.psi_))

    def _coordinates(self, X: Any) -> np.ndarray:
        """u = Vᵀ(x − m) (n, p): within classes of variance 1, class means of variance ψ."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return np.asarray((X - self.mean_) @ self.directions_.T)


@dataclass(frozen=True)
class Enrolled:
    """Posteriors of class means, which samples may belong to."""

    learner: PLDA
    classes: np.ndarray  # (c,)
    mean: np.ndarray  # (c, p)
    variance: np.ndarray  # (c, p)

    def score(self, X: Any) -> np.ndarray:
        """(n, c) log-likelihood ratio of "of this class" to "of a class never seen"."""
        U, psi = self.learner._coordinates(X), self.learner.psi_
        out = np.empty((len(U), len(self.classes)))
        unseen = np.sum(U**2 / (1 + psi) + np.log1p(psi), axis=1)
        for c, (mean, variance) in enumerate(zip(self.mean, self.variance, strict=True)):
            out[:, c] = unseen - np.sum((U - mean) ** 2 / (1 + variance) + np.log1p(variance), axis=1)
        return out / 2


def between_covariance(M: np.ndarray, n: np.ndarray, E: np.ndarray) -> np.ndarray:
    """B by the analysis of variance: (S_b/(c − 1) − E)/n₀ without what is negative relative to E.

    M (c, r) are class means about the mean of all, n (c,) class sizes, n₀ = (n − Σn_c²/n)/(c − 1).
    """
    c, total = len(n), n.sum()
    S_b = M.T @ (M * n[:, None]) / (c - 1)
    n0 = (total - np.sum(n**2) / total) / (c - 1)
    psi, V = sla.eigh((S_b - E) / n0, E)
    if psi[-1] <= 0:
        warn_user("class means differ no more than by chance: y tells nothing that a metric could use")
        psi = psi + 1 / n0  # as if means were known exactly
    EV = E @ V
    return symmetrize((EV * np.maximum(psi, 0)) @ EV.T)


Model = tuple[np.ndarray, np.ndarray, np.ndarray]  # m (r,), B (r, r), E (r, r)


def maximise_likelihood(
    M: np.ndarray, n: np.ndarray, E: np.ndarray, B: np.ndarray, max_iter: int, tol: float
) -> Solution:
    """m, B, E of the largest likelihood, by expectation maximisation from B and the covariance E within classes.

    M (c, r) are class means, n (c,) class sizes. In coordinates in which E = I and B is diagonal, all dimensions of a
    class mean are independent given the data.
    """
    c, total, r, within = len(n), n.sum(), len(E), E
    floor = 1e-8 * np.trace(B) / r * np.eye(r)  # B of a rank too low would keep it for ever

    def step(model: Model) -> tuple[Model, float]:
        psi, A, U = _diagonal(M, model)
        variance = psi / (1 + n[:, None] * psi)  # (c, r) of each class mean, given its samples
        mean = n[:, None] * variance * U
        shift = n @ (U - mean) / total  # of m
        rest = U - shift - mean
        B = (mean.T @ mean + np.diag(variance.sum(axis=0))) / c
        E = ((total - c) * A.T @ within @ A + rest.T @ (rest * n[:, None]) + np.diag(n @ variance)) / total
        C = sla.inv(A)
        model = model[0] + shift @ C, symmetrize(C.T @ B @ C), symmetrize(C.T @ E @ C)
        return model, -log_likelihood(M, n, within, model) / total

    return alternate(step, (np.zeros(r), B + floor, E), max_iter=max_iter, tol=tol)


def log_likelihood(M: np.ndarray, n: np.ndarray, within: np.ndarray, model: Model) -> float:
    """Of class means M (c, r), class sizes n (c,), and a covariance within classes of n − c degrees of freedom."""
    total, r = n.sum(), len(within)
    psi, A, U = _diagonal(M, model)
    spread = 1 + n[:, None] * psi  # (c, r)
    means = np.sum(np.log(spread) + n[:, None] * U**2 / spread)
    inside = (total - len(n)) * np.sum(A * (within @ A)) - 2 * total * np.linalg.slogdet(A)[1]
    return -0.5 * float(total * r * np.log(2 * np.pi) + means + inside)


def _diagonal(M: np.ndarray, model: Model) -> Model:
    """ψ (r,), A (r, r) with AᵀEA = I and AᵀBA = diag ψ, and the class means about m in these coordinates (c, r)."""
    m, B, E = model
    psi, A = sla.eigh(B, E)
    return np.maximum(psi, 0), A, (M - m) @ A


def _grand_mean(moments: ClassMoments, shift: np.ndarray) -> np.ndarray:
    """(d,) the mean of all samples, moved by ``shift`` in the coordinates of the moments."""
    features = moments.in_features()
    mean = features.origin + features.counts @ features.offsets / features.counts.sum()
    return np.asarray(mean + (shift if moments.frame is None else moments.frame.lift(shift[None])[0]))
